"""Identities dealt out to clients: who holds which faces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coalface.data.faceset import FaceSet, Numbers
from coalface.data.public import Public
from coalface.transfer import sent


class ClientFaces:
    """What one client holds. Labels are its own, 0 … K−1; ``classes`` places them in the federation's label space.

    Images are gathered when they are first asked for: an engine that gathers those of many clients in one go, by their
    ``rows`` in the shared set, never asks, and a step that takes a few of many reads no others.
    """

    def __init__(
        self,
        images: Tensor | Callable[[], Tensor],
        labels: Tensor,
        classes: Tensor,
        rows: Tensor | None = None,
        public: Public | None = None,
        depth: Tensor | None = None,
        among: Population | None = None,
    ) -> None:
        """Images uint8 [n, 3, H, W], labels int64 [n], classes int64 [K], rows int64 [n], depth uint8 [n, h, w].

        ``public`` is what every client may hold beside its own; ``among`` has the shared set.
        """
        self._images = images
        self._labels = labels
        self._classes = classes
        self.rows = rows
        self.public = public or Public()
        self.depth = depth  # where the images come with one
        self._among = among

    def __repr__(self) -> str:
        return f"ClientFaces({len(self)} images, {len(self._classes)} identities)"

    def __len__(self) -> int:
        return self._labels.shape[0]  # quicker than its len, and asked for often

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process go the client's own images, and no way to those of others."""
        return ClientFaces, (self.images, self._labels, self._classes, None, self.public, self.depth)

    @property
    def identities(self) -> int:
        """How many people the client holds."""
        return len(self._classes)

    @property
    def host_labels(self) -> Tensor:
        """The labels, wherever the images are, without asking for an image."""
        return self._labels

    @cached_property
    def images(self) -> Tensor:
        return self._images if isinstance(self._images, Tensor) else self._images()

    @cached_property
    def labels(self) -> Tensor:
        """Beside the images."""
        return self._labels.to(self._device)

    @cached_property
    def classes(self) -> Tensor:
        """Beside the images."""
        return self._classes.to(self._device)

    @property
    def _device(self) -> torch.device:
        return self.images.device if self._among is None else self._among.where

    def gather(self, rows: Tensor) -> Tensor:
        """Images of these rows, [m, 3, H, W]."""
        if self._among is not None and self.rows is not None and "images" not in self.__dict__:
            return self._among.fetched(self.rows[rows.cpu()])
        return self.images[sent(rows, self.images.device)]


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
    device: torch.device | None = None  # where clients compute; None: where the faces are
    public: Public = field(default=Public(), compare=False)
    # In numpy, which gives a number or two sooner than torch does: a round asks about each of its clients.
    _first_class: Numbers = field(init=False, compare=False)  # [clients + 1]
    _identity: Numbers = field(init=False, compare=False)  # [classes]
    _at_most: Numbers | None = field(init=False, compare=False)  # [classes]

    def __post_init__(self) -> None:
        held = _numbers([len(identities) for identities in self.clients])
        first_class = np.concatenate([[0], held.cumsum()])
        classes = int(first_class[-1])
        identity = _numbers(chain.from_iterable(self.clients), count=classes)
        outside = identity[(identity < 0) | (identity >= len(self.faces))]
        if len(outside):
            raise ValueError(f"identity {int(outside[0])} is not among the {len(self.faces)} of this face set")
        object.__setattr__(self, "_first_class", first_class)
        object.__setattr__(self, "_identity", identity)
        object.__setattr__(self, "_at_most", self._caps(held, classes))

    def _caps(self, held: Numbers, classes: int) -> Numbers | None:
        if self.images_each is not None and self.images_of_class is not None:
            raise ValueError("give images_each (by client) or images_of_class (by class), not both")
        if self.images_each is not None:
            return _checked_caps("images_each", self.images_each, len(self), "client").repeat(held)
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
        depth = self.faces.depth
        here = None if depth is None else self.on_device(depth[rows.to(depth.device)])
        classes = torch.arange(mine.start, mine.stop)
        return ClientFaces(lambda: self._copied(rows), labels, classes, rows, self.public, here, self)

    def _copied(self, rows: Tensor) -> Tensor:
        images = self.faces.gather(rows)
        # A view would take everyone's faces along when it is pickled: a client's memory holds its own faces only.
        shared = images.untyped_storage().nbytes() > images.nbytes
        return self.on_device(images.clone() if shared else images)

    @property
    def where(self) -> torch.device:
        """Where clients compute."""
        return self.device or self.faces.images.device

    def fetched(self, rows: Tensor) -> Tensor:
        """Images of these rows of the shared set, where clients compute."""
        return self.on_device(self.faces.images[sent(rows, self.faces.images.device)])

    def on_device(self, images: Tensor) -> Tensor:
        """Images where clients compute."""
        return images if self.device is None else sent(images, self.device)

    def first_class(self, client: int) -> int:
        """Where this client's identities begin in the federation's label space."""
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is not among the {len(self)} of this population")
        return int(self._first_class[client])

    def counts(self) -> Tensor:
        """Images of each client, int64 [clients], found without touching an image."""
        summed = torch.cat([torch.zeros(1, dtype=torch.int64), self._of_class().cumsum(0)])
        return summed[torch.from_numpy(self._first_class)].diff()

    def joined(self, others: Population) -> Population:
        """These clients and then others, over the same face set."""
        images = (*self._of_class().tolist(), *others._of_class().tolist())
        return replace(self, clients=(*self.clients, *others.clients), images_each=None, images_of_class=images)

    def _of_class(self) -> Tensor:
        """Images of each class, int64 [classes]."""
        of_class = self.faces.counts()[torch.from_numpy(self._identity)]
        return of_class if self._at_most is None else of_class.minimum(torch.from_numpy(self._at_most))

    def pooled(self) -> Population:
        """The same faces in one pair of hands: what central training would see, with the same class numbers."""
        times = np.bincount(self._identity, minlength=1)
        if times.max() > 1:
            raise ValueError(
                f"identity {int(times.argmax())} is held {int(times.max())} times: it would be two classes"
            )
        caps = None if self._at_most is None else tuple(self._at_most.tolist())
        only = (tuple(self._identity.tolist()),)
        return Population(self.faces, only, images_of_class=caps, device=self.device, public=self.public)


def _checked_caps(name: str, caps: Sequence[int], expected: int, per: str) -> Numbers:
    if len(caps) != expected:
        raise ValueError(f"{name} has {len(caps)} numbers where there are {expected}: one for each {per}")
    wrong = [cap for cap in caps if cap < 1]
    if wrong:
        raise ValueError(f"{name} must be at least 1 everywhere, not {wrong[0]}")
    return _numbers(caps)


def _numbers(numbers: Iterable[int], count: int = -1) -> Numbers:
    # numpy reads a hundred thousand Python integers several times faster than torch.tensor does.
    return np.fromiter(numbers, dtype=np.int64, count=count)
