"""Recordings of people, and of attacks, in front of a camera: what attack detection trains and tests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

ATTACKS = ("live", "print", "cut", "display", "replay", "unknown")  # the last: nobody says which kind
DEPTH = 32  # pixels on a side of a depth map


@dataclass(frozen=True)
class Recordings:
    """Frames of presentations to a camera: of one domain (one data centre), or of several."""

    images: Tensor  # uint8 [n, 3, H, W], RGB
    attack: Tensor  # int64 [n]: 0 is live, else an index into ATTACKS
    depth: Tensor  # uint8 [n, 32, 32]: 255 nearest; all 0 for attacks
    video: Tensor  # int64 [n]: frames of one recording share a number
    subject: Tensor  # int64 [n]

    def __post_init__(self) -> None:
        n = len(self.images)
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError(f"images are uint8 [n, 3, H, W], not {self.images.dtype} {list(self.images.shape)}")
        if self.depth.dtype != torch.uint8 or self.depth.shape != (n, DEPTH, DEPTH):
            raise ValueError(f"depth is uint8 [{n}, {DEPTH}, {DEPTH}], not {self.depth.dtype} {list(self.depth.shape)}")
        for name in ("attack", "video", "subject"):
            column: Tensor = getattr(self, name)
            if column.dtype != torch.int64 or column.shape != (n,):
                raise ValueError(f"{name} is int64 [{n}], not {column.dtype} {list(column.shape)}")
        if n and not 0 <= int(self.attack.min()) <= int(self.attack.max()) < len(ATTACKS):
            raise ValueError(f"attack is 0 … {len(ATTACKS) - 1}, not {int(self.attack.min())} … {self.attack.max()}")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def live(self) -> Tensor:
        """Which frames show a live person, bool [n]."""
        return self.attack == 0

    @property
    def size(self) -> int:
        """Image height (and width) in pixels."""
        return int(self.images.shape[-1])

    def select(self, rows: Tensor) -> Recordings:
        """These frames: ``rows`` are numbers of frames, or a bool for each."""
        rows = rows.to(self.images.device)
        return Recordings(*(getattr(self, f.name)[rows] for f in fields(self)))

    def to(self, device: torch.device | str) -> Recordings:
        """The same frames on this device."""
        return Recordings(*(getattr(self, f.name).to(device) for f in fields(self)))


def join(several: Sequence[Recordings]) -> Recordings:
    """All frames, in order. Parts share no recording and nobody: each part's numbers are moved past those before it."""
    if not several:
        raise ValueError("nothing to join: give at least one Recordings")
    sizes = {part.size for part in several}
    if len(sizes) > 1:
        raise ValueError(f"images of different sizes cannot be joined: {sorted(sizes)} pixels")
    videos = _apart([part.video for part in several])
    subjects = _apart([part.subject for part in several])
    return Recordings(
        torch.cat([part.images for part in several]),
        torch.cat([part.attack for part in several]),
        torch.cat([part.depth for part in several]),
        torch.cat(videos),
        torch.cat(subjects),
    )


def hold_out(recordings: Recordings, share: float, seed: int) -> tuple[Recordings, Recordings]:
    """Recordings without, and of, this share of the subjects (rounded, at least one on either side)."""
    people: Tensor = recordings.subject.unique()
    if len(people) < 2 or not 0 < share < 1:
        raise ValueError(f"cannot hold out a share of {share} of {len(people)} subjects")
    held = min(max(1, round(share * len(people))), len(people) - 1)
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed)).to(people.device)
    away = torch.isin(recordings.subject, people[order[:held]])
    return recordings.select(~away), recordings.select(away)


def _apart(columns: list[Tensor]) -> list[Tensor]:
    """Each column numbered anew from 0 in rising order of its numbers, then moved past the ones before it."""
    moved, taken = [], 0
    for column in columns:
        numbers, place = column.unique(return_inverse=True)
        moved.append(place + taken)
        taken += len(numbers)
    return moved
