"""1:1 verification: ten folds of pairs as in LFW, and all pairs of a labelled set (`all_pairs`).

A fold's threshold comes from the other folds; it never sees the pairs that it judges.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from coalface.data.pairs import contiguous_folds
from coalface.metrics.cosine import unit_rows
from coalface.metrics.intervals import Interval, fold_interval
from coalface.metrics.rates import Scores, best_accuracy_threshold, checked_scores
from coalface.protocols.pairwise import AllPairsResult, all_pairs

__all__ = ["AllPairsResult", "FoldResult", "all_pairs", "lfw_folds", "pair_scores", "synthetic_pairs"]

IMAGES_PER_IDENTITY, IMAGES_PER_FOLD = 50, 2000  # of which synthetic_pairs enumerates the pairs


@dataclass(frozen=True)
class FoldResult:
    """Accuracy on each held-out fold, and over them."""

    accuracy: float  # mean over folds
    spread: float  # standard deviation over folds (divisor: number of folds), the ± of the papers' tables
    per_fold: tuple[float, ...]
    thresholds: tuple[float, ...]  # each from the other folds
    pairs: int
    genuine_pairs: int
    interval: Interval  # Student, over folds

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over folds, as the LFW site asks for."""
        return self.spread / math.sqrt(len(self.per_fold) - 1)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self) | {
            "per_fold": list(self.per_fold),
            "thresholds": list(self.thresholds),
            "interval": [self.interval.low, self.interval.high],
        }

    def to_json(self) -> str:
        """`as_dict` as JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        folds = f"{len(self.per_fold)} folds, {self.pairs:,} pairs"
        return f"accuracy = {self.accuracy:.4f} ± {self.spread:.4f} {self.interval}, {folds}"


def lfw_folds(scores: Scores, same: Scores, folds: int | Tensor = 10) -> FoldResult:
    """Accuracy on each fold with the threshold that is best on the others (accept when score ≥ threshold).

    ``folds`` is a number of contiguous blocks, or the fold of each pair [m]. Of equally good thresholds
    `best_accuracy_threshold` takes the highest.
    """
    values = checked_scores(scores, "pair").cpu()
    labels = torch.as_tensor(same).reshape(-1).bool().cpu()
    fold = contiguous_folds(len(values), folds) if isinstance(folds, int) else folds.reshape(-1).cpu()
    if not len(values) == len(labels) == len(fold):
        raise ValueError(f"{len(values)} scores, {len(labels)} labels and {len(fold)} fold numbers must pair up")
    names = fold.unique()
    if len(names) < 2:
        raise ValueError(f"need at least 2 folds, got {len(names)}: a threshold must come from other pairs")
    per_fold, thresholds = [], []
    for name in names:
        held_out = fold == name
        seen = labels[~held_out]
        if bool(seen.all()) or not bool(seen.any()):
            raise ValueError(
                f"the folds other than {int(name)} hold one kind of pair only: folds must mix same and different"
            )
        threshold = best_accuracy_threshold(values[~held_out], seen)
        right = (values[held_out] >= threshold.value) == labels[held_out]
        per_fold.append(int(right.sum()) / len(right))
        thresholds.append(threshold.value)
    mean = sum(per_fold) / len(per_fold)
    return FoldResult(
        accuracy=mean,
        spread=math.sqrt(sum((x - mean) ** 2 for x in per_fold) / len(per_fold)),
        per_fold=tuple(per_fold),
        thresholds=tuple(thresholds),
        pairs=len(values),
        genuine_pairs=int(labels.sum()),
        interval=fold_interval(per_fold),
    )


def pair_scores(embeddings: Tensor, pairs: Tensor) -> Tensor:
    """Cosine of the two embeddings [n, d] (normalised here) of each pair [m, 2], as [m]."""
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must be [m, 2], got {list(pairs.shape)}")
    if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < len(embeddings):
        raise ValueError(f"pairs name images {int(pairs.min())} … {int(pairs.max())}, there are {len(embeddings)}")
    unit, pairs = unit_rows(embeddings), pairs.to(embeddings.device)
    return (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1)


def synthetic_pairs(
    identities: Tensor, count: int, folds: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """A balanced list of ``count`` different pairs of the images of ``identities`` [n], in LFW's manner.

    Returns pairs [m, 2], same [m] and fold [m]. Folds share no identities; each holds as many same as different pairs,
    same pairs first. Same pairs go round the identities before any gives a second one. At most 50 images of an identity
    and 2,000 of a fold take part.
    """
    if folds < 1 or count < 1 or count % (2 * folds):
        raise ValueError(f"count must be a multiple of 2 × folds, got {count} for {folds} folds")
    labels = identities.reshape(-1).cpu()
    people, place = labels.unique(return_inverse=True)
    sizes = torch.bincount(place)
    # Deal identities to folds like cards, those with most images first, so that every fold can make same pairs.
    shuffled = torch.randperm(len(people), generator=generator)
    dealt = shuffled[sizes[shuffled].sort(descending=True, stable=True).indices]
    turn = torch.empty_like(dealt)
    turn[dealt] = torch.arange(len(people))
    each = count // (2 * folds)
    pairs = [_fold_pairs(fold, (turn % folds == fold)[place], turn[place], each, generator) for fold in range(folds)]
    same = torch.cat([torch.ones(each), torch.zeros(each)]).bool().repeat(folds)
    return torch.cat(pairs), same, torch.arange(folds).repeat_interleave(2 * each)


def _fold_pairs(fold: int, member: Tensor, turn: Tensor, each: int, generator: torch.Generator) -> Tensor:
    """Same pairs, then different pairs, of the images that are ``member`` [n] of it; ``turn`` [n] is whose they are."""
    images = member.nonzero().squeeze(1)
    images = images[torch.randperm(len(images), generator=generator)]
    images = images[_rank_within(turn[images]) < IMAGES_PER_IDENTITY]
    images = images[turn[images].sort(stable=True).indices][:IMAGES_PER_FOLD]  # whole people, in the order of dealing
    left, right = torch.triu_indices(len(images), len(images), offset=1)
    shuffle = torch.randperm(len(left), generator=generator)
    pairs = torch.stack([images[left], images[right]], dim=1)[shuffle]
    owner = turn[pairs]
    same = owner[:, 0] == owner[:, 1]
    genuine, impostor = pairs[same], pairs[~same]
    if min(len(genuine), len(impostor)) < each:
        raise ValueError(
            f"fold {fold} can make {len(genuine)} same and {len(impostor)} different pairs, {each} of each are needed: "
            "ask for fewer pairs (data.pairs, or --count of `coalface pairs`), or give more people (data.test) and "
            "images of each (data.test_images)"
        )
    in_turn = _rank_within(owner[same][:, 0]).sort(stable=True).indices
    return torch.cat([genuine[in_turn[:each]], impostor[:each]])


def _rank_within(groups: Tensor) -> Tensor:
    """How many earlier entries have the same value, for each entry."""
    order = groups.sort(stable=True).indices
    ordered = groups[order]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(groups)) - torch.searchsorted(ordered, ordered)
    return rank
