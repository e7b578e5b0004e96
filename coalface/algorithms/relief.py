"""Relief: attacks are told by the depth map alone, with statistics of the place where they happen. Our own.

keeps   recordings
sends   change of the detector   summed, every centre alike

FedGPAD estimates depth to learn better features, and judges by a classifier. Here the classifier is the helper, and
the depth map judges: what is flat is flat before any camera. How deep a face looks does depend on the camera, so
whoever uses the detector takes half of its statistics from live frames of their own (``at_home``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from coalface.algorithms.detector_only import Broadcast, DetectorOnly, Server
from coalface.algorithms.fedpad import Trained
from coalface.data.centres import live
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local
from coalface.models.net import Net, Weights
from coalface.objectives.detection import depth_error, live_cross_entropy


@dataclass(frozen=True)
class Relief(DetectorOnly):
    """How deep a face looks says whether it lives; a classifier helps to learn it."""

    depth_weight: float = 10.0

    network = "fedgpad_relief"

    def __post_init__(self) -> None:
        if self.depth_weight <= 0:
            raise ValueError(f"relief judges by depth: depth_weight must be above 0, not {self.depth_weight}")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        if net.name != self.network:
            raise ValueError(f"relief judges by depth, which {net.name} does not: set model={self.network}")
        if population.faces.depth is None:
            raise ValueError("these recordings have no depth maps: give some (docs/attacks.md), or use fedpad")
        return super().begin(net, weights, population, generator)

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(Trained(broadcast.detector))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        assert batch.depth is not None  # begin refuses recordings without
        several = len(batch.labels) > 1  # one frame has no statistics
        _, _, depth, logits = net.all_outputs(trained.detector, batch.images, batch_statistics=several)
        parts = {
            "classification": live_cross_entropy(logits[:, 0], live(batch.labels)),
            "depth": depth_error(depth, batch.depth),
        }
        return {"loss": parts["classification"] + self.depth_weight * parts["depth"], **parts}
