"""What grows or sits on a head: hair, beard, hat, glasses."""

from __future__ import annotations

import torch
from torch import Tensor

from coalface.data.portrait.people import STYLES
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.surface import Hit, Rays, bump, map_axis, ramp, sum_of_bumps, wave

# top, side: thickness. lift, recede: of the hairline. line: |u| where side hair begins. reach: v where it ends.
# ceiling: how far up the side hair goes. curtain: hair behind the shoulders. curl. cover: 1 hides the skin.
_STYLE_COLUMNS = ("top", "side", "lift", "recede", "line", "reach", "ceiling", "curtain", "curl", "cover", "ears")
_STYLE_ROWS: dict[str, tuple[float, ...]] = {
    "bald": (0.0, 0.0, 4.0, 0.0, 6.0, -4.0, 9.0, 0, 0.0, 0.0, 1.0),
    "crown": (0.0, 0.05, 3.0, 0.0, 1.72, 0.30, 0.85, 0, 0.3, 0.85, 1.0),
    "buzz": (0.03, 0.02, 0.0, 0.1, 1.72, 0.00, 9.0, 0, 0.2, 0.72, 1.0),
    "short": (0.13, 0.07, 0.0, 0.0, 1.70, 0.12, 9.0, 0, 0.3, 1.0, 1.0),
    "quiff": (0.27, 0.05, 0.0, 0.1, 1.72, 0.05, 9.0, 0, 0.2, 1.0, 1.0),
    "curly": (0.26, 0.18, -0.05, 0.0, 1.62, 0.35, 9.0, 0, 1.0, 1.0, 0.6),
    "afro": (0.48, 0.42, 0.0, 0.0, 1.62, 0.45, 9.0, 0, 0.9, 1.0, 0.0),
    "bob": (0.16, 0.24, -0.05, 0.0, 1.48, 1.25, 9.0, 0, 0.3, 1.0, 0.0),
    "long": (0.14, 0.17, 0.0, 0.0, 1.45, 4.0, 9.0, 1, 0.4, 1.0, 0.0),
    "tied": (0.06, 0.04, 0.0, 0.0, 1.70, 0.15, 9.0, 0, 0.1, 1.0, 1.0),
}


def style_numbers(style: Tensor) -> Numbers:
    """The columns of each person's hair style, [n, 1, 1] each."""
    table = torch.tensor([_STYLE_ROWS[name] for name in STYLES], dtype=torch.float32, device=style.device)
    return {f"style_{name}": table[style, i].view(-1, 1, 1) for i, name in enumerate(_STYLE_COLUMNS)}


def hair_map(face: Numbers) -> tuple[Tensor, Tensor]:
    """Where hair grows (above 0 inside, about a distance in u), and how thick it stands: two maps [n, G, G]."""
    f = face
    axis = map_axis(f["age"].device)
    u, v = axis.view(1, 1, -1), axis.view(1, -1, 1)
    side = u.abs()
    tangle = wave(1.9 * u + f["own_phase"]) * wave(1.7 * v - f["own_phase"]) + 0.6 * wave(4.1 * u) * wave(
        3.7 * v + f["own_phase"]
    )
    temple = bump((side - 0.62) / 0.38)
    arch = ((side - 0.75) / 0.8).clamp(0, 1.5)
    fringe = f["fringe"] * ramp(f["style_top"] - 0.05, 0.05) * (1 - f["hat"])
    line = (
        f["hairline"]
        + f["style_lift"]
        + (f["hair_recede"] + f["style_recede"]) * temple
        - f["hair_peak"] * bump(u / 0.22)
    )
    line = (
        line
        - 0.55 * arch * arch
        - fringe * (1 + 0.25 * wave(2.6 * u + f["hair_sway"])) * bump((u - 0.5 * f["hair_part"]) / 1.3)
    )
    line = line + f["hat"] * (0.60 - 0.10 * side - line)
    sides = torch.minimum(side - f["style_line"], torch.minimum(f["style_reach"] - v, v + f["style_ceiling"]))
    grows = torch.maximum(-v - line, sides) + 0.05 * f["style_curl"] * tangle * (1 - f["hat"])
    grows = grows - 0.9 * f["style_ears"] * bump((side - 1.98) / 0.20) * bump((v - 0.10) / f["ear_size"])
    full = (grows / 0.45).clamp(0, 1)
    top = (-v / 1.3).clamp(0, 1) * (1 + 0.18 * f["hair_part"] * u.clamp(-1, 1))
    thick = f["style_side"] + (f["style_top"] - f["style_side"]) * top
    thick = thick * f["hair_volume"] * f["hair_lift"] * (1 + 0.25 * f["style_curl"] * tangle)
    thick = thick + f["hat"] * (0.13 * ramp(-v - line, 0.2) - 0.7 * thick)
    return grows, thick * full * (2 - full)


def beard_map(face: Numbers, parts: Tensor) -> Tensor:
    """How dense the beard is, [n, G, G], from its moustache, chin and cheeks [n, 3]."""
    f = face
    growth = f["beard_growth"].view(-1, 1)
    moustache, chin, cheeks = (parts[:, i : i + 1] * growth for i in range(3))
    lip_v = f["mouth_v"].view(-1, 1)
    gap = f["gap"].view(-1, 1)
    one = torch.ones_like(lip_v)
    cu = torch.cat([0.15 * one, 0 * one, 0.45 * one, 1.0 * one, 1.5 * one], 1)
    ru = torch.cat([0.26 * one, 0.36 * one, 0.30 * one, 0.52 * one, 0.28 * one], 1)
    cv = torch.cat([lip_v - 0.13, lip_v + gap + 0.55, lip_v + 0.45, 1.25 * one, 0.55 * one], 1)
    rv = torch.cat([0.10 * one, 0.46 * one, 0.55 * one, 0.60 * one, 0.60 * one], 1)
    height = torch.cat([1.6 * moustache, 1.5 * chin, 0.9 * chin, 1.5 * cheeks, 1.2 * cheeks], 1)
    return sum_of_bumps(cu, cv, ru, rv, height, torch.ones(5, device=parts.device))


def strands(face: Numbers, u: Tensor, v: Tensor) -> Tensor:
    """Light and dark along the hair, about −1 … 1, [n, H, W]."""
    f = face
    across = (u - 0.4 * f["hair_part"]) * 3.2 / (0.55 + 0.8 * v.clamp(max=0).abs())
    across = across + 0.25 * wave(0.7 * v + f["hair_sway"]) + f["own_phase"]
    straight = 0.30 * wave(1.9 * across) + 0.35 * wave(4.7 * across + 0.3 * v) + 0.2 * wave(1.1 * v)
    curls = wave(2.3 * u + 0.4 * wave(1.3 * v)) * wave(2.1 * v + 0.4 * wave(1.7 * u + f["own_phase"]))
    return straight + f["style_curl"] * (1.3 * curls - 0.4 * straight)


def glasses(face: Numbers, ray: Rays, hit: Hit) -> tuple[Tensor, Tensor, Tensor]:
    """Coverage by rim, by lens, and by glare on the lens, each [n, H, W]."""
    f = face
    (ox, oy, oz), (dx, dy, dz) = ray.origin, ray.direction
    soft = 2.4 / ray.x.shape[-1]
    plane = 0.95 * f["head_depth"] + 0.09
    t = (plane - oz) / dz.clamp(min=0.2)
    x, y = ox + t * dx, oy + t * dy
    in_front = ramp(t - hit.t + 0.02, 0.02)
    centre, width = f["eye_gap"] * f["head_width"] * 0.97, f["lens_width"] * 0.92
    lx = (x.abs() - centre) / width
    ly = (y - f["eye_height"] * f["head_height"] - 0.03) / (width * (0.92 - 0.25 * f["lens_square"]))
    # between a circle and a rounded rectangle
    round_, square = (lx * lx + ly * ly).sqrt(), torch.maximum(lx.abs(), ly.abs())
    inwards = (1 - round_ - 0.8 * f["lens_square"] * (square - round_)) * width
    rim = ramp(f["rim"] * 0.5 - inwards.abs() + 0.3 * soft, soft)
    bridge = ramp(f["rim"] * 0.45 - (y - f["eye_height"] * f["head_height"]).abs(), soft)
    bridge = bridge * ramp(centre - width - x.abs() + 0.02, soft)
    lens = ramp(inwards, soft)
    glare = lens * bump((lx + 0.8 * ly - 0.5 * f["key_x"]) / 0.35)
    # the arm on this pixel's side runs from the hinge back and outwards to the ear
    side = ((ox + 0.5 * dx) * 1e6).clamp(-1, 1)
    hinge, ear = centre + width, 1.04 * f["head_width"]
    splay = (ear - hinge) / plane
    t_arm = (ear - side * ox - splay * oz) / (side * dx + splay * dz).clamp(min=0.06)
    ay, az = oy + t_arm * dy - f["eye_height"] * f["head_height"], oz + t_arm * dz
    arm = ramp(f["rim"] * 0.5 - ay.abs() + 0.2 * soft, soft) * ramp(torch.minimum(plane - az, az - 0.05), 2 * soft)
    arm = arm * ramp(t_arm - hit.t, 0.02)
    seen = f["glasses"]
    return (
        torch.maximum(torch.maximum(rim, bridge) * in_front, arm) * seen,
        lens * in_front * seen,
        glare * in_front * seen,
    )
