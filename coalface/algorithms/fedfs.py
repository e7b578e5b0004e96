"""FedFS: a personal model beside the global one, taught by a frozen public model. Kim, Choi, Kwak, BMVC 2024.
Read from the poster alone; docs/algorithms/fedfs.md lists every choice.

keeps   images, its personal model; the public pre-trained model is on every client and stays there
sends   change of the global backbone, and of its projection   summed

Per image x: r = φ(x, w), q = φ(x, θ), v = ξ(x, ψ) of the personal, the global and the frozen public model; z = r + q.
Images of one person pull each other's z towards v, the more alike the more; and w and θ are held together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, by_batch, change, moved, travelling
from coalface.objectives.intra_subject import intra_subject, intra_subject_as_printed, same_person, soft_labels
from coalface.received import Received
from coalface.wire import Count, Summed, sends


@dataclass(frozen=True)
class Server:
    backbone: Weights  # θ
    projection: Tensor  # [d, d]; [0, d] where the second output is the embedding itself


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    projection: Tensor = sends("the linear layer behind it, for regularisation only")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends("change of the backbone")
    projection: Summed[Tensor] = sends("change of the linear layer behind it")
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Private(wire.Private):
    backbone: Weights  # w: the client's personal model
    projection: Tensor


@dataclass(frozen=True)
class Trained:
    backbone: Weights  # θ
    projection: Tensor
    personal: Weights  # w
    personal_projection: Tensor


@dataclass(frozen=True)
class FedFS(Method):
    """A personal model and the global one, taught together by how alike one's own photographs are."""

    mix: float = 0.7  # λ: of the intra-subject loss; the rest regularises
    gamma: float = 2.0  # γ: an image counts so much more for itself
    sharpen: float = 2.0  # T of the soft labels
    top: int = 0  # so many of the most similar images teach; 0: those at or above the mean similarity
    scale: float = 1.0  # of the cosines that make soft labels; 0 takes the raw dot products of the poster
    temperature: float = 1.0  # of the cosines that learn
    loss: Literal["sound", "printed"] = "sound"
    second: Literal["projection", "embedding"] = "projection"  # the second output of the two models
    normalisation: SharedNormalisation = "frozen"

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    personal: ClassVar[bool] = True
    holds_public: ClassVar[bool] = True
    common = ("backbone", "projection")

    def __post_init__(self) -> None:
        if not 0 <= self.mix <= 1 or self.temperature <= 0 or min(self.top, self.scale) < 0:
            raise ValueError("mix is a share, temperature is above 0, and top and scale are at least 0")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        rows = net.embedding if self.second == "projection" else 0
        like = next(iter(weights.parameters.values()))
        return Server(weights, torch.eye(rows, net.embedding, dtype=like.dtype, device=like.device))

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone, server.projection)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), broadcast.projection, images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        psi = faces.public.backbone
        if psi is None:
            raise ValueError("fedfs needs the public pre-trained model on every client: give its population one")
        own = Private(broadcast.backbone, broadcast.projection) if private is None else private
        return Local(Trained(broadcast.backbone, broadcast.projection, own.backbone, own.projection), fixed=psi)

    def objective(self, net: Net, trained: Trained, fixed: Weights, batch: Batch) -> Losses:
        several = by_batch(self.normalisation, batch.images)
        r = net(trained.personal, batch.images, batch_statistics=several)
        q = net(trained.backbone, batch.images, batch_statistics=several)
        v, z, among = net(fixed, batch.images), r + q, same_person(batch.labels, batch.real)
        if self.loss == "printed":
            taught = intra_subject_as_printed(z, v, among, self.gamma, self.sharpen)
        else:
            taught = intra_subject(z, v, self.alpha(z, v, among), among, self.temperature)
        if self.second == "projection":
            r, q = r @ trained.personal_projection.T, q @ trained.projection.T
        apart = 1 - F.cosine_similarity(r, q, dim=1)
        return {"loss": self.mix * taught + (1 - self.mix) * apart, "intra_subject": taught, "apart": apart}

    def alpha(self, z: Tensor, v: Tensor, among: Tensor) -> Tensor:
        """The soft labels of a batch."""
        if self.scale:
            z, v = self.scale * F.normalize(z, dim=1), F.normalize(v, dim=1)
        return soft_labels(z @ v.T, among, self.gamma, self.sharpen, self.top)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        backbone = change(broadcast.backbone, trained.backbone, self.normalisation)
        return Upload(backbone, trained.projection - broadcast.projection, images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.personal, trained.personal_projection)

    def server_round(self, server: Server, received: Received) -> Server:
        projection = server.projection + received.mean("projection")
        return Server(moved(server.backbone, received.mean("backbone")), projection)

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.backbone if private is None else private.backbone
