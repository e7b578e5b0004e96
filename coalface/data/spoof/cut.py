"""Photographs with the eyes cut out: an attacker looks, and blinks, through the holes."""

from __future__ import annotations

import torch
from torch import Tensor

from coalface.data.portrait.paint import blend
from coalface.data.portrait.people import Identities
from coalface.data.portrait.render import scene
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.surface import bump, ramp
from coalface.data.spoof.sheet import Sheet


def look_through(
    light: Tensor, sheet: Sheet, m: Numbers, photograph: Numbers, attacker: Identities, f: Numbers
) -> Tensor:
    """The light of a print [n, 3, H, W] with holes where the eyes of the ``photograph`` were, and the attacker behind.

    ``f`` says how the attacker sits; where, follows from the holes: as far away as the gap of the eyes says, then
    sideways until eyes and holes meet.
    """
    holes = eyes(photograph)
    own = eyes(f)
    zoom = f["zoom"] * (own["right_x"] - own["left_x"]) / ((holes["right_x"] - holes["left_x"]) * m["reach"])
    f = f | {"zoom": zoom}
    own = eyes(f)
    for axis in "xy":
        target = (holes[f"left_{axis}"] + holes[f"right_{axis}"]) / 2 * m["reach"] + m[f"at_{axis}"]
        now = (own[f"left_{axis}"] + own[f"right_{axis}"]) / 2
        f[f"shift_{axis}"] = f[f"shift_{axis}"] + zoom * (target - now)
    alive, _ = scene(attacker, f, light.shape[-1])
    cut, shade = eye_holes(sheet, holes)
    return blend(light, cut, alive * (0.75 * shade)[:, None])


def eyes(f: Numbers) -> Numbers:
    """Where the eyes are in the picture, −1 … 1, and half the hole that a pair of scissors would make for one."""
    up, out, front = f["eye_height"] * f["head_height"], f["eye_gap"] * f["head_width"], 0.9 * f["head_depth"]
    # what ``rays`` takes back of the turn, so that crops stay on the eyes
    back_x = 0.75 * (f["r01"] * up + f["r02"] * front)
    back_y = 0.75 * (f["r11"] * up + f["r12"] * front - up)
    places = {"wide": 0.31 * f["head_width"] / f["zoom"], "high": 0.12 / f["zoom"]}
    for side, sign in (("left", -1.0), ("right", 1.0)):
        x = f["r00"] * sign * out + f["r01"] * up + f["r02"] * front
        y = f["r10"] * sign * out + f["r11"] * up + f["r12"] * front
        places[f"{side}_x"] = (x + f["shift_x"] - back_x) / f["zoom"]
        places[f"{side}_y"] = (y + f["shift_y"] - back_y) / f["zoom"]
    return places


def eye_holes(sheet: Sheet, holes: Numbers) -> tuple[Tensor, Tensor]:
    """Where the paper is cut out, and how dark the cut's shade is inside, each [n, H, W]."""
    cut, shade = torch.zeros_like(sheet.p), torch.ones_like(sheet.p)
    for side in ("left", "right"):
        across = (sheet.p - holes[f"{side}_x"]) / holes["wide"]
        along = (sheet.q - holes[f"{side}_y"]) / holes["high"]
        inside = 1 - (across * across + along * along)
        cut = torch.maximum(cut, ramp(inside, 5 * sheet.soft))
        # the paper's upper edge throws its shadow on the face behind
        shade = torch.minimum(shade, 1 - 0.55 * bump((along + 1) / 0.7) * ramp(inside, 0.2))
    return cut, shade
