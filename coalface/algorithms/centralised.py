"""Centralised: everybody's faces in one pair of hands. The upper end of every report, and how servers pre-train.

keeps   nothing
sends   EVERY IMAGE, before the first round: this is what federated methods exist to avoid

A round is one pass over the pooled faces. With a backbone that already knows faces it is "fine-tuned central".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from coalface import wire
from coalface.algorithms.fedavg import PrivateHead
from coalface.data.faceset import FaceSet
from coalface.data.population import ClientFaces, Population
from coalface.method import Types
from coalface.wire import Revealed, sends


@dataclass(frozen=True)
class Collected(wire.Upload):
    weight = None
    faces: Revealed[Tensor] = sends("EVERY IMAGE of every client, before the first round")
    people: Revealed[Tensor] = sends("which of the client's people each image shows, by number")


@dataclass(frozen=True)
class Centralised(PrivateHead):
    """A federation of one client that holds all faces: averaging one update is that update."""

    types: ClassVar[Types] = replace(PrivateHead.types, collected=Collected)

    def clients(self, population: Population) -> Population:
        return population.pooled()

    def collect(self, faces: ClientFaces) -> Collected:
        return Collected(faces.images.cpu(), faces.labels.cpu())

    def expected_collection(self, images: int, size: int) -> Collected:
        return Collected(torch.empty(images, 3, size, size, dtype=torch.uint8), torch.empty(images, dtype=torch.int64))

    def assembled(self, collected: Sequence[Collected]) -> Population:
        counts: list[Tensor] = []
        for given in collected:
            steps = given.people.diff()
            if given.people[:1].tolist() != [0] or bool(((steps != 0) & (steps != 1)).any()):
                raise wire.Refused("people must be numbered from 0, each with an image, in rising order")
            counts.append(torch.bincount(given.people))
        people = torch.arange(sum(map(len, counts))).split([len(held) for held in counts])
        clients = tuple(tuple(held.tolist()) for held in people)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(counts).cumsum(0)])
        return Population(FaceSet(torch.cat([given.faces for given in collected]), offsets), clients)
