"""FedFR: public faces on every client hold the model in place, and each client grows a model of its own.
Liu et al., AAAI 2022.  docs/algorithms/fedfr.md

keeps   images, the proxies W of its identities, its own feature space (Π, Ω, b), its last local backbone
sends   change of the backbone             summed
        change of the public proxies Φ     summed: about public people only

A client trains on its own images and on those public ones that look like its people (hard negatives). Three losses:
CosFace over own and public proxies; a pull towards the global model and away from the client's last one; and
one-vs-all classifiers of its own identities behind a linear map Π, which leave the shared features alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from coalface import wire
from coalface.algorithms.hard_negatives import class_means, hard_negatives, own_class_means
from coalface.data.faceset import FaceView
from coalface.data.population import ClientFaces, Population
from coalface.data.public import Together
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.head import affine_identity, mapped
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, by_batch, change, moved, travelling
from coalface.objectives.contrastive import contrastive
from coalface.objectives.margin_softmax import margin_softmax
from coalface.objectives.one_vs_all import one_vs_all
from coalface.received import Received
from coalface.wire import Count, Summed, sends


@dataclass(frozen=True)
class Server:
    backbone: Weights  # Θ_g
    public_proxies: Tensor  # Φ_g [K_g, d]; empty without public faces


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    public_proxies: Tensor = sends("class embeddings of the public people")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends("change of the backbone")
    public_proxies: Summed[Tensor] = sends("change of the public people's class embeddings")
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Private(wire.Private):
    backbone: Weights  # Θ_l after the client's last round: its personal model, and what the next round contrasts with
    proxies: Tensor  # W [K, d]
    transform: Tensor  # Π [d, d + 1], the offset in the last column
    classifiers: Tensor  # Ω [K, d]
    bias: Tensor  # b [K]


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    public_proxies: Tensor
    proxies: Tensor
    transform: Tensor
    classifiers: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Fixed:
    globally: Weights  # Θ_g of this round
    previous: Weights  # Θ_l of the client's last round


@dataclass(frozen=True)
class FedFR(Method):
    """Hard negatives from public faces, contrastive regularisation, and a feature space of one's own."""

    public: Literal["hard", "all", "none"] = "hard"  # public images that a client trains on
    hard: float = 0.4  # t_HN: a public image counts as hard above this cosine to any own image
    contrast: float = 5.0  # α2; 0 leaves the contrastive term out
    branch: Literal["bce", "cosface", "none"] = "bce"  # how the client's own feature space is taught
    customise: float = 10.0  # α3
    scale: float = 30.0  # s, s'
    margin: float = 0.4  # m, m'
    temperature: float = 0.5  # τ
    balance: float = 0.7  # λ, the weight of positives in one-vs-all
    power: float = 3.0  # t' of g
    phi_update: Literal["average", "frozen"] = "average"  # public proxies: as printed, or never moved (the release)
    proxies: Literal["random", "mean"] = "random"  # where W and Ω start
    normalisation: SharedNormalisation = "frozen"

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    personal: ClassVar[bool] = True
    holds_public: ClassVar[bool] = True
    common = None

    def __post_init__(self) -> None:
        if not -1 <= self.hard <= 1:
            raise ValueError(f"hard is a cosine, not {self.hard}; public=all takes every public image")
        if self.contrast < 0 or self.customise < 0 or not 0 <= self.balance <= 1 or self.temperature <= 0:
            raise ValueError("contrast and customise cannot be negative, balance is a share, temperature is above 0")

    def check(self, population: Population) -> None:
        if self.public != "none" and population.public.faces is None:
            raise ValueError("fedfr trains on public faces and there are none: set data.public, or method.public=none")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        faces, head = population.public.faces, population.public.head
        if self.public == "none" or faces is None:
            return Server(weights, next(iter(weights.parameters.values())).new_empty(0, net.embedding))
        return Server(weights, class_means(net, weights, faces) if head is None else head)

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone, server.public_proxies)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), self._sent(broadcast.public_proxies), 0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        if private is None:
            previous = broadcast.backbone  # there is no last local model yet: the contrast is mute
            proxies = self._first_proxies(net, broadcast, faces, generator)
            space = (affine_identity(net.embedding, like=proxies), proxies, proxies.new_zeros(len(proxies)))
        else:
            previous, proxies = private.backbone, private.proxies
            space = (private.transform, private.classifiers, private.bias)
        trained = Trained(broadcast.backbone, broadcast.public_proxies, proxies, *space)
        fixed = Fixed(broadcast.backbone, previous) if self.contrast else None
        negatives = self.negatives(net, broadcast.backbone, faces)
        return Local(trained, fixed, None if negatives is None else Together(faces, negatives))

    def negatives(self, net: Net, backbone: Weights, faces: ClientFaces) -> FaceView | None:
        """The public images of this round, by the global model, as they are: not mirrored."""
        public = faces.public.faces
        if self.public == "none" or public is None:
            return None
        if self.public == "all":
            return public
        return public.only(hard_negatives(net, backbone, faces.images, public, self.hard))

    def objective(self, net: Net, trained: Trained, fixed: Fixed | None, batch: Batch) -> Losses:
        labels, own = batch.labels, len(trained.proxies)  # labels from ``own`` on are public people's
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        everyone = torch.cat([trained.proxies, trained.public_proxies])
        parts = {"cosface": margin_softmax(features, everyone, labels, self.scale, self.margin)}
        loss = parts["cosface"]
        if fixed is not None:
            globally, previous = (net(weights, batch.images) for weights in (fixed.globally, fixed.previous))
            parts["contrastive"] = contrastive(features, globally, previous, self.temperature)
            loss = loss + self.contrast * parts["contrastive"]
        if self.branch != "none":
            parts["custom"] = self._customised(mapped(features, trained.transform), trained, labels)
            loss = loss + self.customise * parts["custom"]
        return {"loss": loss, **parts, "public_share": (labels >= own).to(loss.dtype)}

    def _customised(self, features: Tensor, trained: Trained, labels: Tensor) -> Tensor:
        own = len(trained.proxies)
        if self.branch == "bce":
            return one_vs_all(
                features, trained.classifiers, trained.bias, labels,
                scale=self.scale, margin=self.margin, balance=self.balance, power=self.power,
            )  # fmt: skip
        # Table 2's other branch is a softmax over the client's identities: it has nothing to say of anybody else.
        softmax = margin_softmax(features, trained.classifiers, labels.clamp(max=own - 1), self.scale, self.margin)
        return torch.where(labels < own, softmax, 0.0)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        proxies = self._sent(trained.public_proxies) - self._sent(broadcast.public_proxies)
        return Upload(change(broadcast.backbone, trained.backbone, self.normalisation), proxies, images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.backbone, trained.proxies, trained.transform, trained.classifiers, trained.bias)

    def server_round(self, server: Server, received: Received) -> Server:
        moving: Tensor | float = received.mean("public_proxies") if self.phi_update == "average" else 0.0
        return Server(moved(server.backbone, received.mean("backbone")), server.public_proxies + moving)

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.backbone if private is None else private.backbone

    def head(self, server: Server, private: Private | None = None) -> Tensor | None:
        return None if private is None or self.branch == "none" else private.transform

    def _sent(self, public_proxies: Tensor) -> Tensor:
        return public_proxies if self.phi_update == "average" else public_proxies[:0]

    def _first_proxies(self, net: Net, broadcast: Broadcast, faces: ClientFaces, generator: torch.Generator) -> Tensor:
        if self.proxies == "mean":
            return own_class_means(net, broadcast.backbone, faces)
        drawn = 0.01 * torch.randn(len(faces.classes), net.embedding, generator=generator)
        return drawn.to(broadcast.public_proxies)
