"""What colour the head is at (u, v): skin with its marks and folds, brows, eyes, lips, beard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.surface import bump, ramp, spot, wave


@dataclass(frozen=True)
class Place:
    """Where on the face each pixel is, in the face's own slightly crooked coordinates. All [n, H, W]."""

    u: Tensor
    v: Tensor
    side: Tensor  # |u|: both halves at once
    sign: Tensor  # −1 left of the middle, 1 right of it
    soft: float  # a pixel, in units of u


@dataclass(frozen=True)
class Painted:
    colour: Tensor  # [n, 3, H, W]
    gloss: Tensor  # [n, H, W]; strength of the highlight
    eye: Tensor  # [n, H, W]; where the eyeball shows: it is wet, and lies deeper than the lids


def blend(image: Tensor, mask: Tensor, colour: Tensor) -> Tensor:
    """``colour`` [n, 3, 1, 1] over ``image`` where ``mask`` [n, H, W] is 1."""
    return (colour - image).mul_(mask[:, None]).add_(image)


def place(face: Numbers, u: Tensor, v: Tensor, soft: float) -> Place:
    across = u + face["tilt_across"] * v
    along = v + face["tilt_along"] * u
    side = across.abs()
    return Place(across, along, side, (across * 40).clamp(-1, 1), soft)


def paint_face(face: Numbers, at: Place, pigment: Tensor, beard: Tensor, colours: dict[str, Tensor]) -> Painted:
    """``pigment`` and ``beard`` [n, H, W] are maps looked up at the pixel; ``colours`` are [n, 3, 1, 1]."""
    skin = _skin(face, at, pigment, colours["skin"])
    skin = blend(skin, _beard_cover(face, at, beard), colours["beard"])
    skin = blend(skin, _brows(face, at), colours["brow"])
    image, eye = _eyes(face, at, skin, colours)
    image, lips = _mouth(face, at, image, colours)
    nose_zone = spot(at.u / 0.35, (at.v - 0.05) / 0.75)
    gloss = face["gloss"] * (0.6 + 0.35 * nose_zone) * (1 - 0.7 * beard.clamp(0, 1)) + 0.25 * lips
    return Painted(image, gloss, eye)


def _skin(face: Numbers, at: Place, pigment: Tensor, skin: Tensor) -> Tensor:
    f = face
    cheek = spot((at.side - 0.68) / 0.34, (at.v - 0.30) / 0.26)
    tip_v = f["eye_height"] + f["nose_length"]
    nose = spot(at.u / 0.2, (at.v - tip_v) / 0.15)
    blood = (f["blush"] + f["cheek_paint"]) * cheek + 0.6 * f["blush"] * nose
    ear = ramp(at.side - 1.85, 0.2)
    blood = blood + 0.08 * ear
    under_eye = spot((at.side - (f["eye_gap"] - 0.03)) / 0.2, (at.v - (f["eye_height"] + 0.15)) / 0.08)
    dark = pigment.clamp(-0.3, 0.65) + 0.16 * f["eye_bag"] * under_eye + _folds(f, at, tip_v) + _nostrils(f, at, tip_v)
    tone = 1 - dark.clamp(max=0.9)
    return torch.stack(
        [skin[:, 0] * tone, skin[:, 1] * (tone * (1 - 1.3 * blood)), skin[:, 2] * (tone * (1 - 1.2 * blood))], 1
    )


def _folds(face: Numbers, at: Place, tip_v: Tensor) -> Tensor:
    """Creases: those of age, and those of the expression."""
    f, age, smile = face, face["age"], face["smile"].clamp(min=0)
    worry = (age - 0.25).clamp(min=0) + 6 * f["brow_raise"].clamp(min=0)
    lines = wave(8.0 * at.v + 0.9 * at.u * at.u + f["own_phase"]).clamp(min=0)
    forehead = 0.30 * worry * lines * lines * spot(at.u / 0.62, (at.v - (f["eye_height"] - 0.50)) / 0.22)
    frown_at = spot((at.side - 0.075) / 0.035, (at.v - (f["eye_height"] - 0.17)) / 0.12)
    frown = (0.25 * age + 0.40 * f["frown"]) * frown_at
    smile_line = f["nose_width"] + 0.10 + 0.55 * (at.v - tip_v)
    window = ramp(at.v - tip_v + 0.05, 0.15) * ramp(f["mouth_v"] + 0.12 - at.v, 0.2)
    laugh = (0.06 + 0.26 * age + 0.18 * smile) * window * bump((at.side - smile_line) / 0.06)
    out = at.side - (f["eye_gap"] + f["eye_width"] + 0.13)
    rays = wave(1.6 + 1.2 * (at.v - f["eye_height"]) / (out + 0.22).clamp(min=0.08)).clamp(min=0)
    window = spot(out / 0.10, (at.v - f["eye_height"]) / 0.13)
    feet = (0.45 * (age - 0.3).clamp(min=0) + 0.14 * smile) * rays * window
    bag = f["eye_height"] + 0.125 + 0.5 * (at.side - f["eye_gap"]) * (at.side - f["eye_gap"])
    bags = (0.05 + 0.24 * age) * spot((at.v - bag - 0.035) / 0.03, (at.side - (f["eye_gap"] - 0.02)) / 0.16)
    return forehead + frown + laugh + feet + bags


def _nostrils(face: Numbers, at: Place, tip_v: Tensor) -> Tensor:
    f = face
    low = tip_v + 0.085
    hole = spot((at.side - 0.62 * f["nose_width"]) / (0.030 + 0.25 * f["nose_width"]), (at.v - low) / 0.034)
    wing = spot((at.side - (f["nose_width"] + 0.065)) / 0.032, (at.v - (tip_v + 0.04)) / 0.085)
    below = spot(at.u / (f["nose_width"] + 0.03), (at.v - (low + 0.04)) / 0.05)
    return f["nostril"] * 1.1 * hole + 0.28 * wing + 0.18 * below


def _brows(face: Numbers, at: Place) -> Tensor:
    f = face
    out = at.side - (f["eye_gap"] + 0.015)
    line = f["eye_height"] - f["brow_height"] - f["brow_raise"] + 0.10 * f["frown"] * (0.25 - at.side)
    line = line + f["brow_tilt"] * out + f["brow_arch"] * out * out
    thick = f["brow_thick"] * (1 - 1.1 * out).clamp(0.3, 1.3)
    across = ramp(f["brow_length"] - out.abs(), 0.10)
    hairs = 1 + 0.35 * wave(at.u * 9 + at.v * 5)
    return across * ramp(thick - (at.v - line).abs(), at.soft + 0.02) * (f["brow_dense"] * hairs).clamp(max=1)


def _eyes(face: Numbers, at: Place, image: Tensor, colours: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    f = face
    out = at.side - f["eye_gap"]
    v = at.v - f["eye_height"] - f["eye_tilt"] * out
    arc = 1 - (out / f["eye_width"]) * (out / f["eye_width"])
    near = bump(out / (1.3 * f["eye_width"]))
    opened = f["eye_opened"]
    upper = v + opened * arc
    lower = 0.55 * f["eye_open"] * arc * (0.6 + 0.4 * f["lids"]) - v
    eye = ramp(torch.minimum(upper, lower), at.soft) * ramp(arc, 0.3)
    # crease of the lid, then lashes: both follow the upper edge
    crease = (0.25 + 0.15 * f["age"]) * bump((upper + f["eye_crease"]) / (0.022 + 0.3 * at.soft)) * near
    lash = (0.55 + 0.35 * f["lash"]) * bump((upper + 0.006) / (0.016 + 0.3 * at.soft)) * ramp(arc + 0.15, 0.3)
    rim = 0.25 * bump((lower + 0.004) / (0.012 + 0.25 * at.soft)) * ramp(arc, 0.4)
    image = image * (1 - (crease + lash + rim).clamp(max=0.85))[:, None]
    shade = 0.72 + 0.28 * ((upper) / 0.06).clamp(0, 1)  # the lid throws a shadow on the ball
    image = blend(image, eye, colours["sclera"] * shade[:, None])
    du, dv = out - at.sign * f["gaze_x"], v - f["gaze_y"] + 0.012
    radius = (du * du + dv * dv).sqrt()
    iris = ramp(f["iris_size"] - radius, at.soft) * eye
    spokes = 0.75 + 0.5 * (radius / f["iris_size"]).clamp(0, 1)
    limbus = 1 - 0.55 * ramp(radius - 0.8 * f["iris_size"], 0.03)
    image = blend(image, iris, colours["iris"] * (spokes * limbus * shade)[:, None])
    image = image * (1 - 0.95 * ramp(0.42 * f["iris_size"] - radius, at.soft) * eye)[:, None]
    # the catchlight is on the same side in both eyes, towards the lamp
    cu = at.u - at.sign * f["eye_gap"] - f["gaze_x"] - 0.035 * f["key_x"]
    cv = dv - 0.03 * f["key_y"]
    glint = ramp(0.02 - (cu * cu + cv * cv).sqrt(), at.soft) * eye
    return image + (0.75 * glint)[:, None] * (1 - image), eye


def _mouth(face: Numbers, at: Place, image: Tensor, colours: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    f = face
    x = at.u / f["mouth_w"]
    beyond = 1 - x * x
    arc = beyond.clamp(min=0)
    bend = (f["mouth_curve"] + 0.16 * f["smile"]) * (f["mouth_w"] * f["mouth_w"] * 4) * x * x - f["smirk"] * 0.05 * x
    v = at.v - f["mouth_v"] + bend
    bow = 1 - 0.5 * f["lip_bow"] * bump(x / 0.16) + 0.12 * f["lip_bow"] * bump((x.abs() - 0.24) / 0.18)
    full = arc * (0.55 + 0.45 * arc)
    upper = f["lip_upper"] * (1 - 0.18 * f["smile"].clamp(0, 1)) * full * bow
    lower = f["lip_lower"] * (1 - 0.12 * f["smile"].clamp(0, 1)) * arc
    gap = f["gap"] * arc
    lips = ramp(torch.minimum(v + upper, gap + lower - v), at.soft + 0.012) * ramp(arc, 0.12)
    image = blend(image, lips * 0.9, colours["lip"])
    # light catches the lower lip, and the upper one turns away from it
    modelling = 1 + lips * (0.10 * bump((v - gap - 0.5 * lower) / 0.035) - 0.14 * ramp(-v, 0.04))
    line = bump((v - 0.5 * gap) / (0.012 + 0.5 * gap + 0.25 * at.soft)) * ramp(beyond + 0.06, 0.14)
    shadow = spot(at.u / (0.8 * f["mouth_w"]), (v - gap - (f["lip_lower"] + 0.045)) / 0.045)
    image = image * (modelling * (1 - 0.55 * line) - 0.12 * shadow)[:, None]
    inside = ramp(torch.minimum(v, gap - v), at.soft) * ramp(gap - 0.02, 0.03)
    image = blend(image, inside, colours["throat"])
    teeth = ramp(0.045 + 0.03 * f["smile"].clamp(min=0) - v, at.soft) * inside * ramp(f["teeth"], 0.5)
    image = blend(image, teeth * 0.9, colours["teeth"])
    return image, lips * (1 - inside)


def _beard_cover(face: Numbers, at: Place, beard: Tensor) -> Tensor:
    hairs = 0.5 + 0.5 * wave(at.u * 7.3 + 1.5 * wave(at.v * 3.1)) * wave(at.v * 6.1 + 1.2 * at.u)
    x, y = at.u / face["mouth_w"], (at.v - face["mouth_v"]) / 0.07
    around = x * x + y * y
    off_lips = ((around - 0.7) / 0.8).clamp(0, 1)
    return (beard * (0.75 + 0.35 * hairs)).clamp(0, 0.92) * off_lips
