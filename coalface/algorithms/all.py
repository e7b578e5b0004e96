"""All: the recordings of every centre in one place. What FedPAD and FedGPAD would be without their reason to exist.

keeps   nothing
sends   EVERY RECORDING, before the first round
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from coalface import wire
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.fedpad import FedPAD
from coalface.data.population import Population
from coalface.method import Types
from coalface.wire import Revealed, sends


@dataclass(frozen=True)
class Collected(wire.Upload):
    weight = None
    recordings: Revealed[Tensor] = sends("EVERY RECORDING of every centre, before the first round")


@dataclass(frozen=True)
class AllCentres(FedPAD):
    """FedPAD with a single centre that holds everybody's recordings: the mean of one update is that update."""

    types: ClassVar[Types] = replace(FedPAD.types, collected=Collected)

    def clients(self, population: Population) -> Population:
        return population.pooled()


@dataclass(frozen=True)
class AllFedGPAD(FedGPAD):
    """FedGPAD with a single centre that holds everybody's recordings: FedGPAD's own upper end, like with like."""

    types: ClassVar[Types] = replace(FedGPAD.types, collected=Collected)

    def clients(self, population: Population) -> Population:
        return population.pooled()
