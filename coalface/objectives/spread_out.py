"""The server's step that holds class embeddings apart (FedAwS; FedFace Eq. 9 and Alg. 1 line 10), in three forms.

    reg(W) = Σ_c Σ_{c' ≠ c} max(0, cos(w_c, w_c') − max_cos)²      ∂reg/∂w_c = 4 Σ_{c'} max(0, cos − max_cos) w_c'

by_row    the sound one: the gradient of each row is a mean over that row's active pairs
by_sum    the papers': the plain gradient of the sum, one step
by_mean   the release's: the gradient of the mean over all pairs, which for a thousand classes moves nothing

Rows are unit vectors, before and after, and gradients are tangent to the sphere: a cosine does not change with length,
and a step along w_c would only mix length with angle. Pairs are looked at in tiles of block × block, so memory does not
grow with the square of the classes. Rows that are exactly equal stay together in every form: they have no direction to
part in.

Shapes: C classes, D dimensions, B rows of a tile, K nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

STEP = 0.125  # twice as much overshoots the margin; this comes to it from above, from any cosine up to 0.99
NEAR_ENOUGH = 0.01  # above the margin
RELEASE_STEPS, RELEASE_RATE, RELEASE_MOMENTUM = 10, 0.01, 0.9
ITSELF = -2.0  # below every cosine


@dataclass(frozen=True)
class Repulsion:
    """What pushes each class embedding."""

    push: Tensor  # [C, D], Σ over active pairs of (cos − max_cos)·w_c'
    active: Tensor  # [C], how many pairs of each row are closer than max_cos
    highest: Tensor  # the highest cosine of two different rows, 0-d


def by_row(
    w_CD: Tensor, max_cos: float, iterations: int, *, nearest: int = 0, block: int = 4096, within: float = NEAR_ENOUGH
) -> Tensor:
    """At most so many sound steps; fewer when the highest cosine is within ``within`` of the margin."""
    for _ in range(iterations):
        found = repulsion(w_CD, max_cos, nearest=nearest, block=block)
        if float(found.highest) <= max_cos + within:
            break
        gradient = 4 * found.push / found.active.clamp(min=1)[:, None]
        w_CD = F.normalize(w_CD - STEP * _tangent(gradient, w_CD), dim=1)
    return w_CD


def by_sum(w_CD: Tensor, max_cos: float, step: float, *, nearest: int = 0, block: int = 4096) -> Tensor:
    """One step of that size on the gradient of the sum. FedAwS's step is λη; FedFace's Alg. 1, as printed, is λ."""
    push = repulsion(w_CD, max_cos, nearest=nearest, block=block).push
    return F.normalize(w_CD - step * 4 * _tangent(push, w_CD), dim=1)


def by_mean(w_CD: Tensor, max_cos: float, *, nearest: int = 0, block: int = 4096) -> Tensor:
    """FedFace's released setting: ten steps at rate 0.01 with momentum 0.9 on the mean over all ordered pairs."""
    pairs = max(1, len(w_CD) * (len(w_CD) - 1))
    velocity = torch.zeros_like(w_CD)
    for _ in range(RELEASE_STEPS):
        gradient = 4 * repulsion(w_CD, max_cos, nearest=nearest, block=block).push / pairs
        velocity = RELEASE_MOMENTUM * velocity + _tangent(gradient, w_CD)
        w_CD = F.normalize(w_CD - RELEASE_RATE * velocity, dim=1)
    return w_CD


def repulsion(w_CD: Tensor, max_cos: float, *, nearest: int = 0, block: int = 4096) -> Repulsion:
    """Every row against all the others, or against its ``nearest`` only (FedAwS's negative mining for many classes)."""
    if block < 1 or nearest < 0:
        raise ValueError(f"block must be at least 1 and nearest at least 0, not {block} and {nearest}")
    pushes, active = torch.zeros_like(w_CD), torch.zeros_like(w_CD[:, 0])
    highest = w_CD.new_tensor(ITSELF)
    for first in range(0, len(w_CD), block):
        rows = slice(first, first + block)
        if nearest:
            cosines_BK, others_BK = _nearest(w_CD, rows, min(nearest, len(w_CD) - 1), block)
            excess = F.relu(cosines_BK - max_cos)
            pushes[rows] = torch.einsum("bk,bkd->bd", excess, w_CD[others_BK])
            active[rows] = (excess > 0).sum(dim=1).to(active.dtype)
            highest = torch.maximum(highest, _highest(cosines_BK))
            continue
        for other in range(0, len(w_CD), block):
            columns = slice(other, other + block)
            cosines_BB = _cosines(w_CD, rows, columns)
            excess = F.relu(cosines_BB - max_cos)
            pushes[rows] += excess @ w_CD[columns]
            active[rows] += (excess > 0).sum(dim=1)
            highest = torch.maximum(highest, _highest(cosines_BB))
    return Repulsion(pushes, active, highest)


def _tangent(gradient_CD: Tensor, w_CD: Tensor) -> Tensor:
    return gradient_CD - (gradient_CD * w_CD).sum(dim=1, keepdim=True) * w_CD


def _cosines(w_CD: Tensor, rows: slice, columns: slice) -> Tensor:
    cosines = w_CD[rows] @ w_CD[columns].T
    if rows == columns:
        cosines.fill_diagonal_(ITSELF)
    return cosines


def _nearest(w_CD: Tensor, rows: slice, nearest: int, block: int) -> tuple[Tensor, Tensor]:
    """Cosines and indices of the nearest others of these rows, merged tile by tile."""
    here = len(w_CD[rows])
    cosines = w_CD.new_empty(here, 0)
    others = torch.empty(here, 0, dtype=torch.int64, device=w_CD.device)
    for other in range(0, len(w_CD), block):
        tile = _cosines(w_CD, rows, slice(other, other + block))
        indices = torch.arange(other, other + tile.shape[1], device=w_CD.device).expand_as(tile)
        cosines, others = torch.cat([cosines, tile], dim=1), torch.cat([others, indices], dim=1)
        cosines, kept = cosines.topk(min(nearest, cosines.shape[1]), dim=1)
        others = others.gather(1, kept)
    return cosines, others


def _highest(cosines: Tensor) -> Tensor:
    return cosines.max() if cosines.numel() else cosines.new_tensor(ITSELF)
