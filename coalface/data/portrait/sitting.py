"""How somebody sits for one photograph: everything that is not the person, as a few numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

Numbers = dict[str, Tensor]  # named numbers of n photographs, each [n, 1, 1], to stand beside an image [n, H, W]

DRAWS = 96  # uniform numbers that one sitting may use


@dataclass(frozen=True)
class Conditions:
    """How much each nuisance may vary from one photograph to the next. 0: not at all, so all photographs are equal."""

    pose: float = 0.0  # turn, nod, tilt, distance, framing
    expression: float = 0.0  # mouth, brows, lids, gaze
    light: float = 0.0  # direction, hardness, colour, second light
    occlusion: float = 0.0  # glasses on or off, dark lenses, fringe, headwear, beard growth, make-up
    background: float = 0.0  # what is behind, and clothes
    blur: float = 0.0  # focus, motion, compression
    noise: float = 0.0  # sensor
    tone: float = 0.0  # exposure, contrast, white balance

    def __post_init__(self) -> None:
        for f in fields(self):
            strength = getattr(self, f.name)
            if not (math.isfinite(strength) and strength >= 0):
                raise ValueError(f"{f.name} is a strength, 0 or more, not {strength}")


class _Draws:
    """Hands out the columns of a matrix of uniform numbers in order."""

    def __init__(self, u: Tensor) -> None:
        self._columns = iter(u.unbind(1))

    def uniform(self) -> Tensor:
        return next(self._columns)

    def spread(self) -> Tensor:
        return 2 * self.uniform() - 1

    def normal(self) -> Tensor:
        normal: Tensor = torch.special.ndtri(self.uniform())
        return normal.clamp(-2.5, 2.5)

    def chance(self, probability: float) -> Tensor:
        return self.uniform().lt(probability).double()


def sit(u: Tensor, conditions: Conditions) -> dict[str, Tensor]:
    """Numbers of n sittings, each float32 [n] on the CPU, from uniform numbers [n, DRAWS].

    Worked out in float64: what sin and ndtri give may differ in the last bit with the place in a vector, and rounding
    to float32 hides that, so a photograph does not depend on its neighbours.
    """
    if u.ndim != 2 or u.shape[1] != DRAWS or u.dtype != torch.float64 or u.device.type != "cpu":
        raise ValueError(
            f"a sitting needs float64 [n, {DRAWS}] on the CPU, not {u.dtype} {list(u.shape)} on {u.device}"
        )
    draws = _Draws(u)
    numbers = {
        **_pose(draws, conditions.pose),
        **_expression(draws, conditions.expression),
        **_light(draws, conditions.light),
        **_occlusion(draws, conditions.occlusion),
        **_scene(draws, conditions.background),
        **_camera(draws, conditions),
    }
    return {name: number.float() for name, number in numbers.items()}


def _pose(draws: _Draws, strength: float) -> dict[str, Tensor]:
    yaw = (0.40 * strength * draws.normal()).clamp(-0.85, 0.85)
    pitch = (0.20 * strength * draws.normal()).clamp(-0.45, 0.45)
    roll = (0.09 * strength * draws.normal()).clamp(-0.35, 0.35)
    cy, sy, cp, sp, cr, sr = (f(a) for a in (yaw, pitch, roll) for f in (torch.cos, torch.sin))
    # head → camera: turn about the vertical, then nod, then tilt; x right, y down, z towards the camera
    rows = {
        "r00": cr * cy - sr * sp * sy, "r01": -sr * cp, "r02": cr * sy + sr * sp * cy,
        "r10": sr * cy + cr * sp * sy, "r11": cr * cp, "r12": sr * sy - cr * sp * cy,
        "r20": -cp * sy, "r21": sp, "r22": cp * cy,
    }  # fmt: skip
    return rows | {
        "zoom": 1 + (0.06 * strength * draws.normal()).clamp(-0.25, 0.25),
        "shift_x": 0.04 * strength * draws.normal(),
        "shift_y": 0.04 * strength * draws.normal(),
        "nearness": 0.10 + 0.16 * min(strength, 1.5) * (draws.uniform() - 0.4),
        "body_turn": 0.3 * yaw,
    }


def _expression(draws: _Draws, strength: float) -> dict[str, Tensor]:
    return {
        "smile": (0.55 * strength * draws.normal()).clamp(-1.0, 1.6),
        "mouth_open": (0.60 * strength * (draws.normal() - 0.3)).clamp(0, 1.3),
        "smirk": 0.25 * strength * draws.normal(),
        "brow_raise": (0.045 * strength * draws.normal()).clamp(-0.09, 0.12),
        "frown": (0.7 * strength * draws.normal()).clamp(0, 1.2),
        "lids": (1 - 0.35 * strength * draws.normal().clamp(min=-0.4)).clamp(0.08, 1.15),
        "gaze_x": (0.04 * strength * draws.normal()).clamp(-0.09, 0.09),
        "gaze_y": (0.015 * strength * draws.normal()).clamp(-0.03, 0.03),
    }


def _light(draws: _Draws, strength: float) -> dict[str, Tensor]:
    across = (0.35 + 0.75 * strength * draws.normal()).clamp(-1.6, 1.6)
    above = (0.50 + 0.40 * strength * draws.normal()).clamp(-0.5, 1.2)
    edge = math.pi * draws.spread()
    warm, fill_warm = 0.10 * strength * draws.normal(), 0.10 * strength * draws.normal()
    hard = (0.55 + 0.35 * strength * draws.spread()).clamp(0.15, 0.95)
    key, fill, frontal = 0.45 + 0.55 * hard, 0.62 - 0.42 * hard, torch.cos(across) * torch.cos(above)
    metered = (key * frontal.clamp(min=0) + 0.8 * fill) ** -0.7  # cameras expose for what they see, if not quite
    return {
        "key_x": torch.sin(across) * torch.cos(above),
        "key_y": -torch.sin(above),
        "key_z": frontal,
        "key": key * metered,
        "fill": fill * metered,
        "key_warm": warm.clamp(-0.25, 0.25),
        "fill_warm": fill_warm.clamp(-0.25, 0.25),
        "edge_x": torch.cos(edge) * 0.9,
        "edge_y": torch.sin(edge) * 0.6 - 0.3,
        "edge": (0.5 * strength * (draws.uniform() - 0.45)).clamp(0, 0.5),
        "shadow": (0.6 + 0.3 * strength * draws.spread()).clamp(0, 1),
    }


def _occlusion(draws: _Draws, strength: float) -> dict[str, Tensor]:
    return {
        "glasses_off": draws.chance(min(0.25 * strength, 0.5)),
        "glasses_on": draws.chance(min(0.08 * strength, 0.3)),
        "glasses_other": draws.chance(min(0.25 * strength, 0.5)),
        "lens_dark": draws.chance(min(0.05 * strength, 0.2)) * (0.75 + 0.2 * draws.uniform()),
        "lens_glare": 0.3 * min(strength, 1.5) * draws.uniform(),
        "other_width": draws.uniform(),
        "other_square": draws.uniform(),
        "other_shade": draws.uniform(),
        "fringe": (0.22 * strength * (draws.normal() - 0.6)).clamp(-0.05, 0.45),
        "hair_lift": (1 + 0.25 * strength * draws.normal()).clamp(0.4, 1.7),
        "hair_sway": 0.5 * strength * draws.normal(),
        "hat": draws.chance(min(0.05 * strength, 0.2)),
        "hat_red": draws.uniform(),
        "hat_green": draws.uniform(),
        "hat_blue": draws.uniform(),
        "beard_growth": (1 + 0.45 * strength * draws.normal()).clamp(0.1, 1.6),
        "lip_paint": (strength * (draws.uniform() - 0.75)).clamp(0, 0.4) * 2,
        "cheek_paint": 0.08 * strength * draws.uniform(),
    }


def _scene(draws: _Draws, strength: float) -> dict[str, Tensor]:
    kind = (4 * draws.uniform()).floor()  # plain, gradient, blobs, stripes
    amount = min(strength, 1.0)
    scene = {
        "gradient": kind.eq(1).double() * amount,
        "blobs": kind.eq(2).double() * amount,
        "stripes": kind.eq(3).double() * amount,
        "stripe_x": 3.0 * draws.spread(),
        "stripe_y": 3.0 * draws.spread(),
        "stripe_at": draws.uniform(),
    }
    for colour in ("back", "other", "cloth"):
        light = 0.5 + 0.42 * amount * draws.spread()
        for channel in ("red", "green", "blue"):
            scene[f"{colour}_{channel}"] = (light + 0.22 * amount * draws.spread()).clamp(0.02, 0.98)
    for blob in range(6):
        scene |= {f"blob{blob}_x": draws.spread(), f"blob{blob}_y": draws.spread(), f"blob{blob}_r": draws.uniform()}
    return scene


def _camera(draws: _Draws, conditions: Conditions) -> dict[str, Tensor]:
    blur, noise, tone = conditions.blur, conditions.noise, conditions.tone
    soft = blur * draws.uniform() ** 2
    return {
        # Radii are shares of the image, so that a small and a large image of one sitting look alike.
        "blur_x": 0.004 + 0.028 * soft + 0.02 * blur * (draws.uniform() - 0.7).clamp(min=0),
        "blur_y": 0.004 + 0.028 * soft + 0.02 * blur * (draws.uniform() - 0.7).clamp(min=0),
        "compression": 0.10 * blur * draws.uniform() ** 2,
        "noise": 0.06 * noise * draws.uniform() ** 1.5,
        "exposure": torch.exp(0.20 * tone * draws.normal()).clamp(0.45, 2.0),
        "contrast": (1 + 0.18 * tone * draws.normal()).clamp(0.5, 1.5),
        "lift": (0.03 * tone * draws.normal()).clamp(-0.06, 0.10),
        "curve": (0.22 * tone * draws.normal()).clamp(-0.5, 0.5),
        "white_red": torch.exp(0.09 * tone * draws.normal()),
        "white_blue": torch.exp(0.10 * tone * draws.normal()),
        "white_green": torch.exp(0.04 * tone * draws.normal()),
        "saturation": (1 + 0.20 * tone * draws.normal()).clamp(0.2, 1.4),
    }
