"""The insightface ``.bin`` verification set: a pickle of (encoded images, same flags), read without trusting it.

A pickle can name any function and have it called. This reader resolves no name of the file to real code: the few names
that such files hold stand for small functions below, which can only produce bytes, numbers and flags.

Allowed    containers, bytes, str, numbers and booleans (they need no name at all);
           ``_codecs.encode(text, 'latin1')``, by which Python 3 writes bytes in old pickle protocols;
           numpy ``uint8`` and ``bool`` arrays and scalars (some files store buffers and flags so).
Refused    every other name, persistent references and extension codes, before anything is called.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from coalface.data.pairs import Image, PairList, contiguous_folds

FOLDS = 10


def read_bin(file: Path) -> PairList:
    """Pairs of an insightface ``.bin``: images 2k and 2k + 1 are pair k.

    Ten folds are contiguous blocks, as its authors cut them. Images stay encoded; `coalface.data.pairs.load_images`
    decodes them.
    """
    content = _load(file)
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise ValueError(f"{file}: expected (images, same), got {type(content).__name__}: not a verification .bin")
    encoded, flags = (_as_list(part) for part in content)
    if encoded is None or flags is None or len(encoded) != 2 * len(flags) or not flags:
        sizes = [len(part) if part is not None else "no list" for part in (encoded, flags)]
        raise ValueError(f"{file}: expected two images per flag, got {sizes[0]} images and {sizes[1]} flags")
    images = tuple(_as_bytes(image, file, index) for index, image in enumerate(encoded))
    same = torch.tensor([_as_flag(flag, file, index) for index, flag in enumerate(flags)])
    first = torch.arange(0, len(images), 2)
    return PairList(images, first, first + 1, same, contiguous_folds(len(flags), min(FOLDS, len(flags))))


class _Bytes:
    """Stands for a numpy array while it is rebuilt; keeps its raw bytes, of one byte per element."""

    __slots__ = ("raw",)

    def __init__(self) -> None:
        self.raw = b""

    def __setstate__(self, state: Any) -> None:
        _version, _shape, dtype, _fortran, raw = state
        self.raw = _raw_bytes(dtype, raw)


class _Dtype:
    """Stands for ``numpy.dtype``: only its code is kept."""

    __slots__ = ("code",)

    def __init__(self, code: Any, *_flags: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment: nothing to keep for one-byte elements."""


def _raw_bytes(dtype: Any, raw: Any) -> bytes:
    if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", "b1"):
        raise pickle.UnpicklingError(f"numpy type {getattr(dtype, 'code', dtype)!r} is refused: only uint8 and bool")
    if not isinstance(raw, bytes):
        raise pickle.UnpicklingError(f"array content is {type(raw).__name__}, not bytes")
    return raw


def _encode(text: Any, encoding: Any) -> bytes:
    if encoding not in ("latin1", b"latin1") or not isinstance(text, str | bytes):
        raise pickle.UnpicklingError(f"text encoding {encoding!r} is refused: only latin1")
    return text if isinstance(text, bytes) else text.encode("latin1")


def _reconstruct(*_arguments: Any) -> _Bytes:
    return _Bytes()


def _scalar(dtype: Any, raw: Any) -> int:
    return int.from_bytes(_raw_bytes(dtype, raw)[:1], "little")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
}


class _OnlyData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which is refused: it may run code")
        return _STAND_INS[module, name]


def _load(file: Path) -> Any:
    try:
        raw = file.read_bytes()
    except FileNotFoundError as missing:
        raise FileNotFoundError(f"{file} is missing: give the path of a verification .bin") from missing
    try:
        # Python 2 wrote byte strings as str; encoding="bytes" keeps them as they were.
        return _OnlyData(io.BytesIO(raw), encoding="bytes").load()
    except Exception as broken:  # a hostile pickle can raise anything; whatever it is, the file is no good
        raise ValueError(f"{file}: not a readable verification .bin: {type(broken).__name__}: {broken}") from broken


def _as_list(part: Any) -> list[Any] | None:
    if isinstance(part, _Bytes):
        return list(part.raw)
    return list(part) if isinstance(part, list | tuple) else None


def _as_bytes(image: Any, file: Path, index: int) -> Image:
    content = image.raw if isinstance(image, _Bytes) else image
    if not isinstance(content, bytes) or not content:
        raise ValueError(f"{file}: image {index} is {type(image).__name__}, expected the bytes of an encoded image")
    return content


def _as_flag(flag: Any, file: Path, index: int) -> bool:
    if not isinstance(flag, int) or flag not in (0, 1):
        raise ValueError(f"{file}: flag {index} is {str(flag)[:40]!r}, expected true or false")
    return bool(flag)
