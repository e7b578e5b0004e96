"""Centralised: everybody's faces in one pair of hands. The upper end of every report, and how servers pre-train.

keeps   nothing
sends   EVERY IMAGE, before the first round: this is what federated methods exist to avoid

A round is one pass over the pooled faces. With a backbone that already knows faces it is "fine-tuned central".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from coalface import wire
from coalface.algorithms.fedavg import PrivateHead
from coalface.data.population import Population
from coalface.method import Types
from coalface.wire import Revealed, sends


@dataclass(frozen=True)
class Collected(wire.Upload):
    weight = None
    faces: Revealed[Tensor] = sends("EVERY IMAGE of every client, before the first round")


@dataclass(frozen=True)
class Centralised(PrivateHead):
    """A federation of one client that holds all faces: averaging one update is that update."""

    types: ClassVar[Types] = replace(PrivateHead.types, collected=Collected)

    def clients(self, population: Population) -> Population:
        return population.pooled()
