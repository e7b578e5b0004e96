"""Where each pixel of the camera falls on a paper or a screen, and what two fine grids make of each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.surface import ramp, wave


@dataclass(frozen=True)
class Sheet:
    """All [n, H, W]."""

    x: Tensor  # in the picture, −1 … 1
    y: Tensor
    p: Tensor  # on the photograph, whose edges are at ±1
    q: Tensor
    lean: Tensor  # how far the surface turns to the right
    soft: Tensor  # a pixel, in units of p


def lay(m: Numbers, size: int) -> Sheet:
    """A plane that is shifted, turned, tilted (farther side smaller) and, if it is paper, bent about the vertical."""
    line = ((torch.arange(size, dtype=torch.float64) + 0.5) / size * 2 - 1).float().to(m["reach"].device)
    x, y = line.view(1, 1, size) - m["at_x"], line.view(1, size, 1) - m["at_y"]
    away = (1 + m["tilt_x"] * x + m["tilt_y"] * y) / m["reach"]
    p, q = (m["cos"] * x + m["sin"] * y) * away, (m["cos"] * y - m["sin"] * x) * away
    # A bent sheet is seen shortened where it turns away, and its rows rise or sink towards the sides.
    square = (p * p).clamp(max=2.5)
    p, q = p * (1 + 0.12 * m["bend"].abs() * square), q * (1 + 0.22 * m["bend"] * (square - 0.5))
    lean = m["bend"] * p + m["tilt_x"]
    shape = p.shape
    x, y = (line.view(1, 1, size).expand(shape), line.view(1, size, 1).expand(shape))
    return Sheet(x, y, p, q, lean, 2 / (size * m["reach"]))


def look_up(photo: Tensor, sheet: Sheet) -> Tensor:
    """The photograph [n, C, h, w] as the camera's pixels see it, [n, C, H, W]."""
    return F.grid_sample(
        photo, torch.stack([sheet.p, sheet.q], 3), mode="bilinear", padding_mode="border", align_corners=False
    )


def within(sheet: Sheet, margin: Tensor | float = 0.0) -> Tensor:
    """How much of each pixel lies on the photograph, or at most ``margin`` beyond its edges."""
    inwards = 1 + margin - torch.maximum(sheet.p.abs(), sheet.q.abs())
    return ramp(inwards, sheet.soft)


def beat(cycles: Tensor, across: tuple[float, float], sheet: Sheet, m: Numbers, phase: Tensor | float = 0.0) -> Tensor:
    """What the camera makes of a grating with ``cycles`` over the photograph, −1 … 1, [n, H, W].

    ``across`` is the unit vector in (p, q) across its lines. A sensor with R pixels along a side of the picture sees f
    cycles along that side as |f − kR|: moiré. What the final picture cannot resolve is grey, and the finer the grating
    against the sensor's pixels, the weaker it is.
    """
    by_pixel = cycles / (m["reach"] * m["pixels"])
    turns = cycles * (across[0] * sheet.p + across[1] * sheet.q)
    for share, place in zip(across, (sheet.x, sheet.y), strict=True):
        turns = turns - (share * by_pixel + 0.5).floor() * m["pixels"] * place
    turns = 0.5 * turns + phase
    gone = F.pad(turns.diff(dim=2).square(), (0, 1)) + F.pad(turns.diff(dim=1).square(), (0, 0, 0, 1))
    return wave(turns) * (1.25 - 0.4 * by_pixel).clamp(0, 1) * (1 - 4 * gone).clamp(min=0)
