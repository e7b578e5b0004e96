"""Fine-tune: each client goes on training the model that it was given, alone. Yu, Bagdasaryan, Shmatikov 2020.
FedFR's Table 2 compares with it, and with its form by distillation.  docs/algorithms/fine_tune.md

keeps   images, its backbone, its own and the public class embeddings
sends   nothing but how many images it has

The second stage after a federation: give it that federation's model by ``--weights``. ``distil`` above 0 also holds the
client's logits to those that the model it was given would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.algorithms.fedfr import Broadcast, Server
from coalface.algorithms.hard_negatives import class_means, hard_negatives, own_class_means
from coalface.algorithms.local_only import Upload
from coalface.data.population import ClientFaces, Population
from coalface.data.public import Together
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.objectives.margin_softmax import margin_softmax
from coalface.received import Received


@dataclass(frozen=True)
class Private(wire.Private):
    backbone: Weights
    proxies: Tensor  # [K, d]
    public_proxies: Tensor  # [K_g, d]


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    proxies: Tensor
    public_proxies: Tensor


@dataclass(frozen=True)
class FineTune(Method):
    """Each client trains the model that it was given on its own and on hard public faces, and keeps the result."""

    public: Literal["hard", "none"] = "hard"
    hard: float = 0.4  # a public image counts as hard above this cosine to any own image
    distil: float = 0.0  # weight of the distillation from the model that was given; Table 2's KD has it
    temperature: float = 1.0  # of the distilled logits
    scale: float = 30.0
    margin: float = 0.4

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    generic: ClassVar[bool] = False
    personal: ClassVar[bool] = True
    holds_public: ClassVar[bool] = True
    common = None

    def __post_init__(self) -> None:
        if self.distil < 0 or self.temperature <= 0:
            raise ValueError(f"distil is at least 0 and temperature above 0, not {self.distil} and {self.temperature}")

    def check(self, population: Population) -> None:
        if self.public != "none" and population.public.faces is None:
            raise ValueError(
                "fine_tune trains on public faces and there are none: set data.public, or method.public=none"
            )

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        faces = population.public.faces
        if self.public == "none" or faces is None:
            return Server(weights, next(iter(weights.parameters.values())).new_empty(0, net.embedding))
        return Server(weights, class_means(net, weights, faces))

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone, server.public_proxies)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        given, public = broadcast.backbone, faces.public.faces
        if private is None:
            trained = Trained(given, own_class_means(net, given, faces), broadcast.public_proxies)
        else:
            trained = Trained(private.backbone, private.proxies, private.public_proxies)
        fixed = given if self.distil else None
        if self.public == "none" or public is None:
            return Local(trained, fixed)
        hard = public.only(hard_negatives(net, given, faces.images, public, self.hard))
        return Local(trained, fixed, Together(faces, hard))

    def objective(self, net: Net, trained: Trained, fixed: Weights | None, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images)
        proxies = torch.cat([trained.proxies, trained.public_proxies])
        cosface = margin_softmax(features, proxies, batch.labels, self.scale, self.margin)
        if fixed is None:
            return {"loss": cosface, "cosface": cosface}
        taught = self._logits(net(fixed, batch.images), proxies.detach())
        divergence = F.kl_div(self._logits(features, proxies), taught, reduction="none", log_target=True).sum(dim=1)
        distilled = self.temperature**2 * divergence  # so that its gradient does not fade as the temperature rises
        return {"loss": cosface + self.distil * distilled, "cosface": cosface, "distilled": distilled}

    def _logits(self, features: Tensor, proxies: Tensor) -> Tensor:
        cosines = F.normalize(features, dim=1) @ F.normalize(proxies, dim=1).T
        return F.log_softmax(self.scale / self.temperature * cosines, dim=1)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.backbone, trained.proxies, trained.public_proxies)

    def server_round(self, server: Server, received: Received) -> Server:
        return server

    def embedder(self, server: Server, private: Any = None) -> Weights:
        return server.backbone if private is None else private.backbone
