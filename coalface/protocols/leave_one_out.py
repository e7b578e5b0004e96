"""Attack detection on a domain that nobody trained on: each in turn is the users', the others are the data centres.

The threshold is the EER threshold on the data centres' dev recordings, all pooled; it never sees the users' domain.
Frames are judged one by one, and recordings by the mean score of their frames: two numbers that are not comparable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coalface.data.recordings import Recordings
from coalface.metrics.attack import AttackRates, attack_rates, threshold_at_eer, with_intervals
from coalface.metrics.rates import roc_curve

ROC_POINTS, BINS = 100, 40  # of what is told of all thresholds, and of all scores

Scorer = Callable[[Tensor], Tensor]  # images uint8 [n, 3, H, W] -> scores [n], higher is more live


@dataclass(frozen=True)
class Centre:
    """What one domain records. Its subjects have one role each."""

    train: Recordings
    dev: Recordings
    test: Recordings


Fit = Callable[[Mapping[str, Centre]], Scorer]  # trains on the data centres' train, may look at their dev


@dataclass(frozen=True)
class Scored:
    """Presentations and their scores, [n] each."""

    scores: Tensor
    attack: Tensor
    video: Tensor
    subject: Tensor

    def by_video(self) -> Scored:
        """One presentation for each recording, with the mean score of its frames, in rising order of its number."""
        videos, place, frames = self.video.unique(return_inverse=True, return_counts=True)
        total = torch.zeros(len(videos), dtype=torch.float64, device=self.scores.device)
        total.index_add_(0, place, self.scores.double())
        columns = []
        for name in ("attack", "subject"):
            column = getattr(self, name)
            of_video = torch.zeros_like(videos).scatter_(0, place, column)
            if not torch.equal(of_video[place], column):
                raise ValueError(f"frames of one recording have more than one {name}: its number was used twice")
            columns.append(of_video)
        return Scored(total / frames, columns[0], videos, columns[1])

    def curves(self) -> dict[str, Any]:
        """ROC (share of attacks that pass, share of live that pass) and counts of scores from 0 to 1; no single one."""
        attack, live = self.scores[self.attack != 0], self.scores[self.attack == 0]
        roc = [[round(float(value), 4) for value in part] for part in roc_curve(attack, live, ROC_POINTS)]
        bars = {
            name: [int(count) for count in torch.histc(scores.double().cpu(), BINS, 0, 1)]
            for name, scores in (("live", live), ("attack", attack))
        }
        return {"roc": roc, "histogram": bars}


@dataclass(frozen=True)
class TargetResult:
    """One domain as the users'. ``oracle`` rates have a threshold from the test itself: what no user could have."""

    target: str
    sources: tuple[str, ...]
    frame: AttackRates
    video: AttackRates
    oracle: tuple[AttackRates, AttackRates] | None = None  # of frames and of videos

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        rates = {name: rate.as_dict() for name, rate in self._named().items()}
        return {"target": self.target, "sources": list(self.sources), **rates}

    def to_json(self) -> str:
        """`as_dict` as JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        rates = [f"by {name}: {rate}" for name, rate in self._named().items()]
        return "\n".join([f"{'&'.join(self.sources)} → {self.target}", *rates])

    def _named(self) -> dict[str, AttackRates]:
        oracle = {} if self.oracle is None else {"frame, ORACLE": self.oracle[0], "video, ORACLE": self.oracle[1]}
        return {"frame": self.frame, "video": self.video} | oracle


def leave_one_out(
    centres: Mapping[str, Centre], fit: Fit, seed: int, *, replicates: int = 1000, oracle: bool = False
) -> list[TargetResult]:
    """Each domain in turn is left out of training and tested on; ``fit`` never sees it."""
    if len(centres) < 2:
        raise ValueError(f"leaving one domain out needs at least 2, got {', '.join(centres) or 'none'}")
    results = []
    for target, users in centres.items():
        sources = {name: centre for name, centre in centres.items() if name != target}
        scorer = fit(sources)
        dev = {name: scored(scorer, centre.dev) for name, centre in sources.items()}
        results.append(judge(target, scored(scorer, users.test), dev, seed, replicates=replicates, oracle=oracle))
    return results


def judge(
    target: str,
    test: Scored,
    dev: Mapping[str, Scored],
    seed: int,
    *,
    replicates: int = 1000,
    oracle: bool = False,
) -> TargetResult:
    """Rates on ``test`` at the EER threshold of the sources' ``dev``; 0 replicates: no intervals.

    ``oracle`` adds rates at the test's own EER threshold, under a name that says so.
    """
    if not dev:
        raise ValueError(f"a threshold for {target} must come from somewhere: give the sources' dev scores")
    frame, video = _rates(test, list(dev.values()), f"dev of {'&'.join(dev)}", seed, replicates)
    unfair = _rates(test, [test], f"the test itself ({target}): AN ORACLE", seed, replicates) if oracle else None
    return TargetResult(target, tuple(dev), frame, video, unfair)


def scored(scorer: Scorer, recordings: Recordings, at_once: int = 256) -> Scored:
    """Scores of all frames, in blocks."""
    with torch.no_grad():
        scores = torch.cat([scorer(block).reshape(-1) for block in recordings.images.split(at_once)])
    if len(scores) != len(recordings):
        raise ValueError(f"the scorer gave {len(scores)} scores for {len(recordings)} frames")
    columns = (recordings.attack, recordings.video, recordings.subject)
    return Scored(scores, *(column.to(scores.device) for column in columns))


def _rates(
    test: Scored, thresholds_from: list[Scored], origin: str, seed: int, replicates: int
) -> tuple[AttackRates, AttackRates]:
    """Of frames and of videos, each at a threshold of its own kind."""
    rates = []
    for unit, here, there in (
        ("frames", test, thresholds_from),
        ("videos", test.by_video(), [part.by_video() for part in thresholds_from]),
    ):
        scores = torch.cat([part.scores.double() for part in there])
        threshold = threshold_at_eer(scores, torch.cat([part.attack for part in there]), f"{unit} of {origin}")
        found = attack_rates(here.scores, here.attack, threshold)
        if replicates:
            found = with_intervals(found, here.scores, here.attack, here.subject, seed, replicates=replicates)
        rates.append(found)
    return rates[0], rates[1]
