"""Identities dealt out to clients: who holds which faces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from coalface.data.faceset import FaceSet


@dataclass(frozen=True)
class ClientFaces:
    """What one client holds. Labels are its own, 0 … K−1; ``classes`` places them in the federation's label space."""

    images: Tensor = field(repr=False)  # uint8 [n, 3, H, W]
    labels: Tensor = field(repr=False)  # int64 [n]
    classes: Tensor  # int64 [K]
    depth: Tensor | None = field(default=None, repr=False)  # uint8 [n, h, w], where the images come with one

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, repr=False)
class Population:
    """Clients over one shared FaceSet. Registering a client costs a tuple; its images are gathered when it is called.

    Class ``c`` of the federation is the c-th identity when the clients are read in order. What ``population[i]`` costs
    depends on that client's images alone: where its classes begin is worked out once, here.
    """

    faces: FaceSet
    clients: tuple[tuple[int, ...], ...]  # client -> its identities
    images_each: tuple[int, ...] | None = None  # client -> at most so many of each identity
    images_of_class: tuple[int, ...] | None = None  # or: class -> at most so many
    _first_class: Tensor = field(init=False, compare=False)  # int64 [clients + 1]
    _identity: Tensor = field(init=False, compare=False)  # int64 [classes]
    _at_most: Tensor | None = field(init=False, compare=False)  # int64 [classes]

    def __post_init__(self) -> None:
        held = _tensor([len(identities) for identities in self.clients])
        first_class = torch.cat([torch.zeros(1, dtype=torch.int64), held.cumsum(0)])
        classes = int(first_class[-1])
        identity = _tensor(chain.from_iterable(self.clients), count=classes)
        outside = identity[(identity < 0) | (identity >= len(self.faces))]
        if len(outside):
            raise ValueError(f"identity {int(outside[0])} is not among the {len(self.faces)} of this face set")
        object.__setattr__(self, "_first_class", first_class)
        object.__setattr__(self, "_identity", identity)
        object.__setattr__(self, "_at_most", self._caps(held, classes))

    def _caps(self, held: Tensor, classes: int) -> Tensor | None:
        if self.images_each is not None and self.images_of_class is not None:
            raise ValueError("give images_each (by client) or images_of_class (by class), not both")
        if self.images_each is not None:
            return _checked_caps("images_each", self.images_each, len(self), "client").repeat_interleave(held)
        if self.images_of_class is not None:
            return _checked_caps("images_of_class", self.images_of_class, classes, "class")
        return None

    def __repr__(self) -> str:
        return f"Population({len(self)} clients, {self.classes} identities)"

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def classes(self) -> int:
        """Identities in the whole federation."""
        return len(self._identity)

    def __getitem__(self, client: int) -> ClientFaces:
        mine = slice(self.first_class(client), int(self._first_class[client + 1]))
        rows, labels = self.faces.rows(self._identity[mine], None if self._at_most is None else self._at_most[mine])
        images = self.faces.gather(rows)
        # A view would take everyone's faces along when it is pickled: a client's memory holds its own faces only.
        shared = images.untyped_storage().nbytes() > images.nbytes
        device = images.device
        return ClientFaces(
            images=images.clone() if shared else images,
            labels=labels.to(device),
            classes=torch.arange(mine.start, mine.stop, device=device),
            depth=None if self.faces.depth is None else self.faces.depth[rows.to(device)],
        )

    def first_class(self, client: int) -> int:
        """Where this client's identities begin in the federation's label space."""
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is not among the {len(self)} of this population")
        return int(self._first_class[client])

    def counts(self) -> Tensor:
        """Images of each client, int64 [clients], found without touching an image."""
        of_class = self.faces.counts()[self._identity]
        if self._at_most is not None:
            of_class = of_class.minimum(self._at_most)
        summed = torch.cat([torch.zeros(1, dtype=torch.int64), of_class.cumsum(0)])
        return summed[self._first_class].diff()

    def pooled(self) -> Population:
        """The same faces in one pair of hands: what central training would see, with the same class numbers."""
        times = torch.bincount(self._identity, minlength=1)
        if int(times.max()) > 1:
            raise ValueError(
                f"identity {int(times.argmax())} is held {int(times.max())} times: it would be two classes"
            )
        caps = None if self._at_most is None else tuple(self._at_most.tolist())
        return Population(self.faces, (tuple(self._identity.tolist()),), images_of_class=caps)


def _checked_caps(name: str, caps: Sequence[int], expected: int, per: str) -> Tensor:
    if len(caps) != expected:
        raise ValueError(f"{name} has {len(caps)} numbers where there are {expected}: one for each {per}")
    wrong = [cap for cap in caps if cap < 1]
    if wrong:
        raise ValueError(f"{name} must be at least 1 everywhere, not {wrong[0]}")
    return _tensor(caps)


def _tensor(numbers: Iterable[int], count: int = -1) -> Tensor:
    # numpy reads a hundred thousand Python integers several times faster than torch.tensor does.
    return torch.from_numpy(np.fromiter(numbers, dtype=np.int64, count=count))
