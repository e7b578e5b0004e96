"""Random targets: class embeddings that are drawn once and never move. The baseline of FedFace's Table 1.
Aggarwal, Zhou, Jain 2021; simplex targets: FedETF, ICCV 2023.  docs/algorithms/random_targets.md

keeps   images; secret: its target too
sends   change of the backbone   summed
        nothing about the target: the server drew it, and it says nothing of the person. But a server that knows all
        targets can tell clients apart inside a sum (docs: Limits); in the form `secret` each client draws its own
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.algorithms import backbone_only
from coalface.algorithms.backbone_only import BackboneOnly
from coalface.algorithms.revealed_embedding import device_of
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, by_batch, change, moved, travelling
from coalface.objectives.positive_hinge import positive_hinge
from coalface.received import Received
from coalface.wire import Count, Summed, sends

Kind = Literal["gaussian", "orthonormal", "simplex"]


@dataclass(frozen=True)
class Server:
    backbone: Weights
    targets: Tensor  # [C, d], unit rows, frozen


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    target: Tensor = sends("the client's own target, a random direction")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends(
        "change of the backbone", apart="a client's part points along its target, which the server drew"
    )
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Trained:
    backbone: Weights


@dataclass(frozen=True)
class RandomTargets(Method):
    """One identity per client, pulled to a direction that the server drew for it and that never moves."""

    kind: Kind = "gaussian"  # the paper's; orthonormal for C ≤ d and simplex for C ≤ d + 1 leave nothing to luck
    target: float = 0.9  # the hinge is dead once the cosine is this high
    normalisation: SharedNormalisation = "frozen"

    types: ClassVar[Types] = Types(Server, Broadcast, Upload)
    one_identity: ClassVar[bool] = True

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        targets = draw_targets(self.kind, len(population), net.embedding, generator)
        return Server(weights, targets.to(device_of(weights)))

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone, server.targets[client])

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(Trained(broadcast.backbone), fixed=broadcast.target)

    def objective(self, net: Net, trained: Trained, fixed: Tensor, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        loss, dead = positive_hinge(features, fixed, self.target)
        return {"loss": loss, "dead_hinge": dead}

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(change(broadcast.backbone, trained.backbone, self.normalisation), images=len(faces))

    def server_round(self, server: Server, received: Received) -> Server:
        return Server(moved(server.backbone, received.mean("backbone")), server.targets)

    def embedder(self, server: Server, private: None = None) -> Weights:
        return server.backbone


@dataclass(frozen=True)
class SecretTargets(BackboneOnly):
    """One identity per client, pulled to a random direction that it drew itself and tells nobody."""

    target: float = 0.9  # the hinge is dead once the cosine is this high
    normalisation: SharedNormalisation = "frozen"

    @dataclass(frozen=True)
    class Private(wire.Private):
        target: Tensor  # [d], of unit length

    @dataclass(frozen=True)
    class Trained:
        backbone: Weights
        target: Tensor  # not trained: along, so that it is kept

    types: ClassVar[Types] = replace(BackboneOnly.types, private=Private)
    one_identity: ClassVar[bool] = True

    def start(
        self,
        net: Net,
        broadcast: backbone_only.Broadcast,
        private: Private | None,
        faces: ClientFaces,
        generator: torch.Generator,
    ) -> Local:
        if private is None:  # nobody compares targets, so they are as they fall
            drawn = draw_targets("gaussian", 1, net.embedding, generator)[0]
            private = self.Private(drawn.to(device_of(broadcast.backbone)))
        return Local(self.Trained(broadcast.backbone, private.target), fixed=private.target)

    def objective(self, net: Net, trained: Trained, fixed: Tensor, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        loss, dead = positive_hinge(features, fixed, self.target)
        return {"loss": loss, "dead_hinge": dead}

    def keep(self, trained: Trained) -> Private:
        return self.Private(trained.target)


def draw_targets(kind: Kind, classes: int, dimensions: int, generator: torch.Generator) -> Tensor:
    """Unit rows [C, d] in random directions: as they fall, at right angles, or as far apart as C directions can be."""
    if kind == "gaussian":
        return F.normalize(torch.randn(classes, dimensions, generator=generator), dim=1)
    most = dimensions if kind == "orthonormal" else dimensions + 1
    if classes > most:
        raise ValueError(
            f"{classes} {kind} targets do not fit into {dimensions} dimensions, which hold {most}: set kind=gaussian"
        )
    if kind == "orthonormal" or classes == 1:
        return _orthonormal(classes, dimensions, generator).float()
    return (_simplex(classes) @ _orthonormal(classes - 1, dimensions, generator)).float()


def _orthonormal(rows: int, dimensions: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(dimensions, rows, generator=generator, dtype=torch.float64)
    rows_RD: Tensor = torch.linalg.qr(drawn).Q.T
    return rows_RD


def _simplex(corners: int) -> Tensor:
    """The corners of a regular simplex around the origin, unit rows [C, C − 1] with cosine −1/(C − 1) (Helmert)."""
    step = torch.arange(1, corners, dtype=torch.float64)
    helmert = torch.ones(corners, corners - 1, dtype=torch.float64).triu()
    helmert[torch.arange(1, corners), torch.arange(corners - 1)] = -step
    return F.normalize(helmert / (step * (step + 1)).sqrt(), dim=1)
