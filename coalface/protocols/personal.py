"""Personal numbers: how well one client's model knows that client's people. FedFR's protocol, in each of its readings.

1:1   genuine pairs are two probes of one of the client's people. Impostor pairs are, as the paper says ("others"), one
      of its probes with one of another client's; as its release does ("release"), also two of its own people's.
1:N   the gallery is the mean of each person's enrolment features. A probe is identified ("standard") if its best match
      is its own person and scores at or above the threshold; FPIR is the share of others' probes whose best match
      does. The release ("release") has neither rank nor best match: see `identify_as_released`.

Scores are made block by block and forgotten, so memory stays bounded; thresholds and rates are exact all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.metrics.cosine import unit_rows
from coalface.metrics.rates import (
    RELIABLE_ERRORS,
    OperatingPoint,
    allowed_false_matches,
    auc_from_counts,
    count_at_levels,
    fnmr_at_fmr,
    threshold_at_fmr,
)
from coalface.protocols.pairwise import genuine_scores, upper_blocks

BLOCK_SCORES = 4_000_000


@dataclass(frozen=True)
class Verified:
    """1:1 of one client under one reading; ``at_fmr`` follows the order of the FMRs asked for."""

    at_fmr: tuple[OperatingPoint, ...]
    auc: float
    genuine_pairs: int
    impostor_pairs: int


@dataclass(frozen=True)
class Identified:
    """1:N of one client at one FPIR."""

    target_fpir: float
    threshold: float
    tpir: float
    mated: int  # probes of the client's people
    strangers: int  # probes of everybody else
    reliable: bool  # the target allows at least ten false positives


def enrol(features: Tensor, labels: Tensor, people: int) -> Tensor:
    """The gallery [K, d]: of each person the mean of the normalised features [n, d]; not normalised again."""
    counts = torch.bincount(labels.to(features.device), minlength=people)
    if int(counts.min()) == 0:
        raise ValueError(f"person {int(counts.argmin())} of {people} has no image to enrol")
    sums = features.new_zeros(people, features.shape[1]).index_add_(0, labels.to(features.device), unit_rows(features))
    return sums / counts[:, None]


def verify(
    own: Tensor, labels: Tensor, others: Tensor, fmrs: Sequence[float], block_scores: int = BLOCK_SCORES
) -> dict[str, Verified]:
    """1:1 of a client's probes [n, d] of its people ``labels`` [n] and others' probes [m, d], in both readings."""
    labels, order = labels.to(own.device).unique(return_inverse=True)[1].sort(stable=True)
    mine, theirs = unit_rows(own)[order], unit_rows(others)
    rows = max(1, block_scores // max(len(mine), len(theirs)))
    genuine, _ = genuine_scores(mine, labels, rows)
    crossed = len(mine) * len(theirs)
    both = crossed + len(mine) * (len(mine) - 1) // 2 - len(genuine)
    if not len(genuine) or not crossed:
        raise ValueError(f"{len(genuine)} genuine and {crossed} impostor pairs: a client needs two probes of somebody")
    levels, genuine_at = genuine.unique(return_counts=True)
    kept = max((allowed_false_matches(fmr, pairs) + 1 for fmr in fmrs for pairs in (crossed, both)), default=1)

    tally = _Tally(levels, kept)
    for block in mine.split(rows):
        tally.add((block @ theirs.T).flatten())
    readings = {"others": tally.read(genuine, genuine_at, fmrs, crossed)}
    for scores, row_labels, column_labels in upper_blocks(mine, labels, rows):
        tally.add(scores[row_labels[:, None] < column_labels])
    return {**readings, "release": tally.read(genuine, genuine_at, fmrs, both)}


def identify(
    gallery: Tensor, own: Tensor, labels: Tensor, others: Tensor, fpirs: Sequence[float],
    block_scores: int = BLOCK_SCORES,
) -> tuple[Identified, ...]:  # fmt: skip
    """1:N as standards have it: the best match decides, and must be the right person."""
    faces = unit_rows(gallery)
    rows = max(1, block_scores // len(faces))
    matches = [(block @ faces.T).max(dim=1) for block in unit_rows(own).split(rows)]
    score, who = (torch.cat([match[part] for match in matches]) for part in (0, 1))
    strangers = torch.cat([(block @ faces.T).amax(dim=1) for block in unit_rows(others).split(rows)])
    right = who == labels.to(who.device)
    found = []
    for fpir in fpirs:
        threshold = threshold_at_fmr(strangers, fpir)
        tpir = float((right & (score.double() >= threshold.value)).double().mean())
        found.append(Identified(fpir, threshold.value, tpir, len(own), len(others), threshold.reliable))
    return tuple(found)


def identify_as_released(
    gallery: Tensor, own: Tensor, labels: Tensor, others: Tensor, fpirs: Sequence[float],
    block_scores: int = BLOCK_SCORES,
) -> tuple[Identified, ...]:  # fmt: skip
    """1:N as FedFR's release counts it, which flatters.

    The threshold is the k-th highest of all comparisons with a wrong person, those of the client's own people included,
    with k = ⌈FPIR × probes⌉; TPIR is the share of comparisons with the right person above it, whoever matched best.
    The gallery keeps the lengths that the means have.
    """
    rows = max(1, block_scores // len(gallery))
    ranks = [math.ceil(fpir * (len(own) + len(others)) - 1e-9) for fpir in fpirs]
    people = torch.arange(len(gallery), device=gallery.device)
    right, wrong = [], gallery.new_empty(0)
    for block, whose in zip(unit_rows(own).split(rows), labels.to(people.device).split(rows), strict=True):
        scores, mated = block @ gallery.T, whose[:, None] == people
        right.append(scores[mated])
        wrong = _highest(wrong, scores[~mated], max(ranks, default=1))
    for block in unit_rows(others).split(rows):
        wrong = _highest(wrong, (block @ gallery.T).flatten(), max(ranks, default=1))
    falling, mated_scores = wrong.sort(descending=True).values, torch.cat(right)
    found = []
    for fpir, rank in zip(fpirs, ranks, strict=True):
        threshold = falling[min(rank, len(falling)) - 1]
        tpir = float((mated_scores > threshold).double().mean())
        reliable = rank >= RELIABLE_ERRORS
        found.append(Identified(fpir, float(threshold), tpir, len(own), len(others), reliable))
    return tuple(found)


def enrolled_auc(
    gallery: Tensor, own: Tensor, labels: Tensor, others: Tensor, block_scores: int = BLOCK_SCORES
) -> float:
    """AUROC of comparing probes with the gallery: the right person against anybody else (FedFS's reading)."""
    faces = unit_rows(gallery)
    mine, rows = unit_rows(own), max(1, block_scores // len(faces))
    owner = labels.to(mine.device)
    genuine = (mine * faces[owner]).sum(dim=1)
    levels, genuine_at = genuine.unique(return_counts=True)
    tally = _Tally(levels, kept=0)
    for block, whose in zip(mine.split(rows), owner.split(rows), strict=True):
        tally.add((block @ faces.T)[~F.one_hot(whose, len(faces)).bool()])
    for block in unit_rows(others).split(rows):
        tally.add((block @ faces.T).flatten())
    return auc_from_counts(genuine_at, tally.at_or_above, tally.above, tally.pairs)


def _highest(kept: Tensor, new: Tensor, count: int) -> Tensor:
    """The highest ``count`` scores of both, in any order."""
    if len(kept) == count:
        new = new[new > kept.min()]
    both = torch.cat([kept, new])
    return both if len(both) <= count else both.topk(count, sorted=False).values


class _Tally:
    """What is remembered of impostor scores: the highest, and counts between the genuine levels."""

    def __init__(self, levels: Tensor, kept: int) -> None:
        self.levels, self.kept, self.pairs = levels, kept, 0
        self.at_or_above = self.above = torch.zeros_like(levels, dtype=torch.int64)
        self.top = levels.new_empty(0)

    def add(self, impostor: Tensor) -> None:
        at_or_above, above = count_at_levels(impostor, self.levels)
        self.at_or_above, self.above = self.at_or_above + at_or_above, self.above + above
        self.pairs += len(impostor)
        if self.kept:
            self.top = _highest(self.top, impostor, self.kept)

    def read(self, genuine: Tensor, genuine_at: Tensor, fmrs: Sequence[float], pairs: int) -> Verified:
        points = tuple(fnmr_at_fmr(self.top, genuine, fmr, pairs) for fmr in fmrs)
        auc = auc_from_counts(genuine_at, self.at_or_above, self.above, pairs)
        return Verified(points, auc, len(genuine), pairs)
