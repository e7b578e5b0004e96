"""One photograph from its person and its sitting: the steps of the other files, in order."""

from __future__ import annotations

import torch
from torch import Tensor

from coalface.data.portrait.camera import develop
from coalface.data.portrait.paint import blend, paint_face, place
from coalface.data.portrait.people import SHAPE, Identities
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.stage import backdrop, body, colour, lamps, lit
from coalface.data.portrait.surface import (
    EXTENT,
    Hit,
    hollows,
    look_up,
    meet,
    normals,
    ramp,
    rays,
    relief,
    slopes,
    sum_of_bumps,
)
from coalface.data.portrait.wear import beard_map, glasses, hair_map, strands, style_numbers

_FAR, _NEAR = -0.55, 1.45  # depths that become 0 and 1


def render(identities: Identities, sitting: dict[str, Tensor], noise_key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Images uint8 [n, 3, H, W] and depth float32 [n, H, W], of each person at their sitting (see ``sit``)."""
    f = numbers(identities, sitting)
    light, depth = scene(identities, f, size)
    return develop(f, light, noise_key.to(light.device)), depth


def scene(identities: Identities, f: Numbers, size: int) -> tuple[Tensor, Tensor]:
    """The light that reaches the camera, float32 [n, 3, H, W], and depth [n, H, W]; ``f`` is from ``numbers``."""
    c = _colours(identities, f)
    soft = 2 * EXTENT / size / 0.74  # a pixel, in half head widths

    grows, thick = hair_map(f)
    beard = beard_map(f, identities.beard)
    skin_height = relief(f, identities.relief)
    height = skin_height + thick + 0.05 * beard.clamp(0, 1.2)
    m = identities.marks
    pigment = sum_of_bumps(m[..., 0], m[..., 1], m[..., 2], m[..., 2], m[..., 3])
    maps = torch.cat([torch.stack([height, grows, beard, pigment, hollows(height)], 1), slopes(height)], 1)

    ray = rays(f, size)
    hit = meet(f, ray, height, soft)
    here, grows, beard, pigment, hollow, by_u, by_v = look_up(maps, hit.u, hit.v).unbind(1)
    normal = normals(f, hit, by_u, by_v)
    shadow = _cast(f, height, here, hit)
    lamp = lamps(f)

    at = place(f, hit.u, hit.v, soft)
    painted = paint_face(f, at, pigment, beard, c)
    hair = ramp(grows, 1.5 * soft + 0.06) * (f["style_cover"] + f["hat"] - f["style_cover"] * f["hat"])
    streaks = strands(f, hit.u, hit.v) * (1 - f["hat"])
    tint = c["hair"] * (0.85 + 0.30 * streaks)[:, None]
    albedo = blend(painted.colour, hair, tint)
    gloss = painted.gloss * (1 - hair) + hair * (0.10 + 0.08 * streaks).clamp(min=0) * (1 - f["hat"])
    open_ = (1 - 5.0 * hollow.clamp(-0.02, 0.13)) * (1 - 0.25 * painted.eye)
    head = lit(f, lamp, albedo, normal, open_, shadow, gloss)

    rim, lens, glare = glasses(f, ray, hit)
    head = head * (1 - lens * (0.06 + f["lens_dark"]))[:, None]
    head = head + (glare * f["lens_glare"])[:, None] * lamp.key
    head = blend(head, rim, c["frame"] * (lamp.key + lamp.fill))

    behind = body(f, lamp, ray, backdrop(f, size), c["skin"], c["hair"])
    return blend(behind, hit.cover, head), _face_depth(hit, hair)


def _cast(f: Numbers, height: Tensor, here: Tensor, hit: Hit) -> Tensor:
    """How much the relief on the way to the lamp is above the line of light, 0 … 1: shadows of nose and brow."""
    lx, ly, lz = (f["key_x"] * f[f"r0{i}"] + f["key_y"] * f[f"r1{i}"] + f["key_z"] * f[f"r2{i}"] for i in range(3))
    above = torch.zeros_like(here)
    for step in (0.12, 0.26):
        along = look_up(height[:, None], hit.u + step * lx, hit.v + step * ly)[:, 0]
        above = torch.maximum(above, along - here - step * 0.55 * lz.clamp(min=0) - 0.02)
    return (above * 9).clamp(0, 1)


def _face_depth(hit: Hit, hair: Tensor) -> Tensor:
    """Depth of the visible skin of the face; 0 elsewhere, hair and ears included."""
    on_face = (1.85 - hit.u.abs() > 0) & (hit.v < 1.75) & (hit.v > -1.6) & (hit.cover > 0.5) & (hair < 0.5)
    return ((hit.t - _FAR) / (_NEAR - _FAR)).clamp(0.02, 1) * on_face


def _colours(identities: Identities, f: Numbers) -> dict[str, Tensor]:
    """Colours of the parts, [n, 3, 1, 1]."""

    def constant(*rgb: float) -> Tensor:
        return torch.tensor(rgb, device=identities.skin.device).view(1, 3, 1, 1)

    def wide(number: Tensor) -> Tensor:
        return number[:, None]

    skin, hair, iris, frame = (
        t.view(-1, 3, 1, 1) for t in (identities.skin, identities.hair, identities.iris, identities.frame)
    )
    lip = skin * (constant(0.98, 0.70, 0.70) + wide(f["lip_tone"]) * constant(-0.06, -0.22, -0.16))
    painted_lip = constant(0.62, 0.12, 0.16)
    frame = frame + wide(f["glasses_other"]) * (0.5 * wide(f["other_shade"]) - frame)
    hat = colour(f, "hat")
    return {
        "skin": skin,
        "hair": hair + wide(f["hat"]) * (0.1 + 0.7 * hat - hair),
        "beard": 0.75 * hair + 0.06 * skin,
        "brow": 0.7 * hair + 0.04,
        "iris": iris,
        "sclera": constant(0.88, 0.86, 0.84),
        "lip": lip + wide(f["lip_paint"]) * (painted_lip - lip),
        "throat": constant(0.16, 0.05, 0.05),
        "teeth": constant(0.86, 0.84, 0.78),
        "frame": frame,
    }


def numbers(identities: Identities, sitting: dict[str, Tensor]) -> Numbers:
    """Person, sitting and what follows from both, each [n, 1, 1] on the person's device."""
    table = torch.stack(list(sitting.values()), 1).to(identities.index.device)
    parts = [
        {name: column.view(-1, 1, 1) for name, column in zip(sitting, table.unbind(1), strict=True)},
        {name: column.view(-1, 1, 1) for name, column in zip(SHAPE, identities.shape.unbind(1), strict=True)},
        style_numbers(identities.hair_style),
        {"age": identities.age.view(-1, 1, 1)},
    ]
    known = {name: number for part in parts for name, number in part.items()}
    derived = _derived(known) | _glasses(known, identities.glasses)
    everything = known | derived
    if len(everything) != sum(len(part) for part in [*parts, derived]):
        raise AssertionError("two numbers of a sitting bear one name, and one would hide the other")
    return everything


def _derived(f: Numbers) -> Numbers:
    """What the expression makes of the shape."""
    smile = f["smile"].clamp(min=0)
    gap = 0.17 * f["mouth_open"] + 0.03 * (smile - 0.5).clamp(min=0)
    return {
        "gap": gap,
        "teeth": smile + 0.5 * f["mouth_open"] - 0.35,
        "mouth_v": f["mouth_height"] - 0.3 * gap,
        "mouth_w": f["mouth_width"] * (1 + 0.16 * f["smile"] - 0.10 * f["mouth_open"]),
        "eye_opened": f["eye_open"] * f["lids"] * (1 - 0.22 * smile),
        "lash": (f["brow_dense"] - 0.5).clamp(0, 1),
        "own_phase": 3 * f["hair_part"],  # where this person's wrinkles and curls fall
        "ear_shown": f["ear_out"] * f["style_ears"],
        "neck": 0.40 + (f["head_width"] - 0.74) + 0.8 * f["jaw_square"],
    }


def _glasses(f: Numbers, own: Tensor) -> Numbers:
    """Whether glasses are worn today, and which: the person's own, or others."""
    habit, width, square, rim = (own[:, i].view(-1, 1, 1) for i in range(4))
    other = f["glasses_other"]
    return {
        "glasses": habit * (1 - f["glasses_off"]) + (1 - habit) * f["glasses_on"],
        "lens_width": width + other * (0.235 + 0.06 * f["other_width"] - width),
        "lens_square": square + other * (f["other_square"] - square),
        "rim": rim,
    }
