"""Collapse monitors: do class embeddings, or features, still point in different directions?

Positive pairs alone can drive every embedding to one point. Log these each round: a mean cosine near 1 or an effective
rank near 1 is collapse. For C unit vectors the mean off-diagonal cosine is at least −1/(C−1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from coalface.metrics.cosine import unit_rows


@dataclass(frozen=True)
class Collapse:
    """What to log about one matrix of rows."""

    mean_cosine: float
    max_cosine: float
    effective_rank: float

    def as_dict(self) -> dict[str, float]:
        """Plain floats by name."""
        return asdict(self)


def collapse(rows: Tensor, block: int = 2048) -> Collapse:
    """All three monitors of rows [C, d]."""
    unit = _several_unit_rows(rows)
    return Collapse(float(_mean(unit)), float(_max(unit, block)), effective_rank(rows))


def mean_cosine(rows: Tensor) -> float:
    """Mean cosine over all pairs of different rows [C, d]: the expectation for two random rows.

    Exact without any C × C matrix, since the off-diagonal sum is ‖Σ u‖² − C. Rows are normalised here.
    """
    return float(_mean(_several_unit_rows(rows)))


def max_cosine(rows: Tensor, block: int = 2048) -> float:
    """Highest cosine between two different rows [C, d], in blocks of ``block`` rows. Rows are normalised here."""
    return float(_max(_several_unit_rows(rows), block))


def participation_rank(rows: Tensor) -> float:
    """(Σσ²)² / Σσ⁴ of the singular values σ of rows [C, d], normalised here: 1 to d, as ``effective_rank`` is.

    It needs no singular values, only a product: cheap enough for every round of a federation.
    """
    return float(_participation(_several_unit_rows(rows)))


def of_every_round(rows: Tensor, block: int = 2048) -> tuple[float, float, float]:
    """Mean and highest cosine, and the participation rank, for one look at the device."""
    unit = _several_unit_rows(rows)
    mean, highest, rank = torch.stack([_mean(unit), _max(unit, block).double(), _participation(unit)]).tolist()
    return mean, highest, rank


def _participation(unit: Tensor) -> Tensor:
    gram = unit.T @ unit if len(unit) > unit.shape[1] else unit @ unit.T
    return len(unit) ** 2 / gram.double().square().sum()


def _mean(unit: Tensor) -> Tensor:
    unit = unit.double()
    return (unit.sum(0).square().sum() - unit.square().sum()) / (len(unit) * (len(unit) - 1))


def _max(unit: Tensor, block: int) -> Tensor:
    if block < 1:
        raise ValueError(f"block must be at least 1 row, got {block}")
    highest = unit.new_full((), -1.0)
    for start in range(0, len(unit), block):
        mine = unit[start : start + block]
        for other_start in range(start, len(unit), block):
            cosine = mine @ unit[other_start : other_start + block].T
            if other_start == start:
                cosine.fill_diagonal_(-1.0)
            highest = torch.maximum(highest, cosine.max())
    return highest


def effective_rank(features: Tensor) -> float:
    """exp of the entropy of the singular values of features [n, d], each divided by their sum.

    1 for a rank-one matrix, d for d equal singular values. Features are neither centred nor normalised here: a batch
    gathered around one point counts as collapsed.
    """
    if features.ndim != 2 or features.numel() == 0:
        raise ValueError(f"features must be a non-empty [n, d], got {list(features.shape)}")
    _refuse_non_finite(features)
    singular = torch.linalg.svdvals(features.detach().double())
    total = singular.sum()
    if float(total) == 0.0:
        raise ValueError("all features are zero: their rank has no meaning")
    share = singular / total
    return float(torch.special.entr(share).sum().exp())  # entr(0) = 0, so zero singular values add nothing


def saturated_share(cosines: Tensor, margin: float) -> float:
    """Share of hinge terms max(0, margin − cos) that are exactly zero: those images no longer teach anything."""
    if cosines.numel() == 0:
        raise ValueError("no cosines: a share of nothing is undefined")
    _refuse_non_finite(cosines)
    return float((cosines.detach() >= margin).double().mean())


def _several_unit_rows(rows: Tensor) -> Tensor:
    unit = unit_rows(rows)
    if len(unit) < 2:
        raise ValueError(f"a cosine between rows needs at least 2 of them, got shape {list(rows.shape)}")
    return unit


def _refuse_non_finite(values: Tensor) -> None:
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(f"value at {place} is {float(values[place])}: must be finite")
