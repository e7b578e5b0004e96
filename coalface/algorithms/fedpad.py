"""FedPAD: data centres train one detector of presentation attacks together. Shao, Perera, Yuen, Patel 2021.

keeps   recordings
sends   change of the detector   summed, every centre alike
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from coalface.algorithms.detector_only import Broadcast, DetectorOnly
from coalface.data.centres import live
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses
from coalface.method import Local
from coalface.models.net import Net, Weights
from coalface.objectives.detection import live_cross_entropy


@dataclass(frozen=True)
class Trained:
    detector: Weights


@dataclass(frozen=True)
class FedPAD(DetectorOnly):
    """FedAvg for attack detection: live or attack by cross-entropy, and the plain mean of the centres' detectors."""

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(Trained(broadcast.detector))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        return live_or_attack(net, trained.detector, batch)


def live_or_attack(net: Net, detector: Weights, batch: Batch) -> Losses:
    """Minus Eq. 1 of the paper, whose sign is missing: the cross-entropy of each frame."""
    logits = net(detector, batch.images, batch_statistics=len(batch.labels) > 1)[:, 0]  # one frame has no statistics
    return {"loss": live_cross_entropy(logits, live(batch.labels))}
