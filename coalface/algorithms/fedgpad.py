"""FedGPAD: centres share what is alike between their domains, and keep what is not. Shao, Perera, Yuen, Patel 2022.

keeps   recordings, the domain-specific extractor ES and the decoder Dec
sends   change of the domain-invariant extractor EI, the classifier C and the depth estimator Dep   summed, alike
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch

from coalface import wire
from coalface.algorithms.detector_only import Broadcast, DetectorOnly, Server
from coalface.data.centres import live
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Types
from coalface.models.colour import rgb_hsv
from coalface.models.net import Net, Weights, scaled
from coalface.objectives.detection import depth_error, live_cross_entropy
from coalface.objectives.disentanglement import difference, reconstruction_error


@dataclass(frozen=True)
class Private(wire.Private):
    specific: Weights  # ES and Dec


@dataclass(frozen=True)
class Trained:
    detector: Weights  # EI, C and Dep
    specific: Weights | None  # ES and Dec; None without disentanglement


@dataclass(frozen=True)
class FedGPAD(DetectorOnly):
    """Detection by domain-invariant features, held apart from domain-specific ones that never leave their centre.

    A weight of 0 takes its loss out: these are the paper's ablations.
    """

    depth_weight: float = 10.0
    difference_weight: float = 1.0
    reconstruction_weight: float = 0.1
    disentangle: bool = True  # without: EI, C and Dep alone, trained by classification and depth

    network = "fedgpad"
    types: ClassVar[Types] = replace(DetectorOnly.types, private=Private)

    def __post_init__(self) -> None:
        weights = (self.depth_weight, self.difference_weight, self.reconstruction_weight)
        if min(weights) < 0:
            raise ValueError(f"the weights of losses cannot be negative, not {weights}; 0 takes a loss out")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        if net.name != self.network:
            raise ValueError(f"FedGPAD has networks of its own, not {net.name}: set model=fedgpad")
        if self.depth_weight and population.faces.depth is None:
            raise ValueError("these recordings have no depth maps: give some, or set method.depth_weight=0")
        return super().begin(net, weights, population, generator)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        if not self.disentangle:
            return Local(Trained(broadcast.detector, None))
        if private is not None:
            return Local(Trained(broadcast.detector, private.specific))
        fresh = specific_net(net).fresh(int(torch.randint(1 << 31, (), generator=generator)))
        fresh = fresh.map(lambda leaf: leaf.to(faces.labels.device))
        return Local(Trained(broadcast.detector, like_invariant(fresh, broadcast.detector)))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        several = len(batch.labels) > 1  # one frame has no statistics
        logits, invariant, depth = net.all_outputs(trained.detector, batch.images, batch_statistics=several)
        parts = {"classification": live_cross_entropy(logits[:, 0], live(batch.labels))}  # Eq. 4
        loss = parts["classification"]
        if self.depth_weight:
            assert batch.depth is not None  # begin refuses recordings without
            parts["depth"] = depth_error(depth, batch.depth)  # Eq. 5
            loss = loss + self.depth_weight * parts["depth"]
        if trained.specific is not None:
            specific, decoded = specific_net(net).all_outputs(
                trained.specific, batch.images, invariant, batch_statistics=several
            )
            if self.reconstruction_weight:
                image = rgb_hsv(scaled(batch.images, decoded.dtype))
                parts["reconstruction"] = reconstruction_error(decoded, image)  # Eq. 6
                loss = loss + self.reconstruction_weight * parts["reconstruction"]
            if self.difference_weight:
                parts["difference"] = difference(invariant, specific)  # Eq. 7
                loss = loss + self.difference_weight * parts["difference"]
        return {"loss": loss, **parts}  # Eq. 8

    def keep(self, trained: Trained) -> Private | None:
        return None if trained.specific is None else Private(trained.specific)


@lru_cache(maxsize=8)
def specific_net(net: Net) -> Net:
    """ES and Dec that fit these EI, C and Dep."""
    return Net("fedgpad_specific", net.numerics, **net.settings)


def like_invariant(specific: Weights, detector: Weights) -> Weights:
    """ES starts as a copy of EI, as in the release; Dec is fresh."""

    def named(leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = "invariant."
        return {"specific." + key.removeprefix(name): leaf for key, leaf in leaves.items() if key.startswith(name)}

    return Weights(specific.parameters | named(detector.parameters), specific.statistics | named(detector.statistics))
