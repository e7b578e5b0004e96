"""Every image against every other: FNMR at fixed FMRs, EER and AUC, with identity-bootstrap intervals.

Scores are made block by block and forgotten, so memory stays bounded; the rates are exact all the same. Genuine scores
are few and kept; of the impostor scores only the highest (for the thresholds) and counts between the genuine ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from coalface.metrics.bootstrap import curve_statistics, genuine_histogram, impostor_histogram, score_grid, tar_key
from coalface.metrics.cosine import unit_rows
from coalface.metrics.intervals import Interval, percentile_interval, resampled_identities
from coalface.metrics.rates import (
    OperatingPoint,
    allowed_false_matches,
    auc_from_counts,
    count_in_order,
    count_text,
    eer_from_counts,
    fnmr_at_fmr,
    rising,
)

BLOCK_SCORES = {"cpu": 4_000_000, "cuda": 32_000_000}  # enough to keep the device busy
KEEPABLE_SCORES = 50_000_000  # 400 MB: above this ``keep_scores`` would defeat the blocks


@dataclass(frozen=True)
class AllPairsResult:
    """Rates with the counts of pairs and people that carry them; ``at_fmr`` follows the order of the FMRs asked for."""

    at_fmr: tuple[OperatingPoint, ...]
    eer: float
    auc: float
    eer_interval: Interval | None
    auc_interval: Interval | None
    genuine_pairs: int
    impostor_pairs: int
    identities: int
    images: int
    genuine_scores: Tensor | None = field(default=None, repr=False, compare=False)
    impostor_scores: Tensor | None = field(default=None, repr=False, compare=False)

    def at(self, fmr: float) -> OperatingPoint:
        """The operating point that was asked for at this FMR."""
        for point in self.at_fmr:
            if point.target_fmr == fmr:
                return point
        raise KeyError(f"FMR {fmr:g} was not asked for; there are {[p.target_fmr for p in self.at_fmr]}")

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, without the scores."""
        return {
            "at_fmr": [
                {
                    "target_fmr": point.target_fmr,
                    "fmr": point.fmr,
                    "fnmr": point.fnmr,
                    "tar": point.tar,
                    "tar_interval": _bounds(point.tar_interval),
                    "threshold": point.threshold,
                    "reliable": point.reliable,
                }
                for point in self.at_fmr
            ],
            "eer": self.eer,
            "eer_interval": _bounds(self.eer_interval),
            "auc": self.auc,
            "auc_interval": _bounds(self.auc_interval),
            "genuine_pairs": self.genuine_pairs,
            "impostor_pairs": self.impostor_pairs,
            "identities": self.identities,
            "images": self.images,
        }

    def to_json(self) -> str:
        """`as_dict` as JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        pairs = f"{count_text(self.genuine_pairs)} genuine / {count_text(self.impostor_pairs)} impostor pairs"
        lines = [str(point) for point in self.at_fmr]
        lines.append(f"EER = {self.eer:.4f}{_text(self.eer_interval)}, AUC = {self.auc:.4f}{_text(self.auc_interval)}")
        return "\n".join([*lines, f"{pairs} of {self.images:,} images of {self.identities:,} identities"])


def all_pairs(
    embeddings: Tensor,
    identities: Tensor,
    fmrs: Sequence[float] = (1e-3, 1e-2),
    *,
    seed: int = 0,
    replicates: int = 500,
    level: float = 0.95,
    keep_scores: bool = False,
    block_scores: int | None = None,
) -> AllPairsResult:
    """Compare all pairs of embeddings [n, d] (normalised here) of ``identities`` [n]; accept when cosine ≥ threshold.

    ``seed`` and ``replicates`` drive the identity bootstrap (0 replicates: no intervals; its cost grows with the square
    of the number of identities). ``keep_scores`` returns all scores for plotting. ``block_scores`` bounds the memory.
    """
    if embeddings.ndim != 2 or identities.shape != embeddings.shape[:1]:
        raise ValueError(
            f"need embeddings [n, d], identities [n]; got {list(embeddings.shape)}, {list(identities.shape)}"
        )
    labels, order = identities.to(embeddings.device).unique(return_inverse=True)[1].sort(stable=True)
    unit = unit_rows(embeddings)[order]
    sizes = torch.bincount(labels)
    genuine_pairs = int((sizes * (sizes - 1) // 2).sum())
    impostor_pairs = len(labels) * (len(labels) - 1) // 2 - genuine_pairs
    if genuine_pairs == 0 or impostor_pairs == 0:
        raise ValueError(f"{len(labels)} images of {len(sizes)} identities make {genuine_pairs} genuine pairs and "
                         f"{impostor_pairs} impostor pairs: need at least one of each")  # fmt: skip
    if keep_scores and impostor_pairs > KEEPABLE_SCORES:
        raise ValueError(f"keep_scores would hold {impostor_pairs:,} scores; leave it off above {KEEPABLE_SCORES:,}")
    allowed = [allowed_false_matches(fmr, impostor_pairs) for fmr in fmrs]
    rows = max(1, (block_scores or BLOCK_SCORES[unit.device.type]) // len(labels))

    genuine, owner = genuine_scores(unit, labels, rows)
    # Three times the allowed false matches: the bootstrap's thresholds wander around the point's.
    kept = impostor_pairs if keep_scores else min(impostor_pairs, 3 * max(allowed, default=1) + 1000)
    levels, genuine_at = genuine.unique(return_counts=True)
    at_or_above, above, highest = torch.zeros_like(genuine_at), torch.zeros_like(genuine_at), Highest(kept)
    for block in upper_blocks(unit, labels, rows):
        impostor = _impostors(*block)
        ge, gt = count_in_order(impostor, levels)
        at_or_above, above = at_or_above + ge, above + gt
        highest.add(impostor)
    top = highest.values()

    points = [fnmr_at_fmr(top, genuine, fmr, impostor_pairs) for fmr in fmrs]
    eer = eer_from_counts(genuine_at, at_or_above, above, impostor_pairs)
    auc = auc_from_counts(genuine_at, at_or_above, above, impostor_pairs)
    intervals: dict[str, Interval] = {}
    if replicates:
        drawn = resampled_identities(len(sizes), replicates, torch.Generator().manual_seed(seed)).to(unit.device)
        weights = torch.cat([torch.ones_like(drawn[:, :1]), drawn], dim=1)  # column 0: everyone once, the point itself
        grid = score_grid(genuine, top, allowed)
        impostor_bins = sum(
            (
                impostor_histogram(*block, grid, weights)
                for block in upper_blocks(unit, labels, _fitting(rows, grid, sizes))
            ),
            start=torch.zeros(len(grid) + 1, replicates + 1, dtype=torch.float64, device=unit.device),
        )
        on_grid = curve_statistics(genuine_histogram(genuine, owner, grid, weights), impostor_bins, fmrs)
        exact = {"eer": eer, "auc": auc} | {tar_key(p.target_fmr): p.tar for p in points}
        intervals = {
            name: percentile_interval(values[1:], level, shift=exact[name] - float(values[0]))
            for name, values in on_grid.items()
        }
        points = [point.with_interval(intervals[tar_key(point.target_fmr)]) for point in points]
    return AllPairsResult(
        tuple(points), eer, auc, intervals.get("eer"), intervals.get("auc"),
        genuine_pairs, impostor_pairs, len(sizes), len(labels),
        genuine if keep_scores else None, top if keep_scores else None,
    )  # fmt: skip


def upper_blocks(unit: Tensor, labels: Tensor, rows: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Scores of some rows against all images from the first of them on, with the labels of both sides."""
    for start in range(0, len(unit), rows):
        yield unit[start : start + rows] @ unit[start:].T, labels[start : start + rows], labels[start:]


def genuine_scores(unit: Tensor, labels: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Scores of all pairs of one identity, and whose they are; near the diagonal, as the rows are sorted by label."""
    scores, owners = [], []
    for start in range(0, len(unit), rows):
        stop = min(start + rows, len(unit))
        end = int(torch.searchsorted(labels, labels[stop - 1], right=True))
        mine, theirs = torch.arange(start, stop, device=unit.device), torch.arange(start, end, device=unit.device)
        pair = (labels[start:stop].unsqueeze(1) == labels[start:end]) & (mine.unsqueeze(1) < theirs)
        scores.append((unit[start:stop] @ unit[start:end].T)[pair])
        owners.append(labels[start:stop].unsqueeze(1).expand_as(pair)[pair])
    return torch.cat(scores), torch.cat(owners)


def _impostors(scores: Tensor, row_labels: Tensor, column_labels: Tensor) -> Tensor:
    """The scores of a block's impostor pairs, rising. Others fall to the front: that is quicker than picking."""
    others = row_labels.unsqueeze(1) >= column_labels
    return rising(scores.masked_fill_(others, -torch.inf).flatten())[int(others.sum()) :]


class Highest:
    """The highest so many of all scores, which come in parts, each rising. Holds up to twice as many."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[Tensor] = []
        self._held = 0
        self._floor = -torch.inf  # what is not above it cannot be among them

    def add(self, part: Tensor) -> None:
        above = part[int(torch.searchsorted(part, self._floor, right=True)) :][-self._count :]
        self._parts.append(above.clone())  # not a view of the whole part
        self._held += len(above)
        if self._held > 2 * self._count:
            self._parts = [self.values()]
            self._held = self._count
            self._floor = float(self._parts[0].min())

    def values(self) -> Tensor:
        """In no order."""
        every = torch.cat(self._parts)
        return every if len(every) <= self._count else every.topk(self._count, sorted=False).values


def _fitting(rows: int, grid: Tensor, sizes: Tensor) -> int:
    """Rows per block so that the histogram by bin and pair of identities stays within 32 million cells."""
    return max(1, min(rows, 32_000_000 // ((len(grid) + 1) * len(sizes))))


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _text(interval: Interval | None) -> str:
    return "" if interval is None else f" {interval}"
