"""Single: each data centre trains a detector alone, and users take one centre's.

keeps   recordings, its own detector until it hands it to users
sends   nothing to the server but how many frames it holds
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from coalface import wire
from coalface.algorithms.detector_only import Broadcast, Server
from coalface.algorithms.fedpad import Trained, live_or_attack
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation
from coalface.received import Received
from coalface.wire import Count, sends


@dataclass(frozen=True)
class Upload(wire.Upload):
    weight = None
    images: Count = sends("how many frames the centre holds")


@dataclass(frozen=True)
class Private(wire.Private):
    detector: Weights


@dataclass(frozen=True)
class Single(Method):
    """One centre's own detector, trained on its own recordings; evaluated centre by centre."""

    world = "recordings"
    network = "resnet18"
    generic: ClassVar[bool] = False
    personal: ClassVar[bool] = True
    normalisation: ClassVar[SharedNormalisation] = "average"
    common = None
    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        return Server(weights)

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.detector)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(Trained(broadcast.detector if private is None else private.detector))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        return live_or_attack(net, trained.detector, batch)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.detector)

    def server_round(self, server: Server, received: Received) -> Server:
        return server

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.detector if private is None else private.detector
