"""FedAvg, three different things that share a name. McMahan et al. 2017.  docs/algorithms/fedavg.md

shared-head     keeps   images
                sends   change of the backbone          summed
                        change of the class embeddings  summed; and every client is sent all of them
private-head    keeps   images, the classifier of its own identities
                sends   change of the backbone          summed
positive-only   keeps   images, its one class embedding
                sends   change of the backbone          summed
                nothing holds identities apart: this is the collapse that the one-identity methods exist to prevent

With one identity a private head has one class: its softmax is constant, and nothing is learnt.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.algorithms.backbone_only import BackboneOnly, Broadcast
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, at_client, by_batch, change, moved, travelling
from coalface.objectives.margin_softmax import margin_softmax
from coalface.objectives.positive_hinge import positive_hinge
from coalface.received import Received
from coalface.wire import Count, Summed, sends

# --- shared head ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedHead(Method):
    """One classifier over everybody's identities, averaged like the rest."""

    scale: float = 16.0
    margin: float = 0.0
    normalisation: SharedNormalisation = "frozen"

    @dataclass(frozen=True)
    class Server:
        backbone: Weights
        head: Tensor  # [C, d]

    @dataclass(frozen=True)
    class Broadcast(wire.Broadcast):
        backbone: Weights = sends("the current backbone")
        head: Tensor = sends("the class embeddings of ALL identities of the federation")

    @dataclass(frozen=True)
    class Upload(wire.Upload):
        backbone: Summed[Weights] = sends("change of the backbone")
        head: Summed[Tensor] = sends("change of all class embeddings", apart="a row is moved by its own client")
        images: Count = sends("how many images the client holds")

    @dataclass(frozen=True)
    class Trained:
        backbone: Weights
        head: Tensor

    types: ClassVar[Types] = Types(Server, Broadcast, Upload)
    common = ("backbone", "head")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        head = F.normalize(torch.randn(population.classes, net.embedding, generator=generator), dim=1)
        return self.Server(weights, head.to(next(iter(weights.parameters.values())).device))

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return self.Broadcast(server.backbone, server.head)

    def expected(self, broadcast: Broadcast) -> Upload:
        return self.Upload(travelling(broadcast.backbone, self.normalisation), broadcast.head, images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(self.Trained(broadcast.backbone, broadcast.head), fixed=faces.classes)

    def objective(self, net: Net, trained: Trained, fixed: Tensor, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        return {"loss": margin_softmax(features, trained.head, fixed[batch.labels], self.scale, self.margin)}

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        backbone = change(broadcast.backbone, trained.backbone, self.normalisation)
        return self.Upload(backbone, trained.head - broadcast.head, images=len(faces))

    def server_round(self, server: Server, received: Received) -> Server:
        return self.Server(moved(server.backbone, received.mean("backbone")), server.head + received.mean("head"))

    def embedder(self, server: Server, private: None = None) -> Weights:
        return server.backbone


# --- private head ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateHead(BackboneOnly):
    """Each client keeps the classifier of its own identities (FedPav; FedFR's baseline)."""

    scale: float = 16.0
    margin: float = 0.0

    @dataclass(frozen=True)
    class Private(wire.Private):
        head: Tensor  # [K, d]
        statistics: dict[str, Tensor]  # of batch norm, where normalisation is local

    @dataclass(frozen=True)
    class Trained:
        backbone: Weights
        head: Tensor

    types: ClassVar[Types] = replace(BackboneOnly.types, private=Private)

    def check(self, population: Population) -> None:
        super().check(population)
        taking_part = self.clients(population)
        if taking_part.classes == len(taking_part):
            warnings.warn(
                "each client holds one person, and a classifier over one person is always right: nothing will be "
                "learnt. Set data.identities_each (of real clients: identities in clients.toml) to 2 or more, or "
                "choose fedavg/positive-only",
                stacklevel=2,
            )

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        if private is None:
            head = F.normalize(torch.randn(faces.identities, net.embedding, generator=generator), dim=1)
            return Local(self.Trained(broadcast.backbone, head.to(faces.labels.device)))
        return Local(self.Trained(at_client(broadcast.backbone, private.statistics), private.head))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        return {"loss": margin_softmax(features, trained.head, batch.labels, self.scale, self.margin)}

    def keep(self, trained: Trained) -> Private:
        return self.Private(trained.head, trained.backbone.statistics if self.normalisation == "local" else {})


# --- positive only --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PositiveOnly(BackboneOnly):
    """One identity per client, pulled to its class embedding, and no server step to hold identities apart."""

    target: float = 0.9  # the hinge is dead once the cosine is this high
    normalisation: SharedNormalisation = "frozen"

    one_identity: ClassVar[bool] = True

    @dataclass(frozen=True)
    class Private(wire.Private):
        class_embedding: Tensor  # [d]

    @dataclass(frozen=True)
    class Trained:
        backbone: Weights
        class_embedding: Tensor

    types: ClassVar[Types] = replace(BackboneOnly.types, private=Private)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        embedding = mean_feature(net, broadcast.backbone, faces.images) if private is None else private.class_embedding
        return Local(self.Trained(broadcast.backbone, embedding))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        loss, dead = positive_hinge(features, trained.class_embedding, self.target)
        return {"loss": loss, "dead_hinge": dead}

    def keep(self, trained: Trained) -> Private:
        return self.Private(F.normalize(trained.class_embedding, dim=0))


def mean_feature(net: Net, backbone: Weights, images: Tensor) -> Tensor:
    """FedFace Eq. 6: the mean of the normalised features, normalised, [d]."""
    with torch.no_grad():
        return F.normalize(F.normalize(net(backbone, images), dim=1).mean(dim=0), dim=0)
