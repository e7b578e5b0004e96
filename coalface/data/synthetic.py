"""Faces from nothing: people who do not exist, and photographs of them.

An identity is a vector (shape, colours, marks, age, hair); a photograph adds what is not the person (pose, expression,
light, occlusion, background, camera), as strongly as its ``Conditions`` say. Depth comes free. Image j of identity k is
a function of (seed, k, j): disjoint ranges of k are disjoint people, and any part of a set can be drawn alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coalface.data.faceset import FaceSet
from coalface.data.portrait.counter import keys, uniforms
from coalface.data.portrait.people import Identities, draw_identities
from coalface.data.portrait.render import render
from coalface.data.portrait.sitting import DRAWS, Conditions, sit

__all__ = [
    "EASY",
    "HARD",
    "STANDARD",
    "Conditions",
    "Identities",
    "Photographs",
    "draw_faceset",
    "draw_identities",
    "photograph",
]

EASY = Conditions(pose=0.35, expression=0.5, light=0.3, occlusion=0.25, background=1.0, blur=0.2, noise=0.3, tone=0.4)
STANDARD = Conditions(pose=0.6, expression=0.8, light=0.6, occlusion=0.6, background=1.0, blur=0.5, noise=0.6, tone=0.7)
HARD = Conditions(pose=0.9, expression=1.1, light=0.95, occlusion=1.1, background=1.0, blur=0.8, noise=0.9, tone=1.0)

_SITTING, _NOISE = 1_000, 1_001  # streams of the counter, apart from those of the people
_SITTINGS_AT_ONCE = 4096
_PIXELS_AT_ONCE = {"cpu": 64 * 64 * 32, "cuda": 64 * 64 * 2048}


@dataclass(frozen=True)
class Photographs:
    """n photographs and the depth of the face in them."""

    images: Tensor  # uint8 [n, 3, H, W]
    depth: Tensor  # float32 [n, H, W]; 0 where there is no face, else in (0, 1], 1 nearest


def photograph(
    identities: Identities, size: int, generator: torch.Generator, conditions: Conditions = STANDARD
) -> Photographs:
    """One photograph of each row of ``identities``, on their device; repeat rows for more photographs of a person."""
    n, device = len(identities), identities.index.device
    drawn = torch.rand(n, DRAWS, generator=generator, dtype=torch.float64, device=generator.device).cpu()
    noise_key = torch.randint(-(2**62), 2**62, (n,), generator=generator, device=generator.device).cpu()
    photographs = Photographs(
        torch.empty(n, 3, size, size, dtype=torch.uint8, device=device), torch.empty(n, size, size, device=device)
    )
    for block in _slices(n, _SITTINGS_AT_ONCE):
        sitting = sit(drawn[block].clamp(1e-9, 1 - 1e-9), conditions)
        _fill(photographs.images[block], photographs.depth[block], identities[block], sitting, noise_key[block])
    return photographs


def draw_faceset(
    first: int,
    count: int,
    per_identity: int | Sequence[int],
    size: int,
    seed: int,
    conditions: Conditions = STANDARD,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> FaceSet:
    """Identities first … first + count − 1, with ``per_identity`` photographs each (or as many as its list says).

    ``progress`` is called with (images done, images in all).
    """
    people = draw_identities(first, count, seed, device)
    counts = [per_identity] * count if isinstance(per_identity, int) else list(per_identity)
    if len(counts) != count or min(counts, default=0) < 0:
        raise ValueError(f"per_identity must hold {count} numbers, 0 or more, not {per_identity}")
    who = torch.repeat_interleave(torch.arange(count), torch.tensor(counts, dtype=torch.int64))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(counts, dtype=torch.int64).cumsum(0)])
    which = torch.arange(len(who)) - offsets[who]
    images = torch.empty(len(who), 3, size, size, dtype=torch.uint8, device=device)
    for block in _slices(len(who), _SITTINGS_AT_ONCE):
        person, photo = who[block] + first, which[block]
        sitting = sit(uniforms(keys(seed, _SITTING, person, photo), DRAWS), conditions)
        noise_key = torch.from_numpy(keys(seed, _NOISE, person, photo).view(np.int64))
        _fill(images[block], None, people[who[block].to(images.device)], sitting, noise_key)
        if progress is not None:
            progress(block.stop, len(who))
    return FaceSet(images, offsets)


def _fill(
    images: Tensor, depth: Tensor | None, identities: Identities, sitting: dict[str, Tensor], noise_key: Tensor
) -> None:
    """Renders into ``images`` and ``depth``, so many at once as keep the device busy and a core's cache warm."""
    size = images.shape[-1]
    if size < 8:
        raise ValueError(f"a face needs at least 8 pixels, not {size}")
    at_once = max(1, _PIXELS_AT_ONCE["cuda" if images.is_cuda else "cpu"] // size**2)
    for rows in _slices(len(images), at_once):
        chosen = {name: number[rows] for name, number in sitting.items()}
        images[rows], depth_here = render(identities[rows], chosen, noise_key[rows], size)
        if depth is not None:
            depth[rows] = depth_here


def _slices(n: int, length: int) -> list[slice]:
    return [slice(start, min(start + length, n)) for start in range(0, n, length)]
