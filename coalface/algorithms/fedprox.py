"""FedProx: FedAvg whose clients are held near the model they were sent. Li et al. 2020.  docs/algorithms/fedprox.md

Local loss + (μ/2)·‖θ − θᵗ‖² over the backbone's parameters (not over normalisation statistics, not over heads).
What travels is what travels in the FedAvg form that it wraps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coalface.algorithms import fedavg
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses
from coalface.method import Local, Method
from coalface.models.net import Net


@dataclass(frozen=True)
class Anchored:
    """The wrapped form's fixed tensors, and θᵗ."""

    inner: Any
    anchor: dict[str, Tensor]


def with_pull(losses: Losses, parameters: dict[str, Tensor], anchor: dict[str, Tensor], mu: float) -> Losses:
    """The losses with the proximal term added, and named."""
    squares = [(parameters[name] - anchor[name]).square().sum() for name in parameters]
    pull = 0.5 * mu * torch.stack(squares).sum()
    return {**losses, "loss": losses["loss"] + pull, "proximal": pull}


@dataclass(frozen=True)
class Proximal(Method):
    """The pull, put before a form of FedAvg."""

    mu: float = 0.01

    def start(self, net: Net, broadcast: Any, private: Any, faces: ClientFaces, generator: torch.Generator) -> Local:
        local = super().start(net, broadcast, private, faces, generator)  # type: ignore[safe-super]  # the form's
        return Local(local.trained, Anchored(local.fixed, broadcast.backbone.parameters))

    def objective(self, net: Net, trained: Any, fixed: Any, batch: Batch) -> Losses:
        losses = super().objective(net, trained, fixed.inner, batch)  # type: ignore[safe-super]  # the form's
        return with_pull(losses, trained.backbone.parameters, fixed.anchor, self.mu)


@dataclass(frozen=True)
class SharedHead(Proximal, fedavg.SharedHead):
    """FedProx over fedavg/shared-head."""


@dataclass(frozen=True)
class PrivateHead(Proximal, fedavg.PrivateHead):
    """FedProx over fedavg/private-head."""
