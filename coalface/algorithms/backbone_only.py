"""The plainest contract: the backbone goes out, its change comes back summed, and nothing else travels.

Methods that differ only in what a client does at home build on this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from coalface import wire
from coalface.data.population import ClientFaces, Population
from coalface.method import Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import Normalisation, change, moved, travelling
from coalface.received import Received
from coalface.wire import Count, Summed, sends


@dataclass(frozen=True)
class Server:
    backbone: Weights


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends("change of the backbone")
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class BackboneOnly(Method):
    """What a client trains must have a field ``backbone``; the rest of it stays."""

    normalisation: Normalisation = "frozen"

    types: ClassVar[Types] = Types(Server, Broadcast, Upload)

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        return Server(weights)

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), images=0)

    def upload(self, broadcast: Broadcast, trained: Any, faces: ClientFaces) -> Upload:
        return Upload(change(broadcast.backbone, trained.backbone, self.normalisation), images=len(faces))

    def server_round(self, server: Server, received: Received) -> Server:
        return Server(moved(server.backbone, received.mean("backbone")))

    def embedder(self, server: Server, private: Any = None) -> Weights:
        return server.backbone
