"""Light, and what is around the head: background, shoulders, neck, hair that hangs behind."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coalface.data.portrait.paint import blend
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.surface import Rays, bump, ramp, wave

_LINE = 1.4  # background coordinates run a little past the picture


@dataclass(frozen=True)
class Lamps:
    """Colours of the lights, [n, 3, 1, 1]."""

    key: Tensor
    fill: Tensor


def colour(face: Numbers, name: str) -> Tensor:
    """Three numbers ``name_red``, ``name_green``, ``name_blue`` as [n, 3, 1, 1]."""
    return torch.stack([face[f"{name}_{channel}"] for channel in ("red", "green", "blue")], 1)


def lamps(face: Numbers) -> Lamps:
    def tinted(strength: Tensor, warm: Tensor) -> Tensor:
        return torch.stack([strength * (1 + warm), strength, strength * (1 - warm)], 1)

    return Lamps(tinted(face["key"], face["key_warm"]), tinted(face["fill"], face["fill_warm"]))


def lit(face: Numbers, lamp: Lamps, albedo: Tensor, normal: tuple[Tensor, Tensor, Tensor], open_: Tensor,
        shadow: Tensor, gloss: Tensor) -> Tensor:  # fmt: skip
    """Light that leaves the surface, [n, 3, H, W].

    ``open_`` is how much of the surroundings the point sees, ``shadow`` how much of the key light is held off.
    """
    f = face
    nx, ny, nz = normal
    towards = nx * f["key_x"] + ny * f["key_y"] + nz * f["key_z"]
    held = 1 - shadow * f["shadow"]
    # Light wanders under skin, red farthest: red turns into the shade last.
    direct = torch.stack([(towards + w).clamp(min=0) * (held / (1 + w)) for w in (0.28, 0.14, 0.08)], 1)
    around = open_ * (0.80 - 0.20 * ny)
    behind = (nx * f["edge_x"] + ny * f["edge_y"] - 0.35 * nz).clamp(min=0) * f["edge"] * open_
    # Halfway between lamp and camera (0, 0, 1): where a mirror would show the lamp.
    hz = f["key_z"] + 1
    length = (f["key_x"] * f["key_x"] + f["key_y"] * f["key_y"] + hz * hz).sqrt().clamp(min=1e-3)
    mirror = ((nx * f["key_x"] + ny * f["key_y"] + nz * hz) / length).clamp(min=0)
    mirror = mirror * mirror
    mirror = mirror * mirror
    mirror = mirror * mirror
    mirror = mirror * mirror
    shine = gloss * held * (mirror * mirror + 0.35 * mirror)
    light = (direct * lamp.key).add_(around[:, None] * lamp.fill).add_(behind[:, None])
    return light.mul_(albedo).add_(shine[:, None] * lamp.key)


def backdrop(face: Numbers, size: int) -> Tensor:
    """Plain, gradient, out-of-focus blobs or stripes, [n, 3, H, W]."""
    f = face
    device = f["zoom"].device
    line = (torch.arange(size, dtype=torch.float64) / size * 2 - 1).mul(_LINE).float().to(device)
    x, y = line.view(1, 1, size), line.view(1, size, 1)
    slope = (0.5 + 0.25 * (f["stripe_x"] * x + f["stripe_y"] * y) / 1.5).clamp(0, 1) * f["gradient"]
    stripes = ramp(wave(f["stripe_x"] * 0.6 * x + f["stripe_y"] * 0.6 * y + f["stripe_at"]), 0.6) * f["stripes"]
    centre_x, centre_y, radius = (torch.cat([f[f"blob{i}_{c}"][:, 0] for i in range(6)], 1) for c in "xyr")
    radius = 0.15 + 0.35 * radius
    across = bump((line - _LINE * centre_x[..., None]) / radius[..., None])
    along = bump((line - _LINE * centre_y[..., None]) / radius[..., None])
    blobs = (2.0 * (along.transpose(1, 2) @ across)).clamp(0, 1) * f["blobs"]
    return blend(
        colour(f, "back").expand(-1, -1, size, size),
        torch.maximum(torch.maximum(slope, stripes), blobs),
        colour(f, "other"),
    )


def body(face: Numbers, lamp: Lamps, ray: Rays, image: Tensor, skin: Tensor, hair: Tensor) -> Tensor:
    """Shoulders, hanging hair and neck over ``image``; the head comes on top."""
    f = face
    size = image.shape[-1]
    soft = 3.0 / size
    x, y = ray.x - f["body_turn"] * 0.5, ray.y
    tilt = x - f["r01"] * -0.6
    away = tilt.abs()

    shoulders = ramp(y - 0.98 - 0.35 * (away - 0.25).clamp(min=0) - 0.25 * bump((away - 1.3) / 0.5), soft)
    albedo = colour(f, "cloth")
    turned = x * (1 / 1.6)

    # hair that hangs: as wide as the head, rounded above, and farther back than the face
    above = (y - 0.2).clamp(-1.1, 0)
    wide = f["head_width"] * 1.22 + 0.06 * wave(0.5 * y + f["own_phase"]) + 0.08 * y.clamp(0, 1)
    wide = wide * (1 - above * above * (1 / 1.21)).clamp(min=0).sqrt() - 0.02
    hanging = ramp(wide - (tilt + 0.3 * f["r02"]).abs(), 1.5 * soft) * f["style_curtain"]
    locks = 0.68 + 0.18 * wave(4.5 * tilt + 0.4 * wave(0.6 * y) + f["own_phase"])
    albedo = blend(albedo, hanging, hair * locks[:, None])

    neck_wide = f["neck"] * (1 + 0.35 * ((y - 0.85) / 0.5).clamp(0, 1))
    round_ = (tilt / neck_wide).clamp(-1, 1)
    collar = 1.52 - 1.4 * y + 0.35 * (1 - round_.abs())
    neck = ramp(neck_wide - away, soft) * ramp(y - 0.2, 0.2) * ramp(collar, soft)
    under_chin = 0.55 + 0.45 * ((y - 0.95) / 0.35).clamp(0, 1)
    albedo = blend(albedo, neck, skin * under_chin[:, None])
    turned = turned + neck * (round_ - turned)

    facing = (1 - turned * turned).clamp(min=0.04).sqrt()
    direct = (turned * f["key_x"] + facing * f["key_z"] + 0.2).clamp(min=0) * 0.8
    covered = torch.maximum(torch.maximum(shoulders, hanging), neck)
    return blend(image, covered, (direct[:, None] * lamp.key).add_(lamp.fill).mul_(albedo))
