"""Error rates of a comparison score: accept when score ≥ threshold, so a score on the threshold is accepted.
FMR(t) = share of impostor scores ≥ t; FNMR(t) = share of genuine scores < t. Higher score = more alike.

Arguments come as (impostor, genuine), torch tensors or numpy arrays of any shape. ISO/IEC 19795 names first; the papers
say FAR for FMR and TAR for 1 − FNMR. Empty or non-finite scores raise. An FMR that the impostor pairs cannot support
(less than one error allowed) raises; one that rests on fewer than ten errors is marked ``reliable=False``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat

import numpy as np
import torch
from torch import Tensor

from coalface.metrics.intervals import Interval

Scores = Tensor | np.ndarray[Any, Any]

RELIABLE_ERRORS = 10  # a rate estimated from fewer errors is mostly noise


@dataclass(frozen=True)
class Threshold:
    """A threshold and where it came from: never the set that it is reported on."""

    value: float
    origin: str
    reliable: bool = True

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class OperatingPoint:
    """FNMR at the smallest threshold whose FMR is at most ``target_fmr``, with the counts that carry it."""

    target_fmr: float
    threshold: float
    fmr: float  # attained, ≤ target_fmr
    fnmr: float
    impostor_pairs: int
    genuine_pairs: int
    reliable: bool  # the target allows at least ten false matches
    tar_interval: Interval | None = None

    @property
    def tar(self) -> float:
        """1 − FNMR; the papers' TAR@FAR."""
        return 1.0 - self.fnmr

    def with_interval(self, interval: Interval) -> OperatingPoint:
        """The same point with an interval for its TAR."""
        return replace(self, tar_interval=interval)

    def __str__(self) -> str:
        interval = f" {self.tar_interval}" if self.tar_interval else ""
        pairs = f"{count_text(self.genuine_pairs)} genuine / {count_text(self.impostor_pairs)} impostor pairs"
        return f"TAR@FMR {self.target_fmr:g} = {self.tar:.4f}{interval}, {pairs}" + (
            "" if self.reliable else f" (unreliable: under {RELIABLE_ERRORS} false matches)"
        )


@dataclass(frozen=True)
class ErrorCurve:
    """FMR falls and FNMR rises along ``threshold`` [T]; the last point accepts nothing."""

    threshold: Tensor
    fmr: Tensor
    fnmr: Tensor

    @property
    def tar(self) -> Tensor:
        """1 − FNMR."""
        return 1.0 - self.fnmr

    def for_log_axes(self) -> ErrorCurve:
        """Only the points where both rates are above zero."""
        keep = (self.fmr > 0) & (self.fnmr > 0)
        return ErrorCurve(self.threshold[keep], self.fmr[keep], self.fnmr[keep])


def fmr(impostor: Scores, threshold: SupportsFloat) -> float:
    """Share of impostor scores ≥ threshold: a tie with the threshold is a false match. (FAR, FPR.)"""
    scores = checked_scores(impostor, "impostor")
    return int((scores >= float(threshold)).sum()) / len(scores)


def fnmr(genuine: Scores, threshold: SupportsFloat) -> float:
    """Share of genuine scores < threshold: a tie with the threshold is a match. (FRR; TAR = 1 − FNMR.)"""
    scores = checked_scores(genuine, "genuine")
    return int((scores < float(threshold)).sum()) / len(scores)


def allowed_false_matches(target: float, impostors: int) -> int:
    """Largest k with k / impostors ≤ target; raises when that is 0, for no score can then carry the claim."""
    if not 0.0 < target < 1.0:
        raise ValueError(f"target FMR must lie strictly between 0 and 1, got {target}")
    k = round(target * impostors)
    while k / impostors > target:  # corrects the rounding of the product, at most one step
        k -= 1
    if k < 1:
        needed = math.ceil(1.0 / target - 1e-9)
        raise ValueError(
            f"FMR {target:g} needs at least {needed:,} impostor pairs, got {impostors:,}: "
            "report a higher FMR or compare more pairs"
        )
    return k


def threshold_at_fmr(impostor: Scores, target: float, impostors: int | None = None) -> Threshold:
    """Smallest threshold whose FMR is at most ``target``; tied impostor scores are rejected together.

    With k false matches allowed it lies one float (of the scores' own precision) above the (k+1)-th highest impostor
    score. ``impostors`` is the number of pairs when ``impostor`` holds only the highest scores of them.
    """
    scores = checked_scores(impostor, "impostor")
    count = len(scores) if impostors is None else impostors
    k = allowed_false_matches(target, count)
    if k + 1 > len(scores):
        raise ValueError(f"FMR {target:g} on {count:,} pairs needs their {k + 1:,} highest scores, got {len(scores):,}")
    highest_rejected = scores.topk(k + 1).values[-1]
    own_precision = torch.float64 if _precision(impostor) == torch.float64 else torch.float32
    value = _just_above(highest_rejected.to(own_precision))
    return Threshold(value, f"FMR ≤ {target:g} on {count:,} impostor pairs", reliable=k >= RELIABLE_ERRORS)


def fnmr_at_fmr(impostor: Scores, genuine: Scores, target: float, impostors: int | None = None) -> OperatingPoint:
    """FNMR at the smallest threshold whose FMR is at most ``target``; ties as in `threshold_at_fmr`."""
    threshold = threshold_at_fmr(impostor, target, impostors)
    count = checked_scores(impostor, "impostor").numel() if impostors is None else impostors
    false_matches = int((checked_scores(impostor, "impostor") >= threshold.value).sum())
    return OperatingPoint(
        target_fmr=target,
        threshold=threshold.value,
        fmr=false_matches / count,
        fnmr=fnmr(genuine, threshold),
        impostor_pairs=count,
        genuine_pairs=len(checked_scores(genuine, "genuine")),
        reliable=threshold.reliable,
    )


def eer(impostor: Scores, genuine: Scores) -> float:
    """Where FMR = FNMR on the DET polyline: (FMR, FNMR) at every distinct threshold, joined by straight lines.

    Between two distinct scores the line is what a coin between the two thresholds would reach, so tied genuine and
    impostor scores give a slanted piece, as they do in the trapezoid of `auc`.
    """
    levels, genuine_at = checked_scores(genuine, "genuine").unique(return_counts=True)
    return eer_from_counts(genuine_at, *count_at_levels(checked_scores(impostor, "impostor"), levels), _size(impostor))


def auc(impostor: Scores, genuine: Scores) -> float:
    """P(genuine > impostor) + ½ P(genuine = impostor): Mann–Whitney, ties count half."""
    levels, genuine_at = checked_scores(genuine, "genuine").unique(return_counts=True)
    return auc_from_counts(genuine_at, *count_at_levels(checked_scores(impostor, "impostor"), levels), _size(impostor))


def count_at_levels(impostor: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Impostor scores ≥ and > each genuine level, [L] each: additive over blocks, and all that EER and AUC need."""
    return count_in_order(rising(impostor), levels)


def count_in_order(ordered: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """`count_at_levels` of scores that rise already."""
    at_or_above = len(ordered) - torch.searchsorted(ordered, levels)
    above = len(ordered) - torch.searchsorted(ordered, levels, right=True)
    return at_or_above, above


def rising(scores: Tensor) -> Tensor:
    """The scores [n] in rising order; on a CPU by numpy, which sorts floats several times faster than torch."""
    return torch.from_numpy(np.sort(scores.numpy())) if scores.is_cpu else scores.sort().values


def eer_from_counts(genuine_at: Tensor, at_or_above: Tensor, above: Tensor, impostors: int) -> float:
    """`eer` from genuine scores at each rising level and the impostor counts of `count_at_levels`."""
    total = int(genuine_at.sum())
    up_to = genuine_at.cumsum(0)
    # Corners of the polyline as the threshold rises: on each level, then just above it. Between levels FNMR rests.
    fmr_path = torch.stack([at_or_above, above], dim=1).flatten().double() / impostors
    fnmr_path = torch.stack([up_to - genuine_at, up_to], dim=1).flatten().double() / total
    fmr_path = torch.cat([fmr_path.new_ones(1), fmr_path, fmr_path.new_zeros(1)])
    fnmr_path = torch.cat([fnmr_path.new_zeros(1), fnmr_path, fnmr_path.new_ones(1)])
    gap = fmr_path - fnmr_path  # falls from 1 to −1
    after = int((gap <= 0).nonzero()[0])
    weight = float(gap[after - 1] / (gap[after - 1] - gap[after]))
    return float(fmr_path[after - 1] + weight * (fmr_path[after] - fmr_path[after - 1]))


def auc_from_counts(genuine_at: Tensor, at_or_above: Tensor, above: Tensor, impostors: int) -> float:
    """`auc` from genuine scores at each rising level and the impostor counts of `count_at_levels`."""
    halves = genuine_at * (2 * impostors - at_or_above - above)  # 2 × below + equal, an exact integer
    return int(halves.sum()) / (2 * impostors * int(genuine_at.sum()))


def eer_threshold(impostor: Scores, genuine: Scores) -> Threshold:
    """Threshold, among the scores, where |FMR − FNMR| is least; of equally near ones the highest."""
    curve = det_curve(impostor, genuine)
    distance = (curve.fmr - curve.fnmr).abs()
    best = int((distance == distance.min()).nonzero()[-1])
    origin = f"EER on {_size(impostor):,} impostor and {_size(genuine):,} genuine pairs"
    return Threshold(float(curve.threshold[best]), origin)


def det_curve(impostor: Scores, genuine: Scores, points: int | None = None) -> ErrorCurve:
    """(FMR, FNMR) at every distinct score, tied scores accepted together, and one point above the highest.

    ``points`` thins the curve to at most so many, spread evenly over both axes as logarithms show them.
    """
    negative, positive = checked_scores(impostor, "impostor"), checked_scores(genuine, "genuine")
    threshold = torch.cat([negative, positive]).unique()
    threshold = torch.cat([threshold, threshold.new_tensor([_just_above(threshold[-1])])])
    accepted = len(negative) - torch.searchsorted(negative.sort().values, threshold)
    rejected = torch.searchsorted(positive.sort().values, threshold)
    fmr_T, fnmr_T = accepted.double() / len(negative), rejected.double() / len(positive)
    curve = ErrorCurve(threshold, fmr_T, fnmr_T)
    if points is None or len(threshold) <= points:
        return curve
    if points < 2:
        raise ValueError(f"a curve needs at least 2 points, got points={points}")
    # Monotone in the threshold, and a step on either axis moves it by that step's logarithm.
    travelled = fnmr_T.clamp(min=1 / len(positive)).log() - fmr_T.clamp(min=1 / len(negative)).log()
    wanted = torch.linspace(float(travelled[0]), float(travelled[-1]), points, dtype=torch.float64)
    keep = torch.searchsorted(travelled, wanted.to(travelled)).clamp(max=len(threshold) - 1)
    keep[0], keep[-1] = 0, len(threshold) - 1
    keep = keep.unique()
    return ErrorCurve(threshold[keep], fmr_T[keep], fnmr_T[keep])


def roc_curve(impostor: Scores, genuine: Scores, points: int | None = None) -> tuple[Tensor, Tensor]:
    """(FMR, 1 − FNMR) with FMR rising from (0, 0): the points of `det_curve`, as a ROC plot wants them."""
    curve = det_curve(impostor, genuine, points)
    return curve.fmr.flip(0), curve.tar.flip(0)


def best_accuracy_threshold(scores: Scores, same: Scores) -> Threshold:
    """Threshold with the most correct decisions (accept when score ≥ t); of equally good ones the highest.

    It lies midway between two neighbouring distinct scores, for it will judge scores that it has not seen; on the
    lowest score when accepting everything is best, and just above the highest when rejecting everything is.
    """
    values, labels = checked_scores(scores, "pair"), torch.as_tensor(same).reshape(-1).bool()
    if len(values) != len(labels):
        raise ValueError(f"{len(values)} scores but {len(labels)} labels: they must pair up")
    levels, place = values.unique(return_inverse=True)
    genuine_at = torch.bincount(place[labels.to(place.device)], minlength=len(levels))
    impostor_at = torch.bincount(place, minlength=len(levels)) - genuine_at
    # Candidate c accepts levels c and up: correct = genuine from c up + impostor below c.
    zero = genuine_at.new_zeros(1)
    correct = genuine_at.sum() - torch.cat([zero, genuine_at.cumsum(0)]) + torch.cat([zero, impostor_at.cumsum(0)])
    best = int((correct == correct.max()).nonzero()[-1])
    if best == 0:
        value = float(levels[0])
    elif best == len(levels):
        value = _just_above(levels[-1])
    else:
        below, above = float(levels[best - 1]), float(levels[best])
        middle = below + (above - below) / 2
        value = middle if middle > below else above  # neighbouring floats have no middle
    return Threshold(value, f"best accuracy on {len(values):,} pairs")


def checked_scores(scores: Scores, kind: str) -> Tensor:
    """Scores as one float64 row; raises on an empty row, NaN or infinity, with the place."""
    row = torch.as_tensor(scores).detach().reshape(-1).double()
    if row.numel() == 0:
        raise ValueError(f"no {kind} scores: a rate over nothing is undefined")
    finite = row.isfinite()
    if not bool(finite.all()):
        place = int((~finite).nonzero()[0])
        raise ValueError(f"{kind} score {place} is {float(row[place])}: scores must be finite")
    return row


def count_text(count: int) -> str:
    """12,000 or 1.9 M: how reports write a number of pairs."""
    return f"{count:,}" if count < 1_000_000 else f"{count / 1e6:,.1f} M"


def _just_above(value: Tensor) -> float:
    return float(torch.nextafter(value, torch.full_like(value, math.inf)))


def _precision(scores: Scores) -> torch.dtype:
    dtype = torch.as_tensor(scores).dtype
    return dtype if dtype.is_floating_point else torch.float64


def _size(scores: Scores) -> int:
    return torch.as_tensor(scores).numel()
