"""Fused: each data centre publishes its own detector once, and users average what the detectors say.

keeps   recordings
sends   its whole detector   REVEALED to the server and to every user
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from coalface import wire
from coalface.algorithms.detector_only import Broadcast
from coalface.algorithms.fedpad import Trained, live_or_attack
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation
from coalface.received import Received
from coalface.wire import Revealed, sends


@dataclass(frozen=True)
class Server:
    start: Weights
    detectors: dict[str, Weights]  # centre -> what it published


@dataclass(frozen=True)
class Upload(wire.Upload):
    weight = None
    detector: Revealed[Weights] = sends("the centre's WHOLE DETECTOR, which users run")


@dataclass(frozen=True)
class Fused(Method):
    """Every centre's own detector, side by side: a user's score is the mean of their probabilities.

    One round is all it needs, with as many local epochs as training takes. In a further one, centres go on with theirs.
    """

    world = "recordings"
    network = "resnet18"
    normalisation: ClassVar[SharedNormalisation] = "average"
    common = None
    types: ClassVar[Types] = Types(Server, Broadcast, Upload)

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        return Server(weights, {})

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.detectors.get(str(client), server.start))

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(broadcast.detector)

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(Trained(broadcast.detector))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        return live_or_attack(net, trained.detector, batch)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(trained.detector)

    def server_round(self, server: Server, received: Received) -> Server:
        published = {str(client): detector for client, detector in received.revealed("detector").items()}
        known = server.detectors | published
        return Server(server.start, {client: known[client] for client in sorted(known, key=int)})

    def embedder(self, server: Server, private: None = None) -> Weights:
        raise TypeError("fused has a detector of each centre and none for all: ask for its ensemble")

    def ensemble(self, server: Server, private: None = None) -> list[Weights]:
        return list(server.detectors.values()) or [server.start]
