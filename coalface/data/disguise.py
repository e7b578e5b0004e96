"""Frames as another camera might have filmed them: exposure, contrast, colour, sharpness and noise at random."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from coalface.models.net import scaled

DRAWS = 1024  # sets of random numbers in a luck
CHANGES = 9  # random numbers for one frame
NOISES = 8  # noise images in a luck


@dataclass(frozen=True)
class Luck:
    """Random numbers for one round of a centre, so that what uses them can be a pure function."""

    changes: Tensor  # [DRAWS, CHANGES] in [−1, 1]
    noise: Tensor  # [NOISES, 3, H, W], of standard deviation 1


def draw_luck(size: tuple[int, int], generator: torch.Generator, device: torch.device) -> Luck:
    """Luck for images of this height and width."""
    changes = 2 * torch.rand(DRAWS, CHANGES, generator=generator) - 1
    return Luck(changes.to(device), torch.randn(NOISES, 3, *size, generator=generator).to(device))


def disguised(images: Tensor, luck: Luck, strength: float) -> Tensor:
    """uint8 images, changed, and scaled as networks take them. Strength 0 changes nothing, 1 is quite another camera.

    Which draw an image gets depends on its pixels alone: the same in every call, and another one for another image.
    """
    if not strength:
        return scaled(images, torch.get_default_dtype())
    turn = images.sum(dim=(1, 2, 3), dtype=torch.int64)
    draws = strength * luck.changes[turn % DRAWS].to(torch.get_default_dtype())
    exposure, contrast, saturation, blur, noise, curve = (draws[:, n].reshape(-1, 1, 1, 1) for n in range(6))
    balance = draws[:, 6:9, None, None]
    x = images.to(draws.dtype) / 255
    x = _softened(x, blur.clamp(min=0))
    x = x.clamp(min=1e-4) ** (0.5 * curve).exp()
    x = x * (0.3 * exposure + 0.15 * balance).exp()
    middle = x.mean(dim=(1, 2, 3), keepdim=True)
    x = middle + (x - middle) * (0.4 * contrast).exp()
    grey = x.mean(dim=1, keepdim=True)
    x = grey + (x - grey) * (0.6 * saturation).exp()
    x = x + 0.04 * noise.clamp(min=0) * luck.noise[turn % NOISES]
    return scaled(255 * x.clamp(0, 1), x.dtype)


def _softened(x: Tensor, share: Tensor) -> Tensor:
    """Half of each image, at most, is what a sensor of a third of the resolution would see."""
    size = (x.shape[-2], x.shape[-1])
    coarse = F.interpolate(F.interpolate(x, (max(1, size[0] // 3), max(1, size[1] // 3)), mode="area"), size)
    smooth = F.avg_pool2d(coarse, 3, stride=1, padding=1, count_include_pad=False)
    return x + 0.7 * share * (smooth - x)
