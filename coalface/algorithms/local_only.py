"""Local only: every client trains alone and sends nothing. The lower end that every report shows.

keeps   images, its own model
sends   nothing but the number of its images
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.algorithms.backbone_only import Broadcast, Server
from coalface.algorithms.fedavg import mean_feature
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.objectives.margin_softmax import margin_softmax
from coalface.objectives.positive_hinge import positive_hinge
from coalface.received import Received
from coalface.wire import Count, sends


@dataclass(frozen=True)
class Upload(wire.Upload):
    weight = None
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Private(wire.Private):
    backbone: Weights
    head: Tensor  # [K, d]


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    head: Tensor


@dataclass(frozen=True)
class LocalOnly(Method):
    """Softmax over the client's own identities; with one identity the positive hinge, as a softmax of one is mute."""

    scale: float = 16.0
    margin: float = 0.0
    target: float = 0.9  # of the hinge
    batch_statistics: bool = False

    generic: ClassVar[bool] = False
    personal: ClassVar[bool] = True
    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    common = None

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        return Server(weights)

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        if private is not None:
            return Local(Trained(private.backbone, private.head))
        if faces.identities == 1:
            head = mean_feature(net, broadcast.backbone, faces.images)[None]
        else:
            head = F.normalize(torch.randn(faces.identities, net.embedding, generator=generator), dim=1)
        return Local(Trained(broadcast.backbone, head.to(faces.labels.device)))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        several = self.batch_statistics and len(batch.labels) > 1  # one image has no statistics
        features = net(trained.backbone, batch.images, batch_statistics=several)
        if len(trained.head) == 1:
            return {"loss": positive_hinge(features, trained.head[0], self.target)[0]}
        return {"loss": margin_softmax(features, trained.head, batch.labels, self.scale, self.margin)}

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.backbone, trained.head)

    def server_round(self, server: Server, received: Received) -> Server:
        return server

    def embedder(self, server: Server, private: Any = None) -> Weights:
        return server.backbone if private is None else private.backbone
