"""Photographs on paper: ink, halftone, grain, the room's light on it, glare, margins, and fingers that hold it."""

from __future__ import annotations

import torch
from torch import Tensor

from coalface.data.portrait.counter import pixel_noise
from coalface.data.portrait.paint import blend
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.stage import Lamps
from coalface.data.portrait.surface import ramp, spot
from coalface.data.spoof.sheet import Sheet, beat, look_up, within

GRAINS = 96  # of the paper's texture, on a side
_SKIN = (0.93, 0.72, 0.62), (0.44, 0.28, 0.20)


def printed(m: Numbers, paper: Numbers, lamp: Lamps, sheet: Sheet, photo: Tensor, texture_key: Tensor) -> Tensor:
    """Light that a print of ``photo`` [n, 3, h, w] in 0 … 1 sends to the camera, [n, 3, H, W], also past its edges."""
    ink = look_up(photo, sheet)
    grey = 0.3 * ink[:, :1] + 0.59 * ink[:, 1:2] + 0.11 * ink[:, 2:]
    ink = grey + (ink - grey) * paper["saturation"][:, None]
    # Dots of ink: none in paper white, none where all is black, strongest between.
    middle = 4 * grey * (1 - grey)
    dots = _halftone(m, paper, sheet)
    grain = look_up(pixel_noise(texture_key, GRAINS, GRAINS)[:, :1], sheet)
    ink = ink + middle * (0.16 * m["moire"][:, None] * dots) + (0.4 + middle) * grain * paper["grain"][:, None]
    black, white = paper["black"][:, None], paper["white"][:, None]
    ink = black + (white - black) * ink.clamp(0, 1)
    ink = blend(ink, 1 - within(sheet), white)
    warm = paper["warm"]
    ink = ink * torch.stack([1 + warm, torch.ones_like(warm), 1 - warm], 1)
    return lit_sheet(m, lamp, sheet, ink) + _glare(m, paper, sheet)[:, None] * lamp.key


def lit_sheet(m: Numbers, lamp: Lamps, sheet: Sheet, reflects: Tensor) -> Tensor:
    """Room light on a flat or bent sheet: one slow shade over all of it, whatever shadows the photograph shows."""
    facing = (m["key_z"] + 0.8 * sheet.lean * m["key_x"] + 0.15 * (m["key_x"] * sheet.x + m["key_y"] * sheet.y)).clamp(
        min=0.05
    )
    return reflects * (facing[:, None] * lamp.key + 0.85 * lamp.fill)


def fingers(m: Numbers, sheet: Sheet, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Coverage [n, H, W] and colour [n, 3, H, W] of fingers that hold the sheet at its sides."""
    outwards = sheet.p.abs() - 1 - margin
    middle = ((sheet.p * 1e6).clamp(-1, 1) * 0.2 + m["finger_y"]) * 0.6
    bulge = torch.full_like(outwards, -1.0)
    for along, tip, thick in ((-0.17, 0.14, 0.10), (0.0, 0.20, 0.11), (0.17, 0.17, 0.10), (0.32, 0.10, 0.085)):
        inwards = (-outwards - tip + thick).clamp(min=0) / thick  # beyond 0 the finger's round end begins
        across = (sheet.q - middle - along) / thick
        bulge = torch.maximum(bulge, 1 - across * across - inwards * inwards)
    palm = 1 - ((sheet.q - middle - 0.08) / 0.5).square() - ((outwards - 0.55) / 0.45).clamp(max=0).square()
    bulge = torch.maximum(bulge, palm.clamp(max=0.6))
    pale, deep = (torch.tensor(tone, device=bulge.device).view(1, 3, 1, 1) for tone in _SKIN)
    skin = pale + (deep - pale) * m["finger_tone"][:, None]
    return ramp(bulge, 16 * sheet.soft) * m["held"], skin * (0.4 + 0.6 * bulge.clamp(0, 1))[:, None]


def _halftone(m: Numbers, paper: Numbers, sheet: Sheet) -> Tensor:
    """Rosettes of three turned screens, one for each ink, [n, 3, H, W], about −1 … 1."""
    dots, phase = paper["dots"], m["phase"]
    inks = [
        beat(dots, (cosine, sine), sheet, m, phase) + beat(dots, (-sine, cosine), sheet, m)
        for cosine, sine in ((0.966, 0.259), (0.259, 0.966), (0.707, 0.707))
    ]
    return torch.stack(inks, 1) * 0.5


def _glare(m: Numbers, paper: Numbers, sheet: Sheet) -> Tensor:
    """The lamp on glossy paper: a broad patch on a flat sheet, a bright stripe on a bent one."""
    bent = m["bend"].abs()
    wide = 0.9 - 0.9 * bent.clamp(max=0.6)
    patch = spot((sheet.p - m["glare_x"]) / wide, (sheet.q - m["glare_y"]) / (1.0 + 1.5 * bent))
    return paper["gloss"] * (0.3 + 1.7 * m["glare"]) * patch
