"""What is public before the first round, so that every client may hold it: faces, and what was learnt from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from coalface.data.faceset import FaceView
from coalface.transfer import sent

if TYPE_CHECKING:
    from coalface.data.population import ClientFaces
    from coalface.models.net import Weights


class Faces(Protocol):
    """What local training draws its batches from."""

    @property
    def labels(self) -> Tensor:
        """Labels [n], where training happens."""

    @property
    def host_labels(self) -> Tensor:
        """The same on the host."""

    @property
    def depth(self) -> Tensor | None:
        """Depth maps uint8 [n, h, w], where the images come with them."""

    def __len__(self) -> int:
        """How many images."""

    def gather(self, rows: Tensor) -> Tensor:
        """Images of these rows, uint8 [m, 3, H, W]."""


@dataclass(frozen=True, eq=False)
class Public:
    """Whatever of it there is; a method that needs a part that is missing says so."""

    faces: FaceView | None = None  # of the people that the server pre-trained on
    head: Tensor | None = None  # [K, d]: the class embeddings of these people that pre-training ended with
    backbone: Weights | None = None  # the weights that the server sends out first


@dataclass(frozen=True, eq=False)
class Together:
    """A client's own faces and some public ones, as one set to train on; own labels first, then the public ones."""

    own: ClientFaces
    public: FaceView

    depth: None = None  # public faces come without

    @cached_property
    def host_labels(self) -> Tensor:
        """Own labels, then public ones, counted on from the client's own classes."""
        return torch.cat([self.own.host_labels, self.own.identities + self.public.labels.cpu()])

    @cached_property
    def labels(self) -> Tensor:
        """The same where the images are."""
        return self.host_labels.to(self.own.labels.device)

    def __len__(self) -> int:
        return len(self.own) + len(self.public)

    def gather(self, rows: Tensor) -> Tensor:
        """Images of these rows; public ones are read only now, so that there may be more of them than memory."""
        mine = rows < len(self.own)
        own = self.own.gather(rows[mine])
        public = self.public.gather(rows[~mine] - len(self.own))
        # Places and images go to the device without waiting for it: clients of one launch are gathered one by one.
        order = torch.cat([mine.nonzero(), (~mine).nonzero()]).flatten().argsort()
        return torch.cat([own, sent(public, own.device)])[sent(order, own.device)]
