"""What benchmarks/attack_search.py tries: changes of frames, at home, before a detector learns from them; of its layers
(central differences, Yu et al. 2020; half of the normalisation by each frame's own statistics) and of its steps (SAM).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coalface.algorithms.detector_only import Broadcast, DetectorOnly
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.fedpad import Trained
from coalface.data.centres import live
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses
from coalface.method import Local, Method
from coalface.models import MODELS
from coalface.models.fedgpad import Shared, fedgpad
from coalface.models.net import Net, Weights, scaled
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
    patches: float = 0.0  # share of frames with a rectangle of a frame of the other kind, depth and label accordingly
    mixed: float = 0.0  # share of another frame's colour means and spreads, of the same kind and centre
    central: float = 0.0  # share of central differences in each convolution
    sharpness: float = 0.0  # length of SAM's step uphill
    frozen_after: int = (
        0  # rounds, after which centres train by the shared statistics, as users will use them; 0: never
    )
    frozen: bool = False  # this is such a round

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
        if not self.sharpness:
            return self.losses(net, trained.detector, fixed, batch)
        here = trained.detector
        level = Weights(here.parameters, {name: leaf.clone() for name, leaf in here.statistics.items()})
        loss = self.losses(net, level, fixed, batch)["loss"].mean()
        slopes = torch.autograd.grad(loss, list(here.parameters.values()))
        length = torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt().clamp(min=1e-12)
        uphill = {
            name: leaf + self.sharpness * slope.detach() / length
            for (name, leaf), slope in zip(here.parameters.items(), slopes, strict=True)
        }
        return self.losses(net, Weights(uphill, here.statistics), fixed, batch)

    def losses(self, net: Net, detector: Weights, luck: Luck, batch: Batch) -> Losses:
        assert batch.depth is not None
        images, depth, target = self.changed(batch.images, luck), batch.depth.float(), live(batch.labels)
        draws = luck.changes[batch.images.sum(dim=(1, 2, 3), dtype=torch.int64) % DRAWS]
        if self.mixed:
            images = restyled(images, images.roll(2, 0), self.mixed * draws[:, 10].abs())
        if self.patches:
            chosen = draws[:, 11] < 2 * self.patches - 1
            here = rectangles(draws[:, 7:11], images.shape[-1]) & chosen[:, None, None]
            images = torch.where(here[:, None], images.flip(0), images)  # kinds take turns in a batch
            there = F.interpolate(here[:, None].float(), depth.shape[-2:])[:, 0] > 0.5
            depth = torch.where(there, depth.flip(0), depth)
            share = here.float().mean(dim=(1, 2))
            target = (1 - share) * target + share * target.flip(0)
        logits, _, guess = net.all_outputs(self.used(detector), self.seen(images), batch_statistics=not self.frozen)
        parts = {"classification": live_cross_entropy(logits[:, 0], target)}
        loss = parts["classification"]
        if self.depth_weight:
            parts["depth"] = depth_error(guess, depth)
            loss = loss + self.depth_weight * parts["depth"]
        return {"loss": loss, **parts}

    def in_round(self, round_: int) -> Candidate:
        """The method as it is in one round."""
        return replace(self, frozen=bool(self.frozen_after) and round_ > self.frozen_after)

    def used(self, detector: Weights) -> Weights:
        """The weights that the layers get."""
        return Weights(differenced(detector.parameters, self.central), detector.statistics)

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


def differenced(parameters: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Kernels of 3×3 less a share of their sum in the middle: what they see is partly differences to the middle."""
    if not share:
        return parameters
    changed = dict(parameters)
    for name, leaf in parameters.items():
        if leaf.shape[2:] == (3, 3):
            changed[name] = leaf - F.pad(share * leaf.sum(dim=(2, 3), keepdim=True), (1, 1, 1, 1))
    return changed


def restyled(x: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Each image with its colour means and spreads moved by a share to another's."""
    share = share[:, None, None, None]
    (spread, mean), (spread2, mean2) = (torch.std_mean(y, dim=(2, 3), keepdim=True) for y in (x, other))
    ratio = (1 - share) + share * spread2 / spread.clamp(min=0.02)
    return ((x - mean) * ratio + mean + share * (mean2 - mean)).clamp(0, 1)


def rectangles(draws: Tensor, size: int) -> Tensor:
    """A rectangle of 0.3 to 0.8 of each side for each image: bool [n, size, size]; draws are [n, 4] in [−1, 1]."""
    sides = 0.55 + 0.25 * draws[:, :2]
    corners = (0.5 + 0.5 * draws[:, 2:]) * (1 - sides)
    along = (torch.arange(size, device=draws.device) + 0.5) / size
    inside = [(along >= corners[:, n, None]) & (along < (corners + sides)[:, n, None]) for n in range(2)]
    return inside[0][:, :, None] & inside[1][:, None, :]


class HalfOwn(nn.BatchNorm2d):
    """Half of the normalisation is by the frame's own statistics, which no camera can shift."""

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, 1, 1)
        own = F.instance_norm(x) * self.weight.reshape(shape) + self.bias.reshape(shape)
        return (super().forward(x) + own) / 2


def _with_own(size: int, width: int, deep: bool) -> Shared:
    made = fedgpad(size, width)
    parts = [made.invariant.first, *(made.invariant.blocks if deep else made.invariant.blocks[:1])]
    for part in parts:
        for module in list(part.modules()):
            for name, layer in list(module.named_children()):
                if isinstance(layer, nn.BatchNorm2d):
                    setattr(module, name, HalfOwn(layer.num_features))
    return made


def fedgpad_own(size: int = 256, width: int = 64) -> Shared:
    return _with_own(size, width, deep=True)


def fedgpad_own_early(size: int = 256, width: int = 64) -> Shared:
    return _with_own(size, width, deep=False)


MODELS["fedgpad_own"], MODELS["fedgpad_own_early"] = fedgpad_own, fedgpad_own_early


@dataclass(frozen=True)
class Own(Candidate):
    network = "fedgpad_own"


@dataclass(frozen=True)
class OwnEarly(Candidate):
    network = "fedgpad_own_early"


VARIANTS: dict[str, Method] = {
    "fedgpad": FedGPAD(),
    "plain": Candidate(),
    "cameras": Candidate(tone=1, colour=1, detail=1),
    "level detail": Candidate(level=True, detail=1),
    "tone2 detail": Candidate(tone=3, detail=1),
    "detail": Candidate(detail=1),
    "patches": Candidate(patches=0.5),
    "styles": Candidate(mixed=1),
    "central": Candidate(central=0.7),
    "sharp": Candidate(sharpness=0.05),
    "own": Own(),
    "own early": OwnEarly(),
    "central patches": Candidate(central=0.7, patches=0.5),
    "frozen": Candidate(frozen_after=9),
    "frozen early": Candidate(frozen_after=4),
    "frozen patches": Candidate(frozen_after=9, patches=0.5),
    "own patches": Own(patches=0.5),
    "sharp patches": Candidate(sharpness=0.05, patches=0.5),
    "styles patches": Candidate(mixed=1, patches=0.5),
}
