"""What benchmarks/attack_search.py tries: changes of frames, at home, before a detector learns from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from coalface.algorithms.detector_only import Broadcast, DetectorOnly
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.fedpad import Trained
from coalface.data.centres import live
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses
from coalface.method import Local, Method
from coalface.models.net import Net, scaled
from coalface.objectives.detection import depth_error, live_cross_entropy

DRAWS, CHANGES, NOISES = 1024, 14, 8  # sets of random numbers for a round of a centre, numbers in each, noise images


@dataclass(frozen=True)
class Luck:
    """Random numbers of a round, so that the objective is a pure function."""

    changes: Tensor  # [DRAWS, CHANGES] in [−1, 1]
    noise: Tensor  # [NOISES, 3, H, W]


@dataclass(frozen=True)
class Candidate(DetectorOnly):
    """EI, C and Dep as in FedGPAD without disentanglement, on changed frames. 0 leaves a change out."""

    tone: float = 0.0  # exposure, contrast, curve
    colour: float = 0.0  # white balance, saturation
    detail: float = 0.0  # blur and sharpening, noise, coarser sensors
    depth_weight: float = 10.0
    level: bool = False  # every frame is brought to one brightness and contrast, hue and saturation kept

    network = "fedgpad"

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        assert net.size is not None
        changes = 2 * torch.rand(DRAWS, CHANGES, generator=generator) - 1
        noise = torch.randn(NOISES, 3, *net.size, generator=generator)
        device = faces.labels.device
        return Local(Trained(broadcast.detector), fixed=Luck(changes.to(device), noise.to(device)))

    def objective(self, net: Net, trained: Trained, fixed: Luck, batch: Batch) -> Losses:
        assert batch.depth is not None
        images = self.changed(batch.images, fixed)
        logits, _, guess = net.all_outputs(trained.detector, self.seen(images), batch_statistics=True)
        parts = {"classification": live_cross_entropy(logits[:, 0], live(batch.labels))}
        loss = parts["classification"]
        if self.depth_weight:
            parts["depth"] = depth_error(guess, batch.depth)
            loss = loss + self.depth_weight * parts["depth"]
        return {"loss": loss, **parts}

    def seen(self, x: Tensor) -> Tensor:
        """Images in [0, 1] as the network takes them."""
        return scaled(255 * (levelled(x) if self.level else x), x.dtype)

    def changed(self, images: Tensor, luck: Luck) -> Tensor:
        """uint8 images as other cameras would have filmed them, in [0, 1]."""
        x = images.float() / 255
        if not any((self.tone, self.colour, self.detail)):
            return x
        turn = images.sum(dim=(1, 2, 3), dtype=torch.int64)
        draws = luck.changes[turn % DRAWS]
        exposure, contrast, saturation, blur, noise, curve, coarse = (
            draws[:, n].reshape(-1, 1, 1, 1) for n in range(7)
        )
        if self.detail:
            x = softened(x, 3, 0.7 * self.detail * blur)
            x = softened(x, 2, (self.detail * coarse).clamp(0, 1))
        if self.tone:
            x = x.clamp(min=1e-4) ** (0.5 * self.tone * curve).exp()
            x = x * (0.3 * self.tone * exposure).exp()
            middle = x.mean(dim=(1, 2, 3), keepdim=True)
            x = middle + (x - middle) * (0.4 * self.tone * contrast).exp()
        if self.colour:
            x = x * (0.15 * self.colour * draws[:, 7:10, None, None]).exp()
            grey = x.mean(dim=1, keepdim=True)
            x = grey + (x - grey) * (0.6 * self.colour * saturation).exp()
        if self.detail:
            x = x + 0.04 * self.detail * noise.clamp(min=0) * luck.noise[turn % NOISES]
        return x.clamp(0, 1)


def softened(x: Tensor, factor: int, share: Tensor) -> Tensor:
    """Each image moved by its share towards what a sensor of a fraction of the resolution sees; below 0: sharpened."""
    size = (x.shape[-2], x.shape[-1])
    coarse = F.interpolate(F.interpolate(x, (size[0] // factor, size[1] // factor), mode="area"), size, mode="bilinear")
    return x + share * (coarse - x)


def levelled(x: Tensor) -> Tensor:
    """One brightness and contrast for every image, by a factor for each pixel that keeps hue and saturation."""
    grey = x.mean(dim=1, keepdim=True)
    middle = grey.mean(dim=(2, 3), keepdim=True)
    spread = grey.std(dim=(2, 3), keepdim=True).clamp(min=0.02)
    wanted = (0.45 + 0.2 * (grey - middle) / spread).clamp(0.02, 1)
    return (x * wanted / grey.clamp(min=0.02)).clamp(0, 1)


VARIANTS: dict[str, Method] = {
    "fedgpad": FedGPAD(),
    "plain": Candidate(),
    "cameras": Candidate(tone=1, colour=1, detail=1),
    "level detail": Candidate(level=True, detail=1),
    "tone2 detail": Candidate(tone=3, detail=1),
}
