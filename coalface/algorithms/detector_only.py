"""The contract of federated attack detection: a detector goes out, its change comes back summed, and nothing else.

Every centre counts alike, however many recordings it holds, and batch-norm statistics are averaged like weights.
Methods that differ only in what a centre does at home build on this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from coalface import wire
from coalface.data.population import ClientFaces, Population
from coalface.method import Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, change, moved
from coalface.received import Received
from coalface.wire import Summed, sends


@dataclass(frozen=True)
class Server:
    detector: Weights


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    detector: Weights = sends("the current detector")


@dataclass(frozen=True)
class Upload(wire.Upload):
    weight = None  # every centre counts alike
    detector: Summed[Weights] = sends("change of the detector and of its batch-norm statistics")


@dataclass(frozen=True)
class DetectorOnly(Method):
    """What a centre trains must have a field ``detector``; the rest of it stays."""

    world = "recordings"
    network = "resnet18"
    normalisation: ClassVar[SharedNormalisation] = "average"
    common = ("detector",)
    types: ClassVar[Types] = Types(Server, Broadcast, Upload)

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        return Server(weights)

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.detector)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(broadcast.detector)

    def upload(self, broadcast: Broadcast, trained: Any, faces: ClientFaces) -> Upload:
        return Upload(change(broadcast.detector, trained.detector, self.normalisation))

    def server_round(self, server: Server, received: Received) -> Server:
        return Server(moved(server.detector, received.mean("detector")))

    def embedder(self, server: Server, private: Any = None) -> Weights:
        return server.detector
