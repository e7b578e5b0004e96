"""Identity bootstrap of TAR@FMR, EER and AUC over all pairs, from weighted histograms instead of resampled pairs.

Every pair falls into one of G + 1 bins of score; per replicate r a bin then weighs Σ c_i c_j over its impostor pairs, a
matrix product per bin. Histograms add over blocks of pairs, so no list of pairs and no loop over pairs is needed.

Legend: I identities, R replicates, G grid levels (bin g holds the scores with exactly g levels at or below them).
The statistics see the curve on the grid only; callers shift the interval by (exact value − value on the grid), so that
the grid decides the width and never the place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

GENUINE_LEVELS, IMPOSTOR_LEVELS, OVERLAP_LEVELS = 64, 24, 24


def score_grid(genuine: Tensor, top_impostor: Tensor, false_matches: Sequence[int]) -> Tensor:
    """Rising score levels [G], dense where the statistics read the curve.

    Quantiles of the genuine scores; impostor scores around each allowed number of false matches (``top_impostor`` are
    the highest ones, in any order); and even steps between the lowest genuine and the highest impostor score.
    When there are no more distinct scores than levels, every score is a level and nothing is lost.
    """
    if genuine.numel() == 0 or top_impostor.numel() == 0:
        raise ValueError(f"need genuine and impostor scores, got {genuine.numel()} and {top_impostor.numel()}")
    everything: Tensor = torch.cat([genuine, top_impostor]).unique()
    budget = GENUINE_LEVELS + IMPOSTOR_LEVELS * len(false_matches) + OVERLAP_LEVELS
    if len(everything) <= budget:
        return everything
    falling = top_impostor.sort(descending=True).values
    levels = [_picked(genuine.sort().values, torch.linspace(0, len(genuine) - 1, GENUINE_LEVELS))]
    for allowed in false_matches:
        ranks = torch.logspace(-1, 0.5, IMPOSTOR_LEVELS, dtype=torch.float64) * allowed  # from a tenth to three times
        levels.append(_picked(falling, ranks.clamp(max=len(falling) - 1)))
    overlap = torch.linspace(0, 1, OVERLAP_LEVELS, dtype=genuine.dtype, device=genuine.device)
    levels.append(torch.lerp(genuine.min(), falling[0].to(genuine.dtype), overlap))
    grid: Tensor = torch.cat(levels).unique()
    return grid


def genuine_histogram(scores: Tensor, identity: Tensor, grid: Tensor, weights_IR: Tensor) -> Tensor:
    """Weight of the genuine pairs in each bin, float64 [G + 1, R]; ``identity`` [m] is whose it is, in 0 … I − 1."""
    identities = len(weights_IR)
    place = torch.bucketize(scores, grid, right=True) * identities + identity
    counts_GI = torch.bincount(place, minlength=(len(grid) + 1) * identities).reshape(-1, identities)
    return counts_GI.double() @ weights_IR.double()


def impostor_histogram(
    scores_AB: Tensor, rows_A: Tensor, columns_B: Tensor, grid: Tensor, weights_IR: Tensor
) -> Tensor:
    """Weight of the impostor pairs of one block in each bin, float64 [G + 1, R].

    ``rows_A`` and ``columns_B`` are identities in rising order; pairs with row identity < column identity count, the
    rest are left to the block that sees them the other way round.
    """
    first_row, first_column = int(rows_A[0]), int(columns_B[0])
    height, width = int(rows_A[-1]) - first_row + 1, int(columns_B[-1]) - first_column + 1
    bins = len(grid) + 1
    place = torch.bucketize(scores_AB, grid, right=True)
    place.mul_(height).add_((rows_A - first_row).unsqueeze(1)).mul_(width).add_(columns_B - first_column)
    different = rows_A.unsqueeze(1) < columns_B.unsqueeze(0)
    counts = torch.bincount(place[different], minlength=bins * height * width).reshape(bins * height, width)
    # Rows of the product are integers below 2²⁴ in practice, so float32 keeps them exact; the sum is taken in float64.
    seen = counts.to(weights_IR.dtype) @ weights_IR[first_column : first_column + width]
    own = weights_IR[first_row : first_row + height]
    return (seen.reshape(bins, height, -1).double() * own.double()).sum(1)


def curve_statistics(genuine_GR: Tensor, impostor_GR: Tensor, fmrs: Sequence[float]) -> dict[str, Tensor]:
    """AUC, EER and TAR at each FMR of every replicate, [R] each, on the ROC polyline through the bins' edges.

    Keys are ``"auc"``, ``"eer"`` and ``"tar@<fmr>"``; a replicate without genuine or impostor weight gives NaN.
    """
    tar, fmr = _accepted_share(genuine_GR), _accepted_share(impostor_GR)  # [G + 2, R], strictest threshold first
    statistics = {"auc": (fmr.diff(dim=0) * (tar[1:] + tar[:-1]) / 2).sum(0)}
    # FMR − FNMR rises along the curve; the EER is the FMR where it crosses zero.
    statistics["eer"] = _at_crossing(fmr + tar - 1, fmr)
    for target in fmrs:
        statistics[tar_key(target)] = _at_crossing(fmr - target, tar)
    return statistics


def tar_key(fmr: float) -> str:
    """Name of TAR at this FMR among the statistics."""
    return f"tar@{fmr:g}"


def _accepted_share(bins_GR: Tensor) -> Tensor:
    accepted = bins_GR.flip(0).cumsum(0)
    return torch.cat([torch.zeros_like(accepted[:1]), accepted]) / accepted[-1:]


def _at_crossing(rising_PR: Tensor, values_PR: Tensor) -> Tensor:
    """Value, per column, where ``rising`` first exceeds zero, by the straight line from the point before."""
    after = (rising_PR > 0).long().argmax(dim=0, keepdim=True).clamp(min=1)
    low, high = rising_PR.gather(0, after - 1), rising_PR.gather(0, after)
    start, end = values_PR.gather(0, after - 1), values_PR.gather(0, after)
    return (start + (end - start) * (-low / (high - low))).squeeze(0)


def _picked(ordered: Tensor, ranks: Tensor) -> Tensor:
    return ordered[ranks.long().to(ordered.device)]
