"""People who do not exist: an identity is a vector, and identity k is a function of (seed, k) alone."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from coalface.data.portrait.counter import keys, uniforms

# Middle and half range of each trait. Lengths are in half head widths; +v is down; the eyes are near v = 0.
SHAPE: dict[str, tuple[float, float]] = {
    "head_width": (0.74, 0.055),
    "head_height": (0.98, 0.06),
    "head_depth": (0.86, 0.06),
    "jaw_taper": (0.06, 0.075),
    "jaw_square": (0.03, 0.07),
    "chin_length": (0.09, 0.06),
    "chin_width": (0.42, 0.14),
    "chin_cleft": (0.0, 0.03),
    "cheek_bone": (0.045, 0.045),
    "cheek_fill": (0.0, 0.05),
    "forehead": (0.02, 0.04),
    "temple": (0.04, 0.04),
    "brow_ridge": (0.035, 0.035),
    "socket": (0.06, 0.03),
    "eye_gap": (0.43, 0.055),
    "eye_height": (-0.05, 0.05),
    "eye_width": (0.20, 0.03),
    "eye_open": (0.090, 0.026),
    "eye_tilt": (-0.04, 0.16),
    "eye_crease": (0.055, 0.03),
    "eye_bag": (0.25, 0.25),
    "iris_size": (0.088, 0.008),
    "brow_height": (0.19, 0.05),
    "brow_thick": (0.036, 0.018),
    "brow_length": (0.25, 0.05),
    "brow_tilt": (-0.05, 0.17),
    "brow_arch": (0.8, 0.9),
    "brow_dense": (0.75, 0.25),
    "nose_length": (0.38, 0.06),
    "nose_height": (0.23, 0.07),
    "nose_bridge": (0.5, 0.25),
    "nose_width": (0.165, 0.045),
    "nose_tip": (0.085, 0.045),
    "nose_skew": (0.0, 0.03),
    "nostril": (0.55, 0.3),
    "mouth_height": (0.68, 0.05),
    "mouth_width": (0.38, 0.07),
    "lip_upper": (0.058, 0.026),
    "lip_lower": (0.075, 0.03),
    "lip_bow": (0.45, 0.45),
    "lip_tone": (0.45, 0.35),
    "mouth_curve": (0.0, 0.10),
    "ear_size": (0.50, 0.10),
    "ear_out": (0.24, 0.10),
    "tilt_across": (0.0, 0.035),
    "tilt_along": (0.0, 0.035),
    "hairline": (0.80, 0.13),
    "hair_recede": (0.10, 0.18),
    "hair_peak": (0.0, 0.08),
    "hair_part": (0.0, 0.7),
    "hair_volume": (1.0, 0.35),
    "blush": (0.055, 0.055),
    "gloss": (0.20, 0.10),
}
_COLUMN = {name: column for column, name in enumerate(SHAPE)}
_MIDDLE, _HALF = torch.tensor(list(SHAPE.values()), dtype=torch.float64).unbind(1)

# How often each hair style is drawn; what a style is stands in wear.py, in this order.
STYLES = {
    "bald": 0.06, "crown": 0.06, "buzz": 0.12, "short": 0.20, "quiff": 0.10,
    "curly": 0.10, "afro": 0.06, "bob": 0.10, "long": 0.14, "tied": 0.06,
}  # fmt: skip
MARKS, PATCHES, RELIEF = 18, 8, 12


@dataclass(frozen=True)
class Identities:
    """n people. What is fixed about each of them; everything else is the photograph's."""

    index: Tensor  # int64 [n]; the k of each person
    shape: Tensor  # float32 [n, S]; see SHAPE
    skin: Tensor  # float32 [n, 3]; colours are reflectances in 0…1
    hair: Tensor  # float32 [n, 3]
    iris: Tensor  # float32 [n, 3]
    marks: Tensor  # float32 [n, M, 4]; moles, freckles and patches: u, v, radius, how dark (below 0: pale)
    relief: Tensor  # float32 [n, R, 4]; this face's own hills and hollows: u, v, radius, height
    age: Tensor  # float32 [n]; 0 smooth … 1 wrinkled
    beard: Tensor  # float32 [n, 3]; moustache, chin, cheeks
    hair_style: Tensor  # int64 [n]; a row of STYLES
    glasses: Tensor  # float32 [n, 4]; usually worn (0 or 1), lens half width, squareness, rim
    frame: Tensor  # float32 [n, 3]; colour of the rim

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice | Tensor) -> Identities:
        return Identities(*(getattr(self, f.name)[rows] for f in fields(self)))

    def to(self, device: torch.device | str) -> Identities:
        return Identities(*(getattr(self, f.name).to(device) for f in fields(self)))

    def trait(self, name: str) -> Tensor:
        """One column of ``shape``, [n]."""
        return self.shape[:, _COLUMN[name]]


def draw_identities(first: int, count: int, seed: int, device: torch.device | str = "cpu") -> Identities:
    """Identities first … first + count − 1. Ranges that do not overlap are different people, by construction."""
    if first < 0 or count < 0:
        raise ValueError(f"identities are numbered from 0: first={first}, count={count} cannot be drawn")
    index = torch.arange(first, first + count)
    place = iter(range(64))

    def draw(*shape: int) -> Tensor:
        size = int(torch.tensor(shape).prod()) if shape else 1
        return uniforms(keys(seed, next(place), index), size).view(count, *shape)

    age = draw() ** 1.5
    drawn = (
        _MIDDLE + _HALF * (2 * draw(len(SHAPE)) - 1),
        _skin(draw(3)),
        _hair(draw(4), age),
        _iris(draw(3)),
        torch.cat([_marks(draw(MARKS, 4), draw()), _patches(draw(PATCHES, 4))], 1),
        _relief(draw(RELIEF, 4)),
        age,
        _beard(draw(5)),
    )
    style = torch.bucketize(draw(), torch.tensor(list(STYLES.values()), dtype=torch.float64).cumsum(0)[:-1])
    worn = draw(7)
    glasses = torch.stack(
        [worn[:, 0].lt(0.25).double(), 0.235 + 0.06 * worn[:, 1], worn[:, 2], 0.018 + 0.026 * worn[:, 3] ** 2], 1
    )
    frame = 0.04 + 0.40 * worn[:, 4:5] * (0.6 + 0.4 * worn[:, 4:])
    shape, skin, hair, iris, marks, relief, age, beard, glasses, frame = (t.float() for t in (*drawn, glasses, frame))
    people = Identities(index, shape, skin, hair, iris, marks, relief, age, beard, style, glasses, frame)
    return people.to(device)


def _skin(u: Tensor) -> Tensor:
    """Light to dark along melanin, then a little more or less blood, a little warmer or cooler."""
    pale = torch.tensor([0.93, 0.72, 0.62], dtype=u.dtype)
    deep = torch.tensor([0.44, 0.28, 0.20], dtype=u.dtype)
    tone = pale + (deep - pale) * u[:, :1] ** 1.2
    return tone * (1 + (u[:, 1:2] - 0.5) * torch.tensor([0.06, -0.06, 0.0], dtype=u.dtype)
                   + (u[:, 2:] - 0.5) * torch.tensor([0.0, 0.0, 0.16], dtype=u.dtype))  # fmt: skip


def _hair(u: Tensor, age: Tensor) -> Tensor:
    black = torch.tensor([0.07, 0.06, 0.06], dtype=u.dtype)
    brown = torch.tensor([0.34, 0.22, 0.13], dtype=u.dtype)
    blond = torch.tensor([0.80, 0.64, 0.38], dtype=u.dtype)
    red = torch.tensor([0.55, 0.24, 0.10], dtype=u.dtype)
    light = u[:, :1] ** 1.3
    colour = black + (brown - black) * (2 * light).clamp(max=1) + (blond - brown) * (2 * light - 1).clamp(min=0)
    colour = colour + (red - colour) * ((u[:, 1:2] - 0.85) / 0.15).clamp(0, 0.8)
    grey = ((age[:, None] - 0.55) / 0.3).clamp(0, 1) * u[:, 2:3]
    return colour + ((0.55 + 0.3 * u[:, 3:]) - colour) * grey


def _iris(u: Tensor) -> Tensor:
    brown = torch.tensor([0.24, 0.13, 0.06], dtype=u.dtype)
    green = torch.tensor([0.36, 0.40, 0.22], dtype=u.dtype)
    blue = torch.tensor([0.35, 0.50, 0.66], dtype=u.dtype)
    colour = brown + (green - brown) * ((u[:, :1] - 0.45) / 0.2).clamp(0, 1)
    colour = colour + (blue - colour) * ((u[:, :1] - 0.65) / 0.15).clamp(0, 1)
    return colour * (0.7 + 0.6 * u[:, 1:2])


def _marks(u: Tensor, freckled: Tensor) -> Tensor:
    """A few moles that one would notice, and freckles on those who have them."""
    n = len(u)
    across, along = 2.6 * u[..., 0] - 1.3, 1.9 * u[..., 1] - 0.75
    mole = torch.arange(MARKS) < 6
    radius = torch.where(mole, 0.045 + 0.035 * u[..., 2], 0.04 + 0.03 * u[..., 2])
    has = ((freckled - 0.6) / 0.4).clamp(min=0).view(n, 1)
    dark = torch.where(mole, 0.9 * ((u[..., 3] - 0.5) / 0.5).clamp(min=0), 0.5 * has * u[..., 3])
    freckle_across = torch.where(mole, across, 0.75 * across)
    freckle_along = torch.where(mole, along, 0.25 + 0.35 * (along - 0.2))
    return torch.stack([freckle_across, freckle_along, radius, dark], -1)


def _patches(u: Tensor) -> Tensor:
    """Broad uneven pigment, darker or paler than the rest."""
    return torch.stack(
        [2.8 * u[..., 0] - 1.4, 2.2 * u[..., 1] - 0.9, 0.16 + 0.35 * u[..., 2], 0.40 * (u[..., 3] - 0.5)], -1
    )


def _relief(u: Tensor) -> Tensor:
    return torch.stack(
        [2.6 * u[..., 0] - 1.3, 2.2 * u[..., 1] - 0.8, 0.16 + 0.24 * u[..., 2], 0.07 * (u[..., 3] - 0.5)], -1
    )


def _beard(u: Tensor) -> Tensor:
    """Half have none, some a shadow, some a beard; its three parts vary by themselves."""
    strength = ((u[:, :1] - 0.5) / 0.5).clamp(min=0)
    parts = ((u[:, 1:4] - 0.25) / 0.5).clamp(0, 1)
    whole = (u[:, 4:] < 0.5).double()
    return strength * (whole + (1 - whole) * parts)
