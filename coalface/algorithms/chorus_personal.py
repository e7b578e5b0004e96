"""Chorus with a model of one's own. Our own method.  docs/algorithms/chorus.md

keeps   images, its class embedding, its own feature space (Π, Ω, b), its last local backbone
sends   what chorus sends

Behind the shared features stands a linear map Π that learns one thing: is it the client's person? FedFR shows its map
public faces as strangers. Here the other choirs' chords, which the client holds anyway, stand for strangers: no public
image is on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.algorithms import chorus
from coalface.algorithms.chorus import Broadcast, Chorus, Fixed, Server, Upload
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses
from coalface.method import Local, Types
from coalface.models.head import mapped
from coalface.models.net import Net, Weights
from coalface.normalisation import by_batch
from coalface.objectives.one_vs_all import one_vs_all


@dataclass(frozen=True)
class Private(chorus.Private):
    backbone: Weights  # after the client's last round: half of its personal model
    transform: Tensor  # Π [d, d], the other half
    classifier: Tensor  # Ω [1, d]
    bias: Tensor  # b [1]


@dataclass(frozen=True)
class Trained(chorus.Trained):
    transform: Tensor
    classifier: Tensor
    bias: Tensor


@dataclass(frozen=True)
class ChorusPersonal(Chorus):
    """Chorus, and a feature space of one's own in which other choirs' chords stand for strangers."""

    customise: float = 10.0  # weight of the client's own classifier; scale, margin, balance and power are FedFR's
    own_scale: float = 30.0
    own_margin: float = 0.4
    balance: float = 0.7
    power: float = 3.0

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    personal: ClassVar[bool] = True
    common = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parts:
            raise ValueError(
                f"parts={self.parts}: a random mixture looks like nobody; chorus/personal sings plain sums"
            )

    def start(
        self, net: Net, broadcast: Broadcast, private: Any, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        sung = super().start(net, broadcast, private, faces, generator)
        voice: Tensor = sung.trained.class_embedding
        if private is None:
            space = (torch.eye(net.embedding, dtype=voice.dtype, device=voice.device), voice[None], voice.new_zeros(1))
        else:
            space = (private.transform, private.classifier, private.bias)
        trained = Trained(sung.trained.backbone, voice, sung.trained.noise, sung.trained.parts, *space)
        return Local(trained, sung.fixed)

    def objective(self, net: Net, trained: Any, fixed: Fixed, batch: Batch) -> Losses:
        raw = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        features = F.normalize(raw, dim=1)
        losses = self.among_choirs(features, trained, fixed)
        heard = ((fixed.heard == 1) & (fixed.own == 0)).to(features.dtype)  # [choirs]
        strangers = self._is_it_me(fixed.chords[:, 0], trained, label=1)  # [choirs]
        custom = self._is_it_me(features, trained, label=0) + (heard * strangers).sum() / heard.sum().clamp(min=1)
        if self.enrol_first:
            custom = custom * fixed.heard.min()
        return {**losses, "loss": losses["loss"] + self.customise * custom, "custom": custom}

    def _is_it_me(self, features: Tensor, trained: Trained, label: int) -> Tensor:
        """One-vs-all over the one person of the client; label 1 is anybody else."""
        labels = torch.full((len(features),), label, device=features.device)
        return one_vs_all(
            mapped(features, trained.transform), trained.classifier, trained.bias, labels,
            scale=self.own_scale, margin=self.own_margin, balance=self.balance, power=self.power,
        )  # fmt: skip

    def keep(self, trained: Any) -> Private:
        embedding = F.normalize(trained.class_embedding, dim=0)
        return Private(embedding, trained.noise, trained.backbone, trained.transform, trained.classifier, trained.bias)

    def embedder(self, server: Server, private: Any = None) -> Weights:
        return server.backbone if private is None else private.backbone

    def head(self, server: Server, private: Any = None) -> Tensor | None:
        return None if private is None else private.transform
