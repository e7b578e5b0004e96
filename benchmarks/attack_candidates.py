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
    zoom: float = 0.0  # another cut of the frame
    mixed: float = 0.0  # share of the frames that stay as they are
    depth_weight: float = 10.0
    level: bool = False  # every frame is brought to one brightness and contrast, hue and saturation kept
    smooth: float = 0.0  # of labels
    weight_decay: float = 0.0

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
        images, depth = self.changed(batch.images, batch.depth, fixed)
        logits, _, guess = net.all_outputs(trained.detector, self.seen(images), batch_statistics=True)
        truth = live(batch.labels)
        truth = truth + self.smooth * (0.5 - truth)
        parts = {"classification": live_cross_entropy(logits[:, 0], truth)}
        loss = parts["classification"]
        if self.depth_weight:
            parts["depth"] = depth_error(guess, depth)
            loss = loss + self.depth_weight * parts["depth"]
        return {"loss": loss, **parts}

    def seen(self, x: Tensor) -> Tensor:
        """Images in [0, 1] as the network takes them."""
        return scaled(255 * (levelled(x) if self.level else x), x.dtype)

    def changed(self, images: Tensor, depth: Tensor, luck: Luck) -> tuple[Tensor, Tensor]:
        x = images.float() / 255
        if not any((self.tone, self.colour, self.detail, self.zoom)):
            return x, depth
        turn = images.sum(dim=(1, 2, 3), dtype=torch.int64)
        draws = luck.changes[turn % DRAWS]
        draws = torch.where(draws[:, 13:] < 2 * self.mixed - 1, 0.0, draws)
        exposure, contrast, saturation, blur, noise, curve, coarse = (
            draws[:, n].reshape(-1, 1, 1, 1) for n in range(7)
        )
        if self.zoom:
            x, depth = zoomed(x, depth, self.zoom * draws[:, 10:13])
        if self.detail:
            x = softened(x, 3, 0.7 * self.detail * blur) if self.detail else x
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
        return x.clamp(0, 1), depth


def softened(x: Tensor, factor: int, share: Tensor) -> Tensor:
    """Each image moved by its share towards what a sensor of a fraction of the resolution sees; below 0: sharpened."""
    size = (x.shape[-2], x.shape[-1])
    coarse = F.interpolate(F.interpolate(x, (size[0] // factor, size[1] // factor), mode="area"), size, mode="bilinear")
    return x + share * (coarse - x)


def zoomed(x: Tensor, depth: Tensor, how: Tensor) -> tuple[Tensor, Tensor]:
    """Cuts of a part of each frame, and the same of its depth map."""
    scale = (0.3 * how[:, 0]).exp().clamp(max=1.15)
    theta = torch.zeros(len(x), 2, 3, device=x.device)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    theta[:, :, 2] = how[:, 1:3] * (0.25 * scale)[:, None]
    cut = F.grid_sample(x, F.affine_grid(theta, list(x.shape), False), padding_mode="border", align_corners=False)
    maps = depth[:, None].float()
    maps = F.grid_sample(maps, F.affine_grid(theta, list(maps.shape), False), padding_mode="zeros", align_corners=False)
    return cut, maps[:, 0]


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
    "tone": Candidate(tone=1.5),
    "tone2": Candidate(tone=3),
    "colour": Candidate(colour=1),
    "detail": Candidate(detail=1),
    "zoom": Candidate(zoom=1),
    "level": Candidate(level=True),
    "level detail": Candidate(level=True, detail=1),
    "level detail zoom": Candidate(level=True, detail=1, zoom=1),
    "tone detail": Candidate(tone=1.5, detail=1),
    "tone detail zoom": Candidate(tone=1.5, detail=1, zoom=1),
    "tone2 detail": Candidate(tone=3, detail=1),
    "level detail2": Candidate(level=True, detail=2),
    "level detail2 zoom": Candidate(level=True, detail=2, zoom=1),
    "tone2 detail2": Candidate(tone=3, detail=2),
    "half cameras": Candidate(tone=1, colour=1, detail=1, mixed=0.5),
    "half tone detail": Candidate(tone=1.5, detail=1, mixed=0.5),
    "all zoom": Candidate(tone=1.5, colour=0.5, detail=1, zoom=1),
    "smooth tone detail": Candidate(tone=1.5, detail=1, smooth=0.2),
    "no depth tone detail": Candidate(tone=1.5, detail=1, depth_weight=0),
}
