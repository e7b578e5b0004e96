"""The head: an ellipsoid with relief, and where each pixel's ray meets it.

A point of the head is named by (u, v), the stereographic image of its direction from the centre: the tip of the nose is
near (0, 0.4), the outline seen from the front is the circle of radius 2, and angles are kept everywhere. Relief is a
map over (u, v), a sum of products of one-dimensional profiles, hence one small matrix product however many there are.

Suffixes: n photographs, H × W pixels, G × G map nodes, K profiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.data.portrait.sitting import Numbers

REACH = 3.0  # maps cover −3 … 3 in u and v: everything but the back of the head
NODES = 96
EXTENT = 1.0  # half the side of the picture, where a head is about 0.74 half wide
_STRIDES = 9
_PAST = 0.12  # rays are followed a little past the outline, for ears stand out there


def bump(t: Tensor) -> Tensor:
    """About exp(−t²), but a polynomial, and 0 beyond |t| = 1.73."""
    rest = (t * t).mul_(-1 / 3).add_(1).clamp_(min=0)
    return (rest * rest).mul_(rest)


def spot(t: Tensor, s: Tensor) -> Tensor:
    """A bump in two directions at once, about exp(−t² − s²)."""
    rest = (t * t + s * s).mul_(-1 / 3).add_(1).clamp_(min=0)
    return (rest * rest).mul_(rest)


def ramp(t: Tensor, soft: Tensor | float) -> Tensor:
    """0 below, 1 above, straight between −soft/2 and soft/2: how much of a pixel lies beyond an edge at distance t."""
    return (t / soft).add_(0.5).clamp_(0, 1)


def wave(t: Tensor) -> Tensor:
    """Like sin(2πt), of parabolas."""
    t = (t - t.floor()).sub_(0.5)
    return t.abs().mul_(16).sub_(8).mul_(t)


def map_axis(device: torch.device) -> Tensor:
    return torch.linspace(-REACH, REACH, NODES, dtype=torch.float64).float().to(device)


def sum_of_bumps(u: Tensor, v: Tensor, ru: Tensor, rv: Tensor, height: Tensor, fold: Tensor | None = None) -> Tensor:
    """Map [n, G, G] of K bumps, all given as [n, K]; where ``fold`` [K] is 1 the bump stands on both sides of u = 0."""
    axis = map_axis(u.device)
    across = axis.expand(1, len(u[0]), NODES)
    if fold is not None:
        across = across + fold.view(1, -1, 1) * (across.abs() - across)
    pu = bump((across - u[..., None]) / ru[..., None])
    pv = bump((axis - v[..., None]) / rv[..., None]) * height[..., None]
    return pv.transpose(1, 2) @ pu


def relief(face: Numbers, private: Tensor) -> Tensor:
    """Height of the skin over the ellipsoid, as a map [n, G, G]; ``private`` is Identities.relief."""
    f = face
    smile, opened = f["smile"].clamp(min=0), f["mouth_open"]
    chin_v = 1.22 + f["chin_length"] + 0.12 * opened
    tip_v = f["eye_height"] + f["nose_length"]
    lip_v = f["mouth_v"]
    #   both sides, u, radius of u, v, radius of v, height
    hills: list[tuple[int, Tensor | float, Tensor | float, Tensor | float, Tensor | float, Tensor | float]] = [
        (0, 0.0, f["chin_width"], chin_v, 0.30, 0.04 + f["chin_length"]),
        (0, 0.0, 0.07, chin_v, 0.14, -f["chin_cleft"].clamp(min=0)),
        (1, 1.15, 0.45, 0.95, 0.40, f["jaw_square"]),
        (1, 0.82, 0.40, 0.26, 0.26, f["cheek_bone"]),
        (1, 0.85, 0.38, 0.66, 0.30, f["cheek_fill"] - 0.02 - 0.03 * f["age"]),
        (1, 0.60, 0.24, 0.36, 0.20, 0.055 * smile),
        (0, 0.0, 1.0, -0.62, 0.45, f["forehead"]),
        (1, 1.35, 0.40, -0.35, 0.45, -f["temple"]),
        (1, f["eye_gap"], 0.42, f["eye_height"] - 0.20, 0.12, f["brow_ridge"] + 0.02 * f["frown"]),
        (0, 0.0, 0.16, f["eye_height"] - 0.12, 0.14, f["brow_ridge"] * 0.6),
        (1, f["eye_gap"], 0.26, f["eye_height"], 0.15, -f["socket"] - 0.02 * f["age"]),
        (1, f["eye_gap"], 0.16, f["eye_height"], 0.10, 0.045),
        (1, f["eye_gap"], 0.20, f["eye_height"] + 0.16, 0.05, 0.02 * f["eye_bag"] + 0.02 * f["age"]),
        (0, f["nose_skew"], f["nose_tip"] + 0.07, tip_v, 0.11, 0.35 * f["nose_height"]),
        (1, f["nose_width"], 0.085, tip_v + 0.05, 0.085, 0.075),
        (0, 0.0, 0.06, 0.5 * (tip_v + lip_v) + 0.03, 0.08, -0.018),
        (0, 0.0, 0.44, lip_v, 0.26, 0.055),
        (0, 0.0, f["mouth_w"] * 0.8, lip_v - 0.6 * f["lip_upper"], f["lip_upper"] * 0.9, 0.030),
        (0, 0.0, f["mouth_w"] * 0.7, lip_v + f["gap"] + 0.6 * f["lip_lower"], f["lip_lower"] * 0.9, 0.042),
        (0, 0.0, 0.30, lip_v + f["gap"] + 1.9 * f["lip_lower"], 0.07, -0.035),
        (1, f["mouth_w"] + 0.08, 0.10, lip_v + 0.05, 0.16, -0.02 * f["age"] - 0.015 * smile),
        (1, 0.62, 0.20, 1.02, 0.20, 0.035 * f["age"]),
        (1, 2.00, 0.17, 0.10, f["ear_size"], f["ear_shown"]),
        (1, 1.86, 0.10, 0.06, 0.6 * f["ear_size"], -0.45 * f["ear_shown"]),
    ]
    like = f["age"].view(-1)
    columns = [torch.stack([_column(hill[i], like) for hill in hills], 1) for i in range(1, 6)]
    own = [private[..., i] for i in (0, 2, 1, 2, 3)]
    fold = torch.tensor([hill[0] for hill in hills] + [0] * private.shape[1], dtype=like.dtype, device=like.device)
    cu, ru, cv, rv, height = (torch.cat(pair, 1) for pair in zip(columns, own, strict=True))
    axis = map_axis(like.device)
    return sum_of_bumps(cu, cv, ru, rv, height, fold) + _nose_and_jaw(f, axis, tip_v)


def _nose_and_jaw(f: Numbers, axis: Tensor, tip_v: Tensor) -> Tensor:
    """Two parts whose profiles along the face are no bumps: the ridge of the nose, and the narrowing of the jaw."""
    u, v = axis.view(1, 1, -1), axis.view(1, -1, 1)
    top = f["eye_height"] - 0.10
    rise = ((v - top) / (tip_v - top)).clamp(0, 1)
    fall = ramp(tip_v + 0.085 - v, 0.15)
    slope = rise * (f["nose_bridge"] + (1 - f["nose_bridge"]) * rise) * fall
    ridge = bump((u - f["nose_skew"] * rise) / (0.11 + 0.40 * f["nose_width"] * rise))
    lower = ((v - 0.1) / 1.2).clamp(0, 1.6)
    side = bump((u.abs() - 1.7) / 1.1)
    under = (v - 1.55).clamp(0, 1)
    return f["nose_height"] * slope * ridge - f["jaw_taper"] * lower * side - 0.12 * under


def _column(value: Tensor | float, like: Tensor) -> Tensor:
    return value.reshape(-1) if isinstance(value, Tensor) else torch.full_like(like, value)


@dataclass(frozen=True)
class Rays:
    """One ray a pixel, origin + t·direction in the head's own frame; t grows towards the camera. All [n, H, W]."""

    x: Tensor  # where the pixel is in the picture
    y: Tensor
    origin: tuple[Tensor, Tensor, Tensor]
    direction: tuple[Tensor, Tensor, Tensor]


def rays(face: Numbers, size: int) -> Rays:
    """Rays of a camera at distance 1 / nearness in front of the head."""
    f = face
    device = f["zoom"].device
    line = ((torch.arange(size, dtype=torch.float64) + 0.5) / size * 2 - 1).mul(EXTENT).float().to(device)
    x, y = line.view(1, 1, size) * f["zoom"], line.view(1, size, 1) * f["zoom"]
    # Crops are made by the eyes: what turning does to their place is mostly undone.
    eye_y, eye_z = f["eye_height"] * f["head_height"], 0.9 * f["head_depth"]
    x = (x - f["shift_x"] + 0.75 * (f["r01"] * eye_y + f["r02"] * eye_z)).expand(-1, size, -1)
    y = (y - f["shift_y"] + 0.75 * (f["r11"] * eye_y + f["r12"] * eye_z - eye_y)).expand(-1, -1, size)
    x, y = torch.broadcast_tensors(x, y)
    x, y = x.contiguous(), y.contiguous()
    dx, dy = x * -f["nearness"], y * -f["nearness"]
    origin = [x * f[f"r0{i}"] + y * f[f"r1{i}"] for i in range(3)]
    direction = [dx * f[f"r0{i}"] + dy * f[f"r1{i}"] + f[f"r2{i}"] for i in range(3)]
    return Rays(x, y, (origin[0], origin[1], origin[2]), (direction[0], direction[1], direction[2]))


@dataclass(frozen=True)
class Hit:
    """Where rays meet the head. All [n, H, W]."""

    t: Tensor  # along the ray: also the depth seen by the camera
    cover: Tensor  # how much of the pixel the head fills, 0 … 1
    unit: tuple[Tensor, Tensor, Tensor]  # direction from the centre of the head, length 1, in ellipsoid units
    u: Tensor
    v: Tensor


def meet(head: Numbers, ray: Rays, height: Tensor, soft: float) -> Hit:
    """First meeting of each ray with the relief ``height`` [n, G, G].

    The ray is followed from the outermost relief inwards until it is below the surface, and the crossing is found
    between the last two steps. Unlike a fixed-point search this cannot oscillate where the ray grazes the nose.
    """
    axes = (head["head_width"], head["head_height"], head["head_depth"])
    ox, oy, oz = (o / a for o, a in zip(ray.origin, axes, strict=True))
    dx, dy, dz = (d / a for d, a in zip(ray.direction, axes, strict=True))
    dd = dx * dx + dy * dy + dz * dz
    nearest_t = -(ox * dx + oy * dy + oz * dz) / dd
    nearest = ((ox * ox + oy * oy + oz * oz) - dd * nearest_t * nearest_t).clamp(min=0)  # squared distance of the ray

    def enters(radius: Tensor) -> Tensor:
        """Where the ray enters the ellipsoid of this radius, or is nearest to it."""
        return nearest_t + ((radius * radius - nearest).clamp(min=0) / dd).sqrt()

    outermost = 1.01 + height.amax((1, 2)).view(-1, 1, 1)
    innermost = 0.99 + height.amin((1, 2)).view(-1, 1, 1)
    t = enters(outermost)
    stride = (t - enters(innermost) + _PAST) / (_STRIDES - 1)
    x, y, z = ox + t * dx, oy + t * dy, oz + t * dz
    step_x, step_y, step_z = stride * dx, stride * dy, stride * dz
    t_hit, found, before = torch.zeros_like(t), torch.zeros_like(t), torch.full_like(t, -1.0)
    deepest = before.clone()
    for _ in range(_STRIDES):  # in place where it can be: this loop is a third of the work
        radius, u, v = _on_map(x, y, z)
        below = look_up(height[:, None], u, v)[:, 0].add_(1).sub_(radius)
        inside = (below * 1e9).clamp_(0, 1)
        back = (below / (below - before).clamp_(min=1e-6)).clamp_(0, 1).mul_(stride).add_(t)
        t_hit.add_((inside - inside * found).mul_(back))
        found, deepest = torch.maximum(found, inside), torch.maximum(deepest, below)
        before = below
        t.sub_(stride)
        x.sub_(step_x), y.sub_(step_y), z.sub_(step_z)
    t_hit.add_((1 - found).mul_(nearest_t))
    x, y, z = ox + t_hit * dx, oy + t_hit * dy, oz + t_hit * dz
    radius, u, v = _on_map(x, y, z)
    return Hit(t_hit, ramp(deepest, soft), (x / radius, y / radius, z / radius), u, v)


def _on_map(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distance of a point from the centre, and its (u, v). The back of the head folds onto the rim of the map."""
    radius = (x * x).add_(y * y).add_(z * z).clamp_(min=1e-6).sqrt_()
    to_map = torch.maximum(radius + z, 0.2 * radius).reciprocal_().mul_(2)
    return radius, x * to_map, y * to_map


def look_up(maps: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Maps [n, C, G, G] at (u, v) [n, H, W]: [n, C, H, W]."""
    grid = torch.view_as_real(torch.complex(u * (1 / REACH), v * (1 / REACH)))  # a fast way to interleave
    return F.grid_sample(maps, grid, mode="bilinear", padding_mode="border", align_corners=True)


def slopes(height: Tensor) -> Tensor:
    """Derivatives of a map [n, G, G] by u and by v: [n, 2, G, G]."""
    step = 2 * REACH / (NODES - 1)
    padded = F.pad(height[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    by_u = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    by_v = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    return torch.stack([by_u, by_v], 1) / (2 * step)


def hollows(height: Tensor) -> Tensor:
    """How far a map [n, G, G] lies below its surroundings: light that does not get in."""
    axis = map_axis(height.device)
    weight = bump((axis[:, None] - axis[None]) / 0.22)
    weight = weight / weight.sum(1, keepdim=True)
    return weight @ height @ weight.T - height


def normals(head: Numbers, hit: Hit, by_u: Tensor, by_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unit normals in the camera's frame, from the slopes of the relief at the hit."""
    x, y, z = hit.unit
    k = 1 / (1 + z).clamp(min=0.2)
    w = 1 + (hit.u * by_u + hit.v * by_v) * k
    nx = (x * w - 2 * k * by_u) / head["head_width"]
    ny = (y * w - 2 * k * by_v) / head["head_height"]
    nz = (z * w + (w - 1)) / head["head_depth"]
    length = (nx * nx + ny * ny + nz * nz).clamp(min=1e-6).sqrt()
    nx, ny, nz = nx / length, ny / length, nz / length
    cx, cy, cz = (nx * head[f"r{i}0"] + ny * head[f"r{i}1"] + nz * head[f"r{i}2"] for i in range(3))
    return cx, cy, cz
