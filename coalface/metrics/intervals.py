"""Intervals beside each rate: people are resampled, not pairs, because pairs that share a person are not independent.

An identity drawn c times counts as c different people: a pair of identities i ≠ j weighs c_i · c_j, a genuine pair of
identity i weighs c_i, and copies of one person are never compared with each other. Percentile intervals throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor


@dataclass(frozen=True)
class Interval:
    """A two-sided interval at ``level`` confidence."""

    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"[{self.low:.4f}, {self.high:.4f}]"


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Wilson score interval of a proportion; right only where the trials are independent."""
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"need 0 ≤ successes ≤ trials and trials ≥ 1, got {successes} of {trials}")
    z = NormalDist().inv_cdf(0.5 + _checked_level(level) / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return Interval(max(0.0, centre - half), min(1.0, centre + half), level)


def fold_interval(per_fold: Sequence[float], level: float = 0.95) -> Interval:
    """Student interval of the mean over folds, cut to [0, 1]; folds share no identities, so count as independent."""
    folds = len(per_fold)
    if folds < 2:
        raise ValueError(f"an interval over folds needs at least 2 of them, got {folds}")
    mean = sum(per_fold) / folds
    error = math.sqrt(sum((x - mean) ** 2 for x in per_fold) / (folds - 1) / folds)
    half = student_quantile(0.5 + _checked_level(level) / 2, folds - 1) * error
    return Interval(max(0.0, mean - half), min(1.0, mean + half), level)


def student_quantile(probability: float, freedom: int) -> float:
    """t with P(T ≤ t) = probability ≥ ½ for whole degrees of freedom, by bisection of the closed-form distribution."""
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"need ½ ≤ probability < 1 and freedom ≥ 1, got {probability} and {freedom}")
    low, high = 0.0, 1.0
    while _student_distribution(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_distribution(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def resampled_identities(identities: int, replicates: int, generator: torch.Generator) -> Tensor:
    """How often each identity is drawn in each replicate, float32 [identities, replicates]; each column sums to I."""
    if identities < 2 or replicates < 1:
        raise ValueError(f"need at least 2 identities and 1 replicate, got {identities} and {replicates}")
    drawn = torch.randint(identities, (replicates, identities), generator=generator, device=generator.device)
    counts = torch.zeros(replicates, identities, dtype=torch.float32, device=drawn.device)
    counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float32))
    return counts.T.contiguous()


def percentile_interval(replicates: Tensor, level: float = 0.95, shift: float = 0.0) -> Interval:
    """Central share of the replicates, moved by ``shift``, cut to [0, 1]; those without pairs (NaN) are left out."""
    usable = replicates[~replicates.isnan()].double()
    if 2 * len(usable) < len(replicates):
        raise ValueError(
            f"{len(replicates) - len(usable)} of {len(replicates)} resamples have no genuine or no impostor pair: "
            "too few identities for an interval"
        )
    tail = (1 - _checked_level(level)) / 2
    low, high = torch.quantile(usable, usable.new_tensor([tail, 1 - tail])).tolist()
    return Interval(min(max(low + shift, 0.0), 1.0), min(max(high + shift, 0.0), 1.0), level)


def accuracy_interval(
    correct: Tensor, left: Tensor, right: Tensor, seed: int, *, replicates: int = 1000, level: float = 0.95
) -> Interval:
    """Identity-bootstrap interval of the share of right decisions over a list of pairs.

    ``correct`` [m] says whether pair m was decided rightly, ``left`` and ``right`` [m] whose faces were compared.
    """
    if not len(correct) == len(left) == len(right) or len(correct) == 0:
        raise ValueError(f"need as many decisions as pairs, got {len(correct)}, {len(left)}, {len(right)}")
    people, place = torch.stack([left, right]).cpu().unique(return_inverse=True)
    drawn = resampled_identities(len(people), replicates, torch.Generator().manual_seed(seed))
    weight_left, weight_right = drawn[place[0]], drawn[place[1]]  # [m, replicates]
    genuine = (place[0] == place[1]).unsqueeze(1)
    weight = torch.where(genuine, weight_left, weight_left * weight_right).double()
    right_weight = (weight * correct.cpu().bool().unsqueeze(1)).sum(0)
    return percentile_interval(right_weight / weight.sum(0), level)


def _student_distribution(t: float, freedom: int) -> float:
    """P(T ≤ t) for t ≥ 0: the finite trigonometric sum that holds for integer degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    terms = [math.cos(angle) if odd else 1.0]
    for k in range(1 + odd, freedom - 2, 2):
        terms.append(terms[-1] * math.cos(angle) ** 2 * k / (k + 1))
    series = 0.0 if freedom == 1 else math.sin(angle) * sum(terms)
    between = 2 / math.pi * (angle + series) if odd else series
    return 0.5 + between / 2


def _checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie strictly between 0 and 1, got {level}")
    return level
