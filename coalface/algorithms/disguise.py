"""Disguise: each centre trains on its frames as foreign cameras would have filmed them. Our own.

keeps   recordings
sends   change of the detector   summed, every centre alike

What a detector must not learn is its own centre's camera. FedGPAD asks a second network to take that up; here it is
taken away: in every round each frame is seen through another imaginary camera, drawn at home.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from coalface.algorithms.detector_only import Broadcast, DetectorOnly, Server
from coalface.algorithms.fedpad import Trained
from coalface.data.centres import live
from coalface.data.disguise import Luck, disguised, draw_luck
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local
from coalface.models.net import Net, Weights
from coalface.objectives.detection import depth_error, live_cross_entropy


@dataclass(frozen=True)
class Disguise(DetectorOnly):
    """Frames filmed by imaginary cameras at home, told apart by live or attack, and by depth as in FedGPAD."""

    strength: float = 1.0  # of the imaginary cameras; 0 leaves frames as they are
    depth_weight: float = 10.0

    network = "fedgpad"

    def __post_init__(self) -> None:
        if min(self.strength, self.depth_weight) < 0:
            raise ValueError(f"strength and depth_weight cannot be below 0, not {self.strength}, {self.depth_weight}")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        if net.name != self.network:
            raise ValueError(f"disguise estimates depth, which {net.name} does not: set model={self.network}")
        if self.depth_weight and population.faces.depth is None:
            raise ValueError("these recordings have no depth maps: give some, or set method.depth_weight=0")
        return super().begin(net, weights, population, generator)

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        assert net.size is not None  # its network has one
        return Local(Trained(broadcast.detector), fixed=draw_luck(net.size, generator, faces.labels.device))

    def objective(self, net: Net, trained: Trained, fixed: Luck, batch: Batch) -> Losses:
        images = disguised(batch.images, fixed, self.strength)
        several = len(batch.labels) > 1  # one frame has no statistics
        logits, _, depth = net.all_outputs(trained.detector, images, batch_statistics=several)
        parts = {"classification": live_cross_entropy(logits[:, 0], live(batch.labels))}
        loss = parts["classification"]
        if self.depth_weight:
            assert batch.depth is not None  # begin refuses recordings without
            parts["depth"] = depth_error(depth, batch.depth)
            loss = loss + self.depth_weight * parts["depth"]
        return {"loss": loss, **parts}
