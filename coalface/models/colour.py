"""Colour spaces that detectors look at: screens and printers cannot show every colour, and HSV makes that plain."""

from __future__ import annotations

import torch
from torch import Tensor


def rgb_hsv(images_N3HW: Tensor) -> Tensor:
    """[n, 6, H, W] in [0, 1]: red, green, blue, hue, saturation, value, of images scaled as `net.scaled` does."""
    rgb = (images_N3HW * 128 + 127.5) / 255
    return torch.cat([rgb, hsv(rgb)], dim=1)


def hsv(rgb_N3HW: Tensor) -> Tensor:
    """Hue (a full turn is 1), saturation and value of red, green and blue in [0, 1]; grey has hue 0."""
    value, largest = rgb_N3HW.max(dim=1)
    spread = value - rgb_N3HW.min(dim=1).values
    red, green, blue = rgb_N3HW.unbind(dim=1)
    safe = torch.where(spread > 0, spread, 1.0)
    sector = torch.stack([((green - blue) / safe) % 6, (blue - red) / safe + 2, (red - green) / safe + 4], dim=1)
    hue = sector.gather(1, largest[:, None])[:, 0] / 6
    saturation = spread / torch.where(value > 0, value, 1.0)
    return torch.stack([torch.where(spread > 0, hue, 0.0), saturation, value], dim=1)
