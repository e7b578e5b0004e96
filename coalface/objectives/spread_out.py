"""The server's step that holds class embeddings apart (FedAwS; FedFace Eq. 9 and Alg. 1 line 10), in three forms.

    reg(W) = Σ_c Σ_{c' ≠ c} max(0, cos(w_c, w_c') − max_cos)²      ∂reg/∂w_c = 4 Σ_{c'} max(0, cos − max_cos) w_c'

by_row    the sound one: the gradient of each row is a mean over that row's active pairs
by_sum    the papers': the plain gradient of the sum, one step
by_mean   the release's: the gradient of the mean over all pairs, which for a thousand classes moves nothing

Rows are unit vectors, before and after, and gradients are tangent to the sphere: a cosine does not change with length,
and a step along w_c would only mix length with angle. Pairs are looked at in tiles of block × block, so memory does not
grow with the square of the classes. Rows that are exactly equal stay together in every form: they have no direction to
part in.

A server that has pushed its classes apart need not look at all pairs again: one of two that are too close has moved
since. So ``by_row`` takes the classes that may be, and says which ones may be afterwards; the rest it looks at beside
these only. In a round that costs the cohort times the classes, and not the classes squared.

Shapes: C classes, D dimensions, B rows of a tile, K nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.transfer import at_hand, sent

STEP = 0.125  # twice as much overshoots the margin; this comes to it from above, from any cosine up to 0.99
NEAR_ENOUGH = 0.01  # above the margin
RELEASE_STEPS, RELEASE_RATE, RELEASE_MOMENTUM = 10, 0.01, 0.9
ITSELF = -2.0  # below every cosine

Part = slice | Tensor  # of the rows, by place or by number


@dataclass(frozen=True)
class Repulsion:
    """What pushes each class embedding."""

    push: Tensor  # [C, D], Σ over active pairs of (cos − max_cos)·w_c'
    active: Tensor  # [C], how many pairs of each row are closer than max_cos
    highest: Tensor  # the highest cosine of two different rows, 0-d


def by_row(
    w_CD: Tensor,
    max_cos: float,
    iterations: int,
    *,
    restless_C: Tensor | None = None,
    nearest: int = 0,
    block: int = 4096,
    within: float = NEAR_ENOUGH,
) -> tuple[Tensor, Tensor]:
    """At most so many sound steps; fewer when the highest cosine is within ``within`` of the margin.

    Of two rows that are closer than ``max_cos``, one at least is among the ``restless`` (bool; None: all may be). With
    the rows come those of whom that is true afterwards, on the host.
    """
    where, w_CD = w_CD.device, at_hand(w_CD)
    restless_C = torch.ones(len(w_CD), dtype=torch.bool) if restless_C is None else restless_C
    restless_C = sent(restless_C, w_CD.device)
    for _ in range(iterations):
        found = repulsion(w_CD, max_cos, among_C=restless_C, nearest=nearest, block=block)
        near_enough = found.highest <= max_cos + within
        restless_C = found.active > 0  # those that a step moves
        if _looks(w_CD, block) and bool(near_enough):
            break
        gradient = 4 * found.push / found.active.clamp(min=1)[:, None]
        moved = F.normalize(w_CD - STEP * _tangent(gradient, w_CD), dim=1)
        w_CD = torch.where((near_enough | ~restless_C)[:, None], w_CD, moved)
    return sent(w_CD, where), restless_C.cpu()


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


def repulsion(
    w_CD: Tensor, max_cos: float, *, among_C: Tensor | None = None, nearest: int = 0, block: int = 4096
) -> Repulsion:
    """Every row against all the others, or against its ``nearest`` only (FedAwS's negative mining for many classes).

    A cosine serves both its rows, so half the tiles are made; and a tile without an active pair, which most are once
    classes are apart, costs its product and one look at its highest cosine. Pairs without a row that is ``among``
    (bool) are taken to be apart.
    """
    if block < 1 or nearest < 0:
        raise ValueError(f"block must be at least 1 and nearest at least 0, not {block} and {nearest}")
    looked_at, others = _parts(w_CD, among_C, block)
    if len(looked_at) == 1 and not others and not nearest:
        return _of_one_tile(w_CD, max_cos, block)
    pushes, active = torch.zeros_like(w_CD), torch.zeros_like(w_CD[:, 0])
    highest = w_CD.new_full((), ITSELF)
    closest = Nearest(w_CD, min(nearest, len(w_CD) - 1)) if nearest and len(w_CD) > 1 else None
    for number, rows in enumerate(looked_at):
        for columns in [*looked_at[number:], *others]:
            cosines_BB = _cosines(w_CD, rows, columns)
            top = cosines_BB.max()
            highest = torch.maximum(highest, top)
            if _looks(w_CD, block) and float(top) <= max_cos:
                continue
            both_ways = [(rows, columns, cosines_BB), (columns, rows, cosines_BB.T)][: 1 if rows is columns else 2]
            for mine, theirs, cosines in both_ways:
                if closest is not None:
                    closest.merge(mine, theirs, cosines)
                else:
                    excess = F.relu(cosines - max_cos)
                    pushes[mine] += excess @ w_CD[theirs]
                    active[mine] += (excess > 0).sum(dim=1)
    if closest is not None:
        excess = F.relu(closest.cosines_CK - max_cos)
        pushes = F.embedding_bag(closest.others_CK, w_CD, per_sample_weights=excess, mode="sum")
        active = (excess > 0).sum(dim=1).to(w_CD.dtype)
    return Repulsion(pushes, active, highest)


def _of_one_tile(w_CD: Tensor, max_cos: float, block: int) -> Repulsion:
    """``repulsion`` where all rows fit into a tile: nothing to sum up, which would be half the work for a few rows."""
    everyone = slice(None)
    cosines_CC = _cosines(w_CD, everyone, everyone)
    highest = cosines_CC.max()
    if _looks(w_CD, block) and float(highest) <= max_cos:
        return Repulsion(torch.zeros_like(w_CD), torch.zeros_like(w_CD[:, 0]), highest)
    excess = F.relu(cosines_CC - max_cos)
    return Repulsion(excess @ w_CD, (excess > 0).sum(dim=1), highest)


def _parts(w_CD: Tensor, among_C: Tensor | None, block: int) -> tuple[Sequence[Part], Sequence[Part]]:
    """Rows that are looked at beside each other and all the rest; and the rest."""
    if among_C is None or not _looks(w_CD, block) or bool(among_C.all()):
        return [slice(first, first + block) for first in range(0, len(w_CD), block)], []
    first, rest = (rows.nonzero().flatten() for rows in (among_C, ~among_C))
    return first.split(block) if len(first) else [], rest.split(block)


class Nearest:
    """The nearest others of every row so far, of the tiles that had an active pair."""

    def __init__(self, w_CD: Tensor, many: int) -> None:
        self.cosines_CK = w_CD.new_full((len(w_CD), many), ITSELF)
        self.others_CK = torch.zeros(len(w_CD), many, dtype=torch.int64, device=w_CD.device)
        self._numbers_C = torch.arange(len(w_CD), device=w_CD.device)

    def merge(self, rows: Part, columns: Part, cosines: Tensor) -> None:
        """Take in a tile."""
        many = self.cosines_CK.shape[1]
        found, at = cosines.topk(
            min(many, cosines.shape[1]), dim=1
        )  # of the tile first: it is wide, what is kept is not
        both = torch.cat([self.cosines_CK[rows], found], dim=1)
        others = torch.cat([self.others_CK[rows], self._numbers_C[columns][at]], dim=1)
        self.cosines_CK[rows], kept = both.topk(many, dim=1)
        self.others_CK[rows] = others.gather(1, kept)


def _looks(w_CD: Tensor, block: int) -> bool:
    """Whether to look at a cosine before going on: an accelerator does a single tile sooner than it answers."""
    return w_CD.is_cpu or len(w_CD) > block


def _tangent(gradient_CD: Tensor, w_CD: Tensor) -> Tensor:
    return gradient_CD - (gradient_CD * w_CD).sum(dim=1, keepdim=True) * w_CD


def _cosines(w_CD: Tensor, rows: Part, columns: Part) -> Tensor:
    cosines = w_CD[rows] @ w_CD[columns].T
    if rows is columns:
        cosines.fill_diagonal_(ITSELF)
    return cosines
