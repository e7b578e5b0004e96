"""FedFV and chorus with what the search of one_identity_search.py tried and the methods did not take over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.algorithms import METHODS
from coalface.algorithms.chorus import Chorus, Fixed
from coalface.algorithms.chorus import Trained as Singer
from coalface.algorithms.fedavg import mean_feature
from coalface.algorithms.fedfv import FedFV
from coalface.algorithms.revealed_embedding import Trained, with_revealed
from coalface.local import slowed
from coalface.models.net import Weights
from coalface.objectives import spread_out

SERVERS_OWN: dict[str, Any] = {}  # the network, and synthetic faces that the server draws for itself


def recentred(weights: Weights) -> Weights:
    """With a last bias such that the server's own faces have a mean feature of zero."""
    net, images = SERVERS_OWN["net"], SERVERS_OWN["images"]
    device = weights.parameters["fc.bias"].device
    with torch.no_grad():
        mean = net(weights, images.to(device)).mean(dim=0)
    return Weights({**weights.parameters, "fc.bias": weights.parameters["fc.bias"] - mean}, weights.statistics)


def contrast(
    features: Tensor, voice: Tensor, negatives: Tensor, absent: Tensor, knobs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and own cosine per image [b], and what pushes the class embedding from the negatives [b]."""
    unit = F.normalize(slowed(voice, knobs.embedding_rate), dim=0)
    mine = features @ unit
    others = (features @ negatives.T).masked_fill(absent, -torch.inf)
    logits = knobs.scale * torch.cat([mine[:, None] - knobs.margin, others], dim=1)
    loss = torch.logsumexp(logits, dim=1) - logits[:, 0]
    near = negatives @ unit  # [n]: the class embedding beside the negatives
    if knobs.push == "confused":  # as hard as the features are confused with them
        share = torch.softmax(logits, dim=1)[:, 1:].detach()
        away = knobs.scale * (share * torch.where(absent, 0.0, near)).sum(dim=1)
    else:  # as if it were an image itself
        alone = knobs.scale * torch.cat([near.new_ones(1), near.masked_fill(absent, -torch.inf)])
        away = (torch.logsumexp(alone, dim=0) - alone[0]).expand(len(features))
    return loss, mine, away


@dataclass(frozen=True)
class SearchedChorus(Chorus):
    repel: float = 0.0
    push: str = "confused"
    fresh: bool = False  # the class embedding is the mean feature, always
    all_anchors: bool = False  # all public people's class embeddings, as if they were chords
    centred: bool = False

    def begin(self, net: Any, weights: Weights, population: Any, generator: torch.Generator) -> Any:
        return super().begin(net, recentred(weights) if self.centred else weights, population, generator)

    def server_round(self, server: Any, received: Any) -> Any:
        after = super().server_round(server, received)
        return replace(after, backbone=recentred(after.backbone)) if self.centred else after

    def start(self, net: Any, broadcast: Any, private: Any, faces: Any, generator: torch.Generator) -> Any:
        local = super().start(net, broadcast, private, faces, generator)
        fixed, trained = local.fixed, local.trained
        if self.fresh:
            trained = replace(trained, class_embedding=mean_feature(net, broadcast.backbone, faces.images))
        if self.all_anchors:
            public = F.normalize(faces.public.head.to(fixed.chords), dim=1)
            one, zero = torch.ones_like(public[:, 0]), torch.zeros_like(public[:, 0])
            heard, own = torch.cat([fixed.heard, one]), torch.cat([fixed.own, zero])
            fixed = Fixed(torch.cat([fixed.chords, public[:, None]]), heard, own, fixed.anchors)
        return replace(local, trained=trained, fixed=fixed)

    def among_choirs(self, features: Tensor, trained: Singer, fixed: Fixed) -> dict[str, Tensor]:
        silent = (fixed.heard == 0) | (fixed.own == 1)
        loss, mine, away = contrast(features, trained.class_embedding, fixed.chords[:, 0], silent, self)
        return {"loss": loss + self.repel * away, "cosine": mine}


@dataclass(frozen=True)
class SearchedFedFV(FedFV):
    repel: float = 0.0
    push: str = "confused"
    spread: int = 0  # steps of FedAwS's spreading at the server
    spread_max_cos: float = 0.3
    centred: bool = False

    def begin(self, net: Any, weights: Weights, population: Any, generator: torch.Generator) -> Any:
        return super().begin(net, recentred(weights) if self.centred else weights, population, generator)

    def objective(self, net: Any, trained: Trained, fixed: Tensor, batch: Any) -> dict[str, Tensor]:
        features = F.normalize(net(trained.backbone, batch.images), dim=1)
        absent = (fixed == 0).all(dim=1)
        loss, mine, away = contrast(features, trained.class_embedding, fixed, absent, self)
        return {"loss": loss + self.repel * away, "own_cosine": mine}

    def server_round(self, server: Any, received: Any) -> Any:
        after = with_revealed(server, received, self.momentum)
        if self.spread:
            known = after.class_embeddings[after.known]
            after.class_embeddings[after.known], _ = spread_out.by_row(known, self.spread_max_cos, self.spread)
        return replace(after, backbone=recentred(after.backbone)) if self.centred else after


METHODS["chorus/searched"], METHODS["fedfv/searched"] = SearchedChorus, SearchedFedFV
