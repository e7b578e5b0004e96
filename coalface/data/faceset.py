"""A set of face images, decoded once and shared by every client, grouped by identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coalface.transfer import sent

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class FaceSet:
    """Images of identity ``i`` are ``images[offsets[i]:offsets[i + 1]]``; identities are numbered, never named.

    ``images`` is uint8 and may be memory-mapped or live on a GPU: nobody copies more of it than one client needs.
    """

    images: Tensor  # uint8 [N, 3, H, W]
    offsets: Tensor  # int64 [I + 1], on the CPU
    depth: Tensor | None = None  # uint8 [N, h, w], where the images come with one

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError(f"images must be uint8 [N, 3, H, W], not {self.images.dtype} {list(self.images.shape)}")
        ends_agree = self.offsets[0] == 0 and self.offsets[-1] == len(self.images)
        if not ends_agree or bool((self.offsets.diff() < 0).any()):
            raise ValueError("offsets must rise from 0 to the number of images")
        if self.depth is not None and len(self.depth) != len(self.images):
            raise ValueError(f"{len(self.depth)} depth maps for {len(self.images)} images: each image has its own")

    def __repr__(self) -> str:
        return f"FaceSet({len(self)} identities, {len(self.images)} images of {self.size}×{self.size})"

    def __len__(self) -> int:
        """How many identities."""
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """Image height (and width) in pixels."""
        return int(self.images.shape[-1])

    def counts(self) -> Tensor:
        """Images of each identity, [I]."""
        return self.offsets.diff()

    def rows(
        self, identities: Sequence[int] | Numbers | Tensor, at_most: int | Numbers | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Image rows of these identities, and for each row the position of its identity in the argument.

        ``at_most`` keeps the first so many images of each identity; numbers [K] say it for each of them in turn.
        """
        if len(identities) == 1:  # a phone with one person: called often, and it need not cost much
            cap = at_most if at_most is None or isinstance(at_most, int) else int(at_most.item())
            return self._rows_of_one(int(identities[0]), cap)
        chosen = torch.as_tensor(identities, dtype=torch.int64)
        outside = chosen[(chosen < 0) | (chosen >= len(self))]
        if len(outside):
            raise IndexError(f"identity {int(outside[0])} is not among the {len(self)} of this set")
        first = self.offsets[chosen]
        counts = self.offsets[chosen + 1] - first
        if at_most is not None:
            counts = counts.minimum(torch.as_tensor(at_most, dtype=torch.int64))
        labels = torch.repeat_interleave(counts)
        within = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels]
        return first[labels] + within, labels

    def _rows_of_one(self, identity: int, at_most: int | None) -> tuple[Tensor, Tensor]:
        if not 0 <= identity < len(self):
            raise IndexError(f"identity {identity} is not among the {len(self)} of this set")
        first, end = self.offsets[identity : identity + 2].tolist()
        count = end - first if at_most is None else min(at_most, end - first)
        return torch.arange(first, first + count), torch.zeros(count, dtype=torch.int64)

    def subset(self, identities: Sequence[int]) -> FaceSet:
        """These identities, numbered anew in the order given: a view where they are neighbours, else a copy."""
        rows, labels = self.rows(identities)
        counts = torch.bincount(labels, minlength=len(identities))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        depth = None if self.depth is None else self.depth[rows.to(self.depth.device)]
        return FaceSet(self.gather(rows), offsets, depth)

    def gather(self, rows: Tensor) -> Tensor:
        """Images of these rows, [n, 3, H, W], where the set lives: a view of the set if the rows are consecutive."""
        if len(rows) and bool((rows.diff() == 1).all()):
            return self.images[int(rows[0]) : int(rows[-1]) + 1]
        return self.images[sent(rows, self.images.device)]


@dataclass(frozen=True, repr=False, eq=False)
class FaceView:
    """Some rows of a FaceSet with labels of their own, gathered when they are asked for: no image is copied before."""

    faces: FaceSet
    rows: Tensor  # int64 [n]
    labels: Tensor  # int64 [n], 0 … classes − 1
    classes: int

    @classmethod
    def of(cls, faces: FaceSet, identities: Sequence[int], at_most: int | None = None) -> FaceView:
        """The first images of these identities, which are classes 0, 1, … in the order given."""
        return cls(faces, *faces.rows(identities, at_most), len(identities))

    def __repr__(self) -> str:
        return f"FaceView({self.classes} identities, {len(self)} images)"

    def __len__(self) -> int:
        """How many images."""
        return len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Saved or sent, a view takes its own images along and nobody else's."""
        own = FaceSet(self.faces.gather(self.rows).clone(), torch.tensor([0, len(self)]))
        return FaceView, (own, torch.arange(len(self)), self.labels, self.classes)

    def gather(self, places: Tensor) -> Tensor:
        """Images at these places of the view, [m, 3, H, W], where the set lives."""
        return self.faces.gather(self.rows[places.cpu()])

    def only(self, places: Tensor) -> FaceView:
        """The view of these places alone, with the same classes."""
        return FaceView(self.faces, self.rows[places.cpu()], self.labels[places.cpu()], self.classes)

    def blocks(self, images: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images in turn, so many at a time, with their labels: memory does not grow with the view."""
        for places in torch.arange(len(self)).split(images):
            yield self.gather(places), self.labels[places]
