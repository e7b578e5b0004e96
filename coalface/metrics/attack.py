"""Error rates of attack detection: a presentation passes as live when score ≥ threshold, a tie included.
APCER(t) = share of one kind of attack with score ≥ t; BPCER(t) = share of live presentations with score < t.

ISO/IEC 30107-3 names first. ACER is the mean of BPCER and the APCER of the worst kind; the papers' HTER is the mean of
BPCER and the share of all attacks that pass (their FAR, whatever the kinds). EER and AUC read the set's own curve and
need no threshold; HTER, ACER, APCER and BPCER are taken at a threshold from elsewhere, which says from where.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from coalface.data.recordings import ATTACKS
from coalface.metrics.bootstrap import curve_statistics, genuine_histogram, score_grid
from coalface.metrics.intervals import Interval, percentile_interval, resampled_identities
from coalface.metrics.rates import Threshold, auc, checked_scores, eer, eer_threshold, fmr, fnmr


@dataclass(frozen=True)
class AttackRates:
    """All rates of one set of presentations, with the counts that carry them."""

    threshold: Threshold
    apcer: dict[str, float]  # of each kind of attack in the set
    bpcer: float
    hter: float
    acer: float
    eer: float  # of this set's own curve
    auc: float
    live: int
    attacks: dict[str, int]
    subjects: int | None = None
    intervals: dict[str, Interval] | None = None  # of hter, acer, bpcer, eer and auc

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        intervals = {name: [i.low, i.high] for name, i in (self.intervals or {}).items()}
        return {
            "hter": self.hter, "eer": self.eer, "auc": self.auc, "acer": self.acer, "bpcer": self.bpcer,
            "apcer": dict(self.apcer), "threshold": self.threshold.value, "threshold_origin": self.threshold.origin,
            "live": self.live, "attacks": dict(self.attacks), "subjects": self.subjects, "intervals": intervals,
        }  # fmt: skip

    def __str__(self) -> str:
        def rate(name: str) -> str:
            interval = f" {self.intervals[name]}" if self.intervals else ""
            return f"{name.upper()} = {getattr(self, name):.4f}{interval}"

        kinds = ", ".join(
            f"APCER {kind} = {value:.4f} (of {self.attacks[kind]:,})" for kind, value in self.apcer.items()
        )
        return (
            f"{', '.join(rate(name) for name in ('hter', 'eer', 'auc', 'acer'))}\n"
            f"{kinds}, BPCER = {self.bpcer:.4f} (of {self.live:,}), threshold {self.threshold.value:.4g} "
            f"({self.threshold.origin})"
        )


def hter(attack: Tensor, live: Tensor, threshold: Threshold | float) -> float:
    """(share of attacks ≥ threshold + share of live < threshold) / 2, kinds of attack pooled."""
    return (fmr(attack, threshold) + fnmr(live, threshold)) / 2


def apcer(scores: Tensor, attack: Tensor, threshold: Threshold | float) -> dict[str, float]:
    """Share of each kind of attack with score ≥ threshold; ``attack`` [n] indexes ATTACKS, live (0) is left out."""
    return {ATTACKS[k]: fmr(scores[attack == k], threshold) for k in attack.unique().tolist() if k != 0}


def threshold_at_eer(scores: Tensor, attack: Tensor, origin: str) -> Threshold:
    """Threshold, among the scores, where pooled APCER and BPCER are nearest; of equally near ones the highest."""
    fake, real = _both_kinds(scores, attack)
    return replace(eer_threshold(fake, real), origin=f"EER on {origin}")


def attack_rates(scores: Tensor, attack: Tensor, threshold: Threshold) -> AttackRates:
    """All rates of presentations with ``scores`` [n], higher is more live, and kinds ``attack`` [n]."""
    fake, real = _both_kinds(scores, attack)
    by_kind, rejected = apcer(scores, attack, threshold), fnmr(real, threshold)
    return AttackRates(
        threshold=threshold,
        apcer=by_kind,
        bpcer=rejected,
        hter=hter(fake, real, threshold),
        acer=(max(by_kind.values()) + rejected) / 2,
        eer=eer(fake, real),
        auc=auc(fake, real),
        live=len(real),
        attacks={kind: int((attack == ATTACKS.index(kind)).sum()) for kind in by_kind},
    )


def with_intervals(
    rates: AttackRates,
    scores: Tensor,
    attack: Tensor,
    subject: Tensor,
    seed: int,
    *,
    replicates: int = 1000,
    level: float = 0.95,
) -> AttackRates:
    """The same rates with intervals: subjects are resampled, with all that was recorded of them.

    The threshold stays where it is, as it came from elsewhere. EER and AUC are read on a grid of scores, and shifted so
    that the grid decides the interval's width and never its place.
    """
    people, owner = subject.cpu().unique(return_inverse=True)
    drawn = resampled_identities(len(people), replicates, torch.Generator().manual_seed(seed))
    scores, attack = checked_scores(scores, "presentation").cpu(), attack.cpu()
    passed = scores >= rates.threshold.value

    def share(wrong: Tensor, among: Tensor) -> Tensor:
        """Weighted share [replicates] of ``wrong`` [n] among these [n]; NaN where a resample holds none."""
        counts = [torch.bincount(owner[chosen], minlength=len(people)).float() for chosen in (wrong & among, among)]
        return (counts[0] @ drawn) / (counts[1] @ drawn)

    live = attack == 0
    bpcer = share(~passed, live)
    kinds = torch.stack([share(passed, attack == ATTACKS.index(kind)) for kind in rates.apcer])
    worst = torch.where(kinds.isnan(), -1.0, kinds).amax(0)
    replicated = {
        "hter": (share(passed, ~live) + bpcer) / 2,
        "acer": (torch.where(worst < 0, torch.nan, worst) + bpcer) / 2,
        "bpcer": bpcer,
    }
    shift = dict.fromkeys(replicated, 0.0)
    weights = torch.cat([torch.ones_like(drawn[:, :1]), drawn], 1)  # column 0: everybody once
    grid = score_grid(scores[live], scores[~live], [])
    curves = curve_statistics(
        genuine_histogram(scores[live], owner[live], grid, weights),
        genuine_histogram(scores[~live], owner[~live], grid, weights),
        [],
    )
    for name, values in curves.items():
        replicated[name], shift[name] = values[1:], getattr(rates, name) - float(values[0])
    intervals = {name: percentile_interval(values, level, shift[name]) for name, values in replicated.items()}
    return replace(rates, intervals=intervals, subjects=len(people))


def _both_kinds(scores: Tensor, attack: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of attacks and of live presentations, in this order."""
    if scores.shape != attack.shape or scores.ndim != 1:
        raise ValueError(f"need scores [n] and attack [n], got {list(scores.shape)} and {list(attack.shape)}")
    fake, real = scores[attack != 0], scores[attack == 0]
    if not len(fake) or not len(real):
        raise ValueError(f"need live presentations and attacks, got {len(real)} and {len(fake)}")
    return fake, real
