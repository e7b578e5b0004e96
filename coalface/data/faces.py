"""Photographs in folders, one folder per identity: ROOT/IDENTITY/*.jpg (png, bmp, webp).

An image is turned upright by its EXIF tag, cropped to its central square if it is not square, resized (bilinear,
antialiased) and kept as RGB uint8; transparency is dropped. Identities are numbered in the order of their names, images
within one in the order of theirs, so that the numbering depends on the folder and on nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from coalface.data.faceset import FaceSet
from coalface.data.listing import hash_of_files

Progress = Callable[[int, int], None]  # images done, images in all
AnyPath = str | os.PathLike[str]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]  # [3, size, size]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
SUB_FOLDERS = " (those in sub-folders do not count: move them up into the folder of their identity)"
MAX_PIXELS = 64_000_000  # a photograph larger than this is a mistake, or an attack on the memory of whoever opens it
CACHE_FORMAT = 2  # counts up whenever the same photographs would give other pixels, or more is kept about them


class BrokenImage(ValueError):
    """An image file that cannot be decoded, or that nobody should decode."""


_Outcome = tuple[Pixels | BrokenImage | FileNotFoundError, bytes]  # of a file, and a hash of what is in it


@dataclass(frozen=True, repr=False)
class IdentityNames:
    """Which folder became which identity. Names are personal data: they are asked after one by one, and never shown."""

    _number: dict[str, int]

    def __repr__(self) -> str:
        return f"IdentityNames({len(self)} names, not shown)"

    def __len__(self) -> int:
        return len(self._number)

    def __contains__(self, name: object) -> bool:
        return name in self._number

    def number(self, name: str) -> int:
        """The identity that this folder became."""
        if name not in self._number:
            raise ValueError(f"none of the {len(self)} identities has this name: it was left out, or was never there")
        return self._number[name]


@dataclass(frozen=True)
class PhotoFolder:
    """Faces read from a folder, and what was left out of it."""

    faces: FaceSet
    names: IdentityNames
    excluded: int  # identities left out by name
    too_few: int  # identities left out for having fewer than min_images
    skipped: int  # broken images passed over
    files: str  # a hash over the names and contents of all files that were to be read


@dataclass(frozen=True)
class _Listing:
    """What is to be decoded: all that decides which pixels come out, and so the key of the cache."""

    root: Path
    names: list[str]  # [I]
    listed: list[int]  # [I] images of each identity
    files: list[tuple[str, int, int]]  # [N] path below the root, bytes, mtime in ns
    size: int
    min_images: int

    def key(self) -> str:
        parts = [CACHE_FORMAT, self.size, self.min_images, self.names, self.listed, self.files]
        return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()[:32]

    def kept(self, skipped: Collection[int]) -> dict[str, int]:
        """Identities that still have enough images without the skipped files -> how many."""
        owner = np.repeat(np.arange(len(self.names)), self.listed)
        left = np.asarray(self.listed) - np.bincount(owner[sorted(skipped)], minlength=len(self.names))
        return {name: int(n) for name, n in zip(self.names, left, strict=True) if n >= self.min_images}


def read_folder(
    root: AnyPath,
    size: int,
    *,
    cache: AnyPath | None = None,
    min_images: int = 1,
    exclude: Collection[str] = (),
    recursive: bool = False,
    skip_broken: bool = False,
    progress: Progress | None = None,
) -> PhotoFolder:
    """Read ROOT/IDENTITY/*.jpg into a FaceSet of size×size images.

    With ``cache``, a folder for private files, images are decoded once into a file that later calls map into memory,
    as long as file names, byte sizes, times and the arguments stay the same. Without it they are decoded into memory.
    ``recursive`` takes the images of sub-folders too (ID/frontal/01.jpg). ``exclude`` names identity folders to leave
    out; names that are not there are passed over, and the result counts those that were. ``skip_broken`` leaves out
    what cannot be decoded; without it the first such image is named, and all of them are counted. Hidden files and
    files of other kinds are ignored. No folder may be reached twice, so links that loop are refused.
    """
    _check_sizes(size, min_images)
    if cache is not None and Path(cache).is_file():
        raise ValueError(f"data.cache is a folder for decoded photographs, and {cache} is a file: choose a folder")
    if isinstance(exclude, str):
        raise ValueError("exclude must be a collection of names, not one string")
    base, unwanted = Path(root), frozenset(exclude)
    found = _list_identities(base, recursive)
    wanted = {name: files for name, files in found.items() if name not in unwanted}
    enough = {name: files for name, files in wanted.items() if len(files) >= min_images}
    if not enough:
        raise ValueError(
            f"no identity is left in {base}: {len(found) - len(wanted)} of {len(found)} were excluded, {len(wanted)} "
            f"have fewer than {min_images} images{'' if recursive else SUB_FOLDERS}"
        )
    files = [file for several in enough.values() for file in several]
    listing = _Listing(base, list(enough), [len(several) for several in enough.values()], files, size, min_images)
    if cache is None:
        images, skipped, contents = _decode_to_memory(listing, skip_broken, progress)
    else:
        images, skipped, contents = _decode_once(Path(cache), listing, skip_broken, progress)
    kept = listing.kept(skipped)
    if skipped:
        first = base / files[skipped[0]][0]
        warnings.warn(f"skipped {len(skipped)} of {len(files)} images that are broken, first {first}", stacklevel=2)
    if not kept:
        raise ValueError(f"no identity is left in {base}: without broken images none has {min_images}")
    return PhotoFolder(
        FaceSet(images, torch.tensor([0, *kept.values()]).cumsum(0)),
        IdentityNames({name: number for number, name in enumerate(kept)}),
        excluded=len(found) - len(wanted),
        too_few=len(wanted) - len(kept),
        skipped=len(skipped),
        files=hash_of_files([*((path, size_) for path, size_, _ in files), (contents, len(files))]),
    )


def list_photos(root: AnyPath) -> dict[str, list[Path]]:
    """The photographs of each identity that `read_folder` would read, in its order; those of none are not there."""
    base = Path(root)
    found = {name: [base / path for path, _, _ in files] for name, files in _list_identities(base, False).items()}
    return {name: files for name, files in found.items() if files}


def read_images(paths: Sequence[AnyPath], size: int, progress: Progress | None = None) -> Tensor:
    """These images, in this order, uint8 [n, 3, size, size]: for lists of pairs."""
    _check_sizes(size, 1)
    images = torch.empty((len(paths), 3, size, size), dtype=torch.uint8)
    with closing(_decode_in_order([Path(path) for path in paths], size)) as outcomes:
        for place, (outcome, _) in enumerate(outcomes):
            if isinstance(outcome, Exception):
                raise outcome
            images[place] = torch.from_numpy(outcome)
            if progress is not None:
                progress(place + 1, len(paths))
    return images


def _check_sizes(size: int, min_images: int) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1 pixel, not {size}")
    if min_images < 1:
        raise ValueError(f"min_images must be at least 1, not {min_images}")


# ---- listing


def _list_identities(root: Path, recursive: bool) -> dict[str, list[tuple[str, int, int]]]:
    if not root.exists():
        raise FileNotFoundError(f"there is no folder {root}")
    if not root.is_dir():
        raise ValueError(f"{root} is a file: give the folder that holds one folder per identity")
    reached = {_file_id(root)}
    found = {}
    for entry in _entries(root):
        if entry.is_dir():
            found[entry.name] = list(_list_images(entry, entry.name, recursive, reached))
        elif _is_photo(entry):
            raise ValueError(f"{entry.path} belongs to no identity: move it into an identity's folder, or remove it")
    if not found:
        raise ValueError(f"{root} is empty: it should hold one folder per identity")
    return found


def _list_images(
    folder: os.DirEntry[str], relative: str, recursive: bool, reached: set[tuple[int, int]]
) -> Iterator[tuple[str, int, int]]:
    this = _file_id(folder)
    if this in reached:
        raise ValueError(f"{folder.path} leads to a folder that was already read (a link, or a loop): remove it")
    reached.add(this)
    for entry in _entries(folder):
        path = f"{relative}/{entry.name}"
        if entry.is_dir():
            if recursive:
                yield from _list_images(entry, path, recursive, reached)
        elif _is_photo(entry):
            # A link to nowhere is listed: it fails at decoding, where broken images are dealt with.
            about = entry.stat(follow_symlinks=Path(entry).exists())
            yield path, about.st_size, about.st_mtime_ns


def _entries(folder: AnyPath) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        found = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in found:
        try:
            entry.is_dir()
        except OSError as reason:
            raise ValueError(f"{entry.path} cannot be followed ({reason.strerror}): remove it") from reason
    return found


def _is_photo(entry: os.DirEntry[str]) -> bool:
    return Path(entry.name).suffix.lower() in SUFFIXES


def _file_id(folder: AnyPath) -> tuple[int, int]:
    about = Path(folder).stat()
    return about.st_dev, about.st_ino


# ---- the cache


def _decode_once(
    folder: Path, listing: _Listing, skip_broken: bool, progress: Progress | None
) -> tuple[Tensor, list[int], str]:
    """Images mapped from KEY.u8; KEY.json, written after it, says that it is whole, what was skipped, and of what."""
    key = listing.key()
    pixels, about = folder / f"{key}.u8", folder / f"{key}.json"
    whole = _whole(pixels, about, listing) if about.exists() else None
    if whole is not None:
        skipped, contents = whole
        if skipped and not skip_broken:
            first = listing.root / listing.files[skipped[0]][0]
            raise _with_remedy(f"{first} cannot be decoded", len(skipped), len(listing.files))
        return _map(pixels, listing, skipped), skipped, contents
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")  # readable by its owner only, as faces should be
    try:
        with os.fdopen(handle, "wb") as file:
            skipped, contents = _decode_listing(listing, skip_broken, progress, lambda image: file.write(image.data))
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(pixels)
        Path(part).write_text(json.dumps({"skipped": skipped, "contents": contents}), encoding="ascii")
        Path(part).replace(about)
    finally:
        Path(part).unlink(missing_ok=True)
    return _map(pixels, listing, skipped), skipped, contents


def _whole(pixels: Path, about: Path, listing: _Listing) -> tuple[list[int], str] | None:
    """What KEY.json says, or None (with a warning) where the cache cannot be what was written."""
    try:
        told = json.loads(about.read_text(encoding="ascii"))
        skipped, contents = told["skipped"], str(told["contents"])
        found, expected = pixels.stat().st_size, _bytes(listing, skipped)
    except (OSError, ValueError, LookupError, TypeError) as reason:
        warnings.warn(f"the cache {pixels} is damaged ({reason}): decoding the photographs again", stacklevel=4)
        return None
    if found != expected:
        told = f"{found} bytes where {expected} were written"
        warnings.warn(f"the cache {pixels} is damaged ({told}): decoding the photographs again", stacklevel=4)
        return None
    return skipped, contents


def _bytes(listing: _Listing, skipped: Collection[int]) -> int:
    return sum(listing.kept(skipped).values()) * 3 * listing.size**2


def _map(pixels: Path, listing: _Listing, skipped: Collection[int]) -> Tensor:
    length = _bytes(listing, skipped)
    if not length:
        return torch.empty((0, 3, listing.size, listing.size), dtype=torch.uint8)
    # Not shared: pages come from the file, and a write by mistake stays in this process.
    flat = torch.from_file(str(pixels), shared=False, size=length, dtype=torch.uint8)
    return flat.view(-1, 3, listing.size, listing.size)


# ---- decoding


def _decode_to_memory(listing: _Listing, skip_broken: bool, progress: Progress | None) -> tuple[Tensor, list[int], str]:
    images = torch.empty((len(listing.files), 3, listing.size, listing.size), dtype=torch.uint8)
    places = iter(images)
    skipped, contents = _decode_listing(
        listing, skip_broken, progress, lambda image: next(places).copy_(torch.from_numpy(image))
    )
    return images[: sum(listing.kept(skipped).values())], skipped, contents


def _decode_listing(
    listing: _Listing, skip_broken: bool, progress: Progress | None, put: Callable[[Pixels], object]
) -> tuple[list[int], str]:
    """Put the images in order, less the identities left with too few.

    Returns the positions of the broken files, and a hash over the contents of all.
    Where none may be skipped, the rest is decoded all the same: whoever mends the folder wants to know of every one.
    """
    skipped: list[int] = []
    first: Exception | None = None
    contents = hashlib.sha256()
    done = 0
    with closing(_decode_in_order([listing.root / path for path, _, _ in listing.files], listing.size)) as outcomes:
        for listed in listing.listed:
            good: list[Pixels] = []
            for _ in range(listed):
                outcome, digest = next(outcomes)
                contents.update(digest)
                if isinstance(outcome, Exception):
                    skipped.append(done)
                    first = first or outcome
                else:
                    good.append(outcome)
                done += 1
                if progress is not None:
                    progress(done, len(listing.files))
            if len(good) >= listing.min_images and (skip_broken or first is None):
                for image in good:
                    put(image)
    if first is not None and not skip_broken:
        raise _with_remedy(first, len(skipped), done) from first
    return skipped, contents.hexdigest()


def _with_remedy(complaint: object, broken: int, images: int) -> BrokenImage:
    many = f"; {broken} of {images} images are broken: remove them, or leave them out" if broken > 1 else ""
    settings = "`run`: --set data.skip_broken=true, `eval`: --skip-broken"
    return BrokenImage(f"{complaint}{many or ': remove the file, or leave it out'} ({settings})")


def _decode_in_order(paths: Sequence[Path], size: int) -> Generator[_Outcome, None, None]:
    """Decode on a few threads (pillow releases the GIL), only ever a few images ahead of whoever takes them."""
    pillow, image_ops = _pillow()

    def outcome(path: Path) -> _Outcome:
        digest = b""
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
                file.seek(0)
                return _decode(file, path, size, pillow, image_ops), digest
        except BrokenImage as reason:
            return reason, digest
        except FileNotFoundError:
            return FileNotFoundError(f"there is no image {path}"), digest

    workers = min(8, os.cpu_count() or 1)
    pending: deque[Future[_Outcome]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        for path in paths:
            pending.append(pool.submit(outcome, path))
            if len(pending) > 4 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _decode(file: BinaryIO, path: Path, size: int, pillow: ModuleType, image_ops: ModuleType) -> Pixels:
    try:
        with pillow.open(file, formats=("JPEG", "PNG", "BMP", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BrokenImage(f"{path} has {image.width}×{image.height} pixels, over {MAX_PIXELS // 10**6} million")
            if image.mode.startswith(("I", "F")):  # conversion would clip almost all of it to white
                raise BrokenImage(f"{path} has more than 8 bits a pixel (mode {image.mode})")
            upright = image_ops.exif_transpose(image).convert("RGB")
        side = min(upright.size)
        left, top = (upright.width - side) // 2, (upright.height - side) // 2
        box = (left, top, left + side, top + side)
        small = upright.resize((size, size), pillow.Resampling.BILINEAR, box=box)
        return np.ascontiguousarray(np.asarray(small, dtype=np.uint8).transpose(2, 0, 1))
    except (BrokenImage, MemoryError):
        raise
    except pillow.UnidentifiedImageError as reason:
        raise BrokenImage(f"{path} is no JPEG, PNG, BMP or WebP image") from reason
    except Exception as reason:
        # Decoders meet damage with every kind of exception. An errno, however, is the disk speaking, not the file.
        if isinstance(reason, OSError) and reason.errno is not None:
            raise
        raise BrokenImage(f"{path} cannot be decoded ({reason})") from reason


def _pillow() -> tuple[ModuleType, ModuleType]:
    try:
        pillow, image_ops = import_module("PIL.Image"), import_module("PIL.ImageOps")
    except ImportError as reason:
        raise ImportError("reading photographs needs pillow: pip install 'coalface[app]'") from reason
    pillow.init()  # loads the file formats here, before the threads would do it at the same time
    return pillow, image_ops
