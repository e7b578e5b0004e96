"""Lists of image pairs for verification: LFW ``pairs.txt``, CFP's protocol folder, and plain CSV.

Every reader gives a `PairList`. Nothing is decoded while reading; missing images are found at once, not in the middle
of a run. People are numbered, never named. The insightface ``.bin`` has its own reader in ``pair_bin.py``.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Image = Path | bytes  # a file, or an encoded image (JPEG, PNG) in memory

_TRUTH = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True)
class PairList:
    """Pair k compares ``images[left[k]]`` with ``images[right[k]]``; each image stands once in ``images``."""

    images: tuple[Image, ...]
    left: Tensor  # int64 [m]
    right: Tensor  # int64 [m]
    same: Tensor  # bool [m]
    fold: Tensor  # int64 [m], from 0
    identities: Tensor | None = None  # int64 [len(images)], where the list tells; for intervals by identity

    def __post_init__(self) -> None:
        lengths = {len(self.left), len(self.right), len(self.same), len(self.fold)}
        if len(lengths) != 1:
            raise ValueError(f"left, right, same and fold must have one length, got {sorted(lengths)}")
        if len(self) == 0:
            raise ValueError("a pair list needs at least one pair")
        named = torch.cat([self.left, self.right])
        if not 0 <= int(named.min()) <= int(named.max()) < len(self.images):
            raise ValueError(f"pairs name images {int(named.min())} … {int(named.max())}, there are {len(self.images)}")

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.left)

    @property
    def pairs(self) -> Tensor:
        """[m, 2], as `coalface.protocols.verification.pair_scores` takes them."""
        return torch.stack([self.left, self.right], dim=1)


def read_lfw(file: Path, root: Path, suffix: str = ".jpg") -> PairList:
    """LFW's ``pairs.txt``, or a view-1 list (``pairsDevTrain.txt``), with images ROOT/NAME/NAME_0001.jpg.

    The header is ``folds<TAB>n`` or, for view 1, ``n``. Each fold has n lines ``name i j``, then n ``name i name j``.
    """
    lines = _lines(file)
    header = lines[0].split() if lines else []
    if len(header) not in (1, 2) or not all(_is_count(field) for field in header):
        raise ValueError(f"{file}:1: header must be 'folds pairs' or 'pairs', got {' '.join(header)[:80]!r}")
    folds, each = (int(header[0]), int(header[1])) if len(header) == 2 else (1, int(header[0]))
    promised = 2 * folds * each
    body = [line for line in lines[1:] if line.strip()]
    if len(body) != promised:
        raise ValueError(
            f"{file}:{len(lines)}: the file holds {len(body):,} pairs, its header promises {promised:,} "
            f"({folds} × ({each} + {each})): get the whole list"
        )
    pairs: list[tuple[str, str, bool]] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        fields = line.split()
        same = len(pairs) % (2 * each) < each
        wanted = "name number number" if same else "name number name number"
        numbers = fields[1:3] if same else fields[1::2]
        if len(fields) != (3 if same else 4) or not all(_is_count(field) for field in numbers):
            raise ValueError(f"{file}:{number}: expected '{wanted}', got {len(fields)} fields: {line.strip()[:80]!r}")
        other = fields[0] if same else fields[2]
        pairs.append((_lfw_path(fields[0], numbers[0], suffix), _lfw_path(other, numbers[1], suffix), same))
    fold = torch.arange(folds).repeat_interleave(2 * each)
    return _pair_list(file, root, pairs, fold, identity_level=0)


def read_cfp(root: Path, kind: Literal["FF", "FP"]) -> PairList:
    """CFP's frontal–frontal or frontal–profile protocol under ROOT/Protocol, images under ROOT/Data/Images/ID."""
    if kind not in ("FF", "FP"):
        raise ValueError(f"kind must be 'FF' or 'FP', got {kind!r}")
    protocol = root / "Protocol"
    frontal = _cfp_images(protocol / "Pair_list_F.txt")
    other = frontal if kind == "FF" else _cfp_images(protocol / "Pair_list_P.txt")
    splits = sorted(path for path in (protocol / "Split" / kind).glob("*") if path.is_dir())
    if not splits:
        raise ValueError(
            f"{protocol / 'Split' / kind}: no split folders; ROOT must hold CFP's Protocol and Data folders"
        )
    pairs, fold = [], []
    for index, split in enumerate(splits):
        for name, same in (("same.txt", True), ("diff.txt", False)):
            for number, line in enumerate(_lines(split / name), start=1):
                fields = [field.strip() for field in line.split(",")]
                if len(fields) != 2 or fields[0] not in frontal or fields[1] not in other:
                    raise ValueError(f"{split / name}:{number}: {line[:80]!r} is not two numbers of the image lists")
                pairs.append((frontal[fields[0]], other[fields[1]], same))
                fold.append(index)
    return _pair_list(protocol, protocol, pairs, torch.tensor(fold), identity_level=-3)


def read_csv(file: Path, root: Path | None = None) -> PairList:
    """CSV with header ``left,right,same`` and optionally ``fold``.

    Paths are relative to ``root`` (default: the CSV's folder). ``same`` is 1, 0, true or false. Without a fold column
    every pair is in fold 0.
    """
    reader = csv.reader(_lines(file))
    header = next(reader, [])
    if header not in (["left", "right", "same"], ["left", "right", "same", "fold"]):
        raise ValueError(
            f"{file}:1: header must be 'left,right,same' or 'left,right,same,fold', got {','.join(header)[:80]!r}"
        )
    pairs, fold = [], []
    for row in reader:
        where = f"{file}:{reader.line_num}"
        if len(row) != len(header):
            raise ValueError(f"{where}: expected {len(header)} fields, got {len(row)}")
        left, right, same = row[:3]
        if same.lower() not in _TRUTH:
            raise ValueError(f"{where}: same must be 1, 0, true or false, got {same!r}")
        if len(row) == 4 and not row[3].isdecimal():
            raise ValueError(f"{where}: fold must be a whole number from 0, got {row[3]!r}")
        pairs.append((left, right, _TRUTH[same.lower()]))
        fold.append(int(row[3]) if len(row) == 4 else 0)
    if not pairs:
        raise ValueError(f"{file}:1: no pairs under the header")
    return _pair_list(file, file.parent if root is None else root, pairs, torch.tensor(fold))


def write_csv(pairs: PairList, file: Path, root: Path | None = None) -> None:
    """Write what `read_csv` reads back; paths become relative to ``root`` (default: the CSV's folder)."""
    base = file.parent if root is None else root
    names = []
    for image in pairs.images:
        if isinstance(image, bytes):
            raise ValueError("this list holds images in memory, a CSV holds paths: save the images to files first")
        names.append(Path(os.path.relpath(image, base)).as_posix())
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["left", "right", "same", "fold"])
        columns = (pairs.left.tolist(), pairs.right.tolist(), pairs.same.tolist(), pairs.fold.tolist())
        for left, right, same, fold in zip(*columns, strict=True):
            writer.writerow([names[left], names[right], int(same), fold])


def contiguous_folds(count: int, folds: int) -> Tensor:
    """Fold of each of ``count`` pairs [count]: ``folds`` blocks in order, the first ones longer by one if need be."""
    if not 1 <= folds <= count:
        raise ValueError(f"cannot cut {count} pairs into {folds} folds")
    lengths = torch.full((folds,), count // folds)
    lengths[: count % folds] += 1
    return torch.arange(folds).repeat_interleave(lengths)


def load_images(
    images: Sequence[Image], size: int | None = None, progress: Callable[[int, int], object] | None = None
) -> Tensor:
    """Decode to uint8 [n, 3, H, W]; ``size`` resizes to size × size, else all images must have one shape.

    ``progress`` is told how many images are done, and of how many.
    """
    decoded: list[Tensor] = []
    for index, image in enumerate(images):
        decoded.append(_decode(image, index, size))
        if decoded[-1].shape != decoded[0].shape:
            shapes = f"{list(decoded[-1].shape)}, the first is {list(decoded[0].shape)}"
            raise ValueError(f"{_label(image, index)} is {shapes}: align the set first, or give a size")
        if progress is not None:
            progress(index + 1, len(images))
    return torch.stack(decoded)


def _decode(image: Image, index: int, size: int | None) -> Tensor:
    try:
        from PIL import Image as Pillow  # noqa: PLC0415  (optional: only lists of real photographs need it)
    except ImportError as missing:
        raise ImportError("reading images needs pillow: pip install 'coalface[app]'") from missing
    try:
        with Pillow.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
            picture = opened.convert("RGB")
    except OSError as broken:
        raise ValueError(f"{_label(image, index)} cannot be decoded: {broken}") from broken
    if size is not None and picture.size != (size, size):
        picture = picture.resize((size, size), Pillow.Resampling.BILINEAR)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def _label(image: Image, index: int) -> str:
    return f"image {index} of the list" if isinstance(image, bytes) else str(image)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as missing:
        raise FileNotFoundError(f"{file} is missing: give the path of the pair list as published") from missing
    except UnicodeDecodeError as wrong:
        raise ValueError(f"{file}: not a text file ({wrong})") from wrong


def _is_count(field: str) -> bool:
    return field.isascii() and field.isdecimal() and int(field) > 0


def _lfw_path(name: str, number: str, suffix: str) -> str:
    return f"{name}/{name}_{int(number):04d}{suffix}"


def _cfp_images(file: Path) -> dict[str, str]:
    """Image number → path relative to the Protocol folder."""
    found = {}
    for number, line in enumerate(_lines(file), start=1):
        fields = line.split()
        if len(fields) != 2 or not _is_count(fields[0]):
            raise ValueError(f"{file}:{number}: expected 'number path', got {line[:80]!r}")
        found[fields[0]] = fields[1]
    return found


def _pair_list(
    source: Path, root: Path, pairs: list[tuple[str, str, bool]], fold: Tensor, identity_level: int | None = None
) -> PairList:
    """Number the distinct images in order of appearance, refuse missing ones; identity = that part of the path."""
    numbers: dict[str, int] = {}
    left = [numbers.setdefault(pair[0], len(numbers)) for pair in pairs]
    right = [numbers.setdefault(pair[1], len(numbers)) for pair in pairs]
    images = tuple(Path(os.path.normpath(root / name)) for name in numbers)
    missing = [path for path in images if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{source}: {len(missing):,} of {len(images):,} images are missing, the first is {missing[0]}: "
            "unpack the whole set, or correct the root folder"
        )
    identities = None
    if identity_level is not None:
        people: dict[str, int] = {}
        owners = [Path(name).parts[identity_level] for name in numbers]
        identities = torch.tensor([people.setdefault(owner, len(people)) for owner in owners])
    same = torch.tensor([pair[2] for pair in pairs])
    return PairList(images, torch.tensor(left), torch.tensor(right), same, fold, identities)
