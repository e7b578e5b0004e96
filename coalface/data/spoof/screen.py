"""Photographs and videos on a screen: backlight, pixels and their moiré, rolling bands, reflections, bezel."""

from __future__ import annotations

import torch
from torch import Tensor

from coalface.data.portrait.paint import blend
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.stage import Lamps
from coalface.data.portrait.surface import bump, ramp, spot, wave
from coalface.data.spoof.sheet import Sheet, beat, look_up, within


def shown(m: Numbers, screen: Numbers, lamp: Lamps, sheet: Sheet, photo: Tensor) -> Tensor:
    """Light that a screen with ``photo`` [n, 3, h, w] in 0 … 1 sends to the camera, [n, 3, H, W], bezel included."""
    s = {name: number[:, None] for name, number in screen.items()}
    value = look_up(photo, sheet)
    grey = 0.3 * value[:, :1] + 0.59 * value[:, 1:2] + 0.11 * value[:, 2:]
    value = grey + (value - grey) * s["saturation"]
    value = ((value - 0.45) * s["contrast"] + 0.45).clamp(0, 1)
    value = value * (0.75 + 0.25 * value)  # between the file's gamma and the eye's
    light = value * (s["brightness"] * 1.2) * (1 - 0.35 * (sheet.lean * sheet.p).clamp(0, 1))[:, None]
    light = light * _pixels(m, screen, sheet)
    light = light * (1 + 0.03 * m["moire"] * wave(0.7 * sheet.y + m["roll"]))[:, None]
    cool = screen["cool"]
    light = light * torch.stack([1 - cool, 1 - 0.3 * cool, 1 + 1.3 * cool], 1)
    light = light + s["veil"] * (lamp.key + lamp.fill) + _mirrored(m, sheet)[:, None] * (s["mirror"] * lamp.key)
    return blend(light, 1 - within(sheet), _bezel(m, screen, sheet, lamp))


def _pixels(m: Numbers, screen: Numbers, sheet: Sheet) -> Tensor:
    """The grid of pixels under the camera's, [n, 3, H, W] around 1: its colours lie side by side, hence hues."""
    rows = beat(screen["pixels"], (0.0, 1.0), sheet, m, m["phase"])
    columns = [beat(screen["pixels"], (1.0, 0.0), sheet, m, m["phase"] + shift) for shift in (0.0, 1 / 3, 2 / 3)]
    strength = (screen["grid"] * m["moire"])[:, None]
    return 1 + strength * (0.6 * torch.stack(columns, 1) + 0.4 * rows[:, None])


def _mirrored(m: Numbers, sheet: Sheet) -> Tensor:
    """What the glass mirrors of the room: a window with a bar, and a lamp, out of focus, [n, H, W]."""
    x, y = sheet.x - m["glare_x"], sheet.y - m["glare_y"]
    window = ramp(0.55 - (x + 0.3 * y).abs(), 0.25) * ramp(0.5 - y.abs(), 0.25) * (1 - 0.6 * bump(x / 0.08))
    lamp = spot((x + 0.9) / 0.3, (y + 0.4) / 0.3)
    return (window + 1.5 * lamp) * m["glare"] + 0.15 * (1 - sheet.y)


def _bezel(m: Numbers, screen: Numbers, sheet: Sheet, lamp: Lamps) -> Tensor:
    edge = torch.maximum(sheet.p.abs(), sheet.q.abs()) - 1 - screen["frame"]
    shine = 0.25 * bump(edge / 0.06) + 0.03
    return (screen["bezel"] + shine)[:, None] * (0.7 * lamp.key + lamp.fill)
