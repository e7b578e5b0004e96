"""Disguise: each centre trains on its frames as foreign cameras would have filmed them. Our own.

keeps   recordings
sends   change of the detector   summed, every centre alike

What a detector must not learn is its own centre's camera. FedGPAD asks a second network to take that up; here it is
taken away: in every round each frame is seen through another imaginary camera, drawn at home. Users get the mean of
the detectors of many rounds, which lies in a flatter place than the last one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from coalface.algorithms.detector_only import Broadcast, DetectorOnly
from coalface.algorithms.fedpad import Trained
from coalface.data.centres import live
from coalface.data.disguise import Luck, disguised, draw_luck
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Types
from coalface.models.net import Net, Weights
from coalface.objectives.detection import depth_error, live_cross_entropy
from coalface.received import Received
from coalface.tree import transform


@dataclass(frozen=True)
class Server:
    detector: Weights  # of the last round
    mean: Weights  # over the rounds, the later ones counting more
    rounds: int


@dataclass(frozen=True)
class Disguise(DetectorOnly):
    """Frames filmed by imaginary cameras at home, depth as in FedGPAD, and the mean detector over the rounds."""

    strength: float = 1.0  # of the imaginary cameras; 0 leaves frames as they are
    depth_weight: float = 10.0
    memory: float = 0.8  # of the mean over rounds: what the mean so far counts for, at most; 0 takes the last round

    network = "fedgpad"
    types: ClassVar[Types] = replace(DetectorOnly.types, server=Server)

    def __post_init__(self) -> None:
        if min(self.strength, self.depth_weight) < 0 or not 0 <= self.memory < 1:
            raise ValueError(
                "strength and depth_weight cannot be negative, and memory is from 0 to below 1, not "
                f"{self.strength}, {self.depth_weight} and {self.memory}"
            )

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Any:
        if net.name != self.network:
            raise ValueError(f"disguise estimates depth, which {net.name} does not: set model={self.network}")
        if self.depth_weight and population.faces.depth is None:
            raise ValueError("these recordings have no depth maps: give some, or set method.depth_weight=0")
        return Server(weights, weights.map(torch.clone), rounds=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        assert net.size is not None  # its network has one
        return Local(Trained(broadcast.detector), fixed=draw_luck(net.size, generator, faces.labels.device))

    def objective(self, net: Net, trained: Trained, fixed: Luck, batch: Batch) -> Losses:
        images = disguised(batch.images, fixed, self.strength)
        several = len(batch.labels) > 1  # one frame has no statistics
        logits, _, depth = net.all_outputs(trained.detector, images, batch_statistics=several)
        classification = live_cross_entropy(logits[:, 0], live(batch.labels))
        if not self.depth_weight:
            return {"loss": classification}
        assert batch.depth is not None  # begin refuses recordings without
        parts = {"classification": classification, "depth": depth_error(depth, batch.depth)}
        return {"loss": classification + self.depth_weight * parts["depth"], **parts}

    def server_round(self, server: Any, received: Received) -> Any:
        detector = super().server_round(server, received).detector
        memory = min(self.memory, server.rounds / (server.rounds + 1))  # a plain mean of the first rounds
        mean = transform(lambda old, new: memory * old + (1 - memory) * new, server.mean, detector)
        return Server(detector, mean, server.rounds + 1)

    def embedder(self, server: Any, private: Any = None) -> Weights:
        mean: Weights = server.mean
        return mean
