"""The public list files of IJB-A, IJB-B and IJB-C: which image belongs to which template, and what is compared.

    media list        IMAGE TEMPLATE MEDIA, by spaces: ijbb_face_tid_mid.txt, ijbc_face_tid_mid.txt
    comparisons       TEMPLATE TEMPLATE SAME, by spaces: ijbc_template_pair_label.txt; or two by a comma, without the
                      answer: verify_comparisons_1.csv, ijbc_11_G1_G2_matches.csv
    metadata          CSV with a header that has TEMPLATE_ID and SUBJECT_ID, and where there are images FILE or FILENAME
                      and MEDIA_ID or SIGHTING_ID: verify_metadata_1.csv, ijbc_1N_gallery_G1.csv, search_probe_1.csv

Numbers only are kept of people. A line that does not fit is refused with its number.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FILES, MEDIA = ("FILE", "FILENAME"), ("MEDIA_ID", "SIGHTING_ID")


@dataclass(frozen=True)
class MediaList:
    """Image i shows template ``templates[i]``, and is of medium ``media[i]``: a still, or one frame of a video."""

    images: tuple[str, ...]
    templates: Tensor  # int64 [n]
    media: Tensor  # int64 [n]


@dataclass(frozen=True)
class Comparisons:
    """Pairs of templates to compare; ``same`` is None where the list leaves it to the subjects of the metadata."""

    left: Tensor  # int64 [m]
    right: Tensor  # int64 [m]
    same: Tensor | None  # bool [m]


@dataclass(frozen=True)
class Subjects:
    """Whose each template is, in rising order of templates."""

    templates: Tensor  # int64 [t]
    subjects: Tensor  # int64 [t]

    def of(self, templates: Tensor) -> Tensor:
        """The subject of each of these templates."""
        return self.subjects[places(self.templates, templates)]


def read_media(path: Path) -> MediaList:
    """A list of images with template and medium."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        cells = line.split()
        if cells and len(cells) != 3:
            raise ValueError(f"{path}, line {number}: {len(cells)} words where 3 belong")
        rows += [cells] if cells else []
    if not rows:
        raise ValueError(f"{path} is empty")
    numbers = torch.tensor([[_int(row[1], path), _int(row[2], path)] for row in rows])
    return MediaList(tuple(row[0] for row in rows), numbers[:, 0], numbers[:, 1])


def read_comparisons(path: Path) -> Comparisons:
    """A list of pairs of templates, with or without the answer; IJB-C has 15.7 million."""
    with path.open() as file:
        first = file.readline()
    if not first.strip():
        raise ValueError(f"{path} is empty")
    try:
        pairs = torch.from_numpy(np.loadtxt(path, np.int64, delimiter="," if "," in first else None, ndmin=2))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if pairs.shape[1] not in (2, 3):
        raise ValueError(f"{path}: {pairs.shape[1]} numbers in a line where 2 or 3 belong")
    if pairs.shape[1] == 2:
        return Comparisons(pairs[:, 0], pairs[:, 1], None)
    if not bool(((pairs[:, 2] == 0) | (pairs[:, 2] == 1)).all()):
        raise ValueError(f"{path}: the third number of a line says whether it is the same person, 0 or 1")
    return Comparisons(pairs[:, 0], pairs[:, 1], pairs[:, 2] == 1)


def read_subjects(path: Path) -> Subjects:
    """Whose the templates of a metadata file are; a template of two people is refused."""
    rows = _table(path)
    numbers = torch.tensor([[_int(row["TEMPLATE_ID"], path), _int(row["SUBJECT_ID"], path)] for row in rows])
    known = numbers.unique(dim=0)  # sorted, and one row for each template that has one subject
    if len(known[:, 0].unique()) < len(known):
        place = int((known[:, 0].diff() == 0).nonzero()[0])
        raise ValueError(f"{path}: template {int(known[place, 0])} belongs to two subjects")
    return Subjects(known[:, 0].contiguous(), known[:, 1].contiguous())


def read_metadata_images(path: Path) -> MediaList:
    """The images of a metadata file that names them, as IJB-A's do."""
    rows = _table(path)
    file, medium = _column(rows[0], FILES, path), _column(rows[0], MEDIA, path)
    numbers = torch.tensor([[_int(row["TEMPLATE_ID"], path), _int(row[medium], path)] for row in rows])
    return MediaList(tuple(row[file] for row in rows), numbers[:, 0], numbers[:, 1])


def places(known: Tensor, wanted: Tensor) -> Tensor:
    """Where each wanted number stands among the known ones, which rise; a missing one is refused by name."""
    at = torch.searchsorted(known, wanted).clamp(max=max(0, len(known) - 1))
    missing = wanted[known[at] != wanted] if len(known) else wanted
    if len(missing):
        raise ValueError(f"template {int(missing[0])} is compared but has no images ({len(missing)} such)")
    return at


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    if not rows:
        raise ValueError(f"{path} has a header at most, and no rows")
    for name in ("TEMPLATE_ID", "SUBJECT_ID"):
        _column(rows[0], (name,), path)
    return rows


def _column(row: dict[str, str], names: tuple[str, ...], path: Path) -> str:
    for name in names:
        if name in row:
            return name
    raise ValueError(f"{path} has no column {' or '.join(names)}; it has {', '.join(filter(None, row))}")


def _int(text: str, path: Path) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: {text!r} is not a whole number") from None
