"""From a run's settings to the way in which it sums."""

# ruff: noqa: PLC0415  (cryptography is optional, so it is imported where it is used)

from __future__ import annotations

from typing import Any

from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.gathering import Plain, Sums
from coalface.method import Method
from coalface.privacy.settings import Privacy
from coalface.store import Stage


def protected(
    privacy: Privacy,
    method: Method,
    population: Population,
    rules: Rounds,
    stage: Stage | None = None,
) -> Sums | None:
    """How to sum by these settings, going on from a stage's records; None: in the open, and nothing is accounted."""
    rules = privacy.without_bounds(rules)
    inner: Any = Plain(rules)
    if privacy.secure_sum:
        from coalface.privacy.secagg.rules import Rules
        from coalface.privacy.secure_sum import SecureSums

        most = privacy.largest_weight() or int(population.counts().max())
        insisted = Rules(min_cohort=privacy.min_cohort, threshold=privacy.threshold)
        inner = SecureSums(rules, insisted, privacy.value_bound, most)
    if not privacy.dp.noise:
        return inner if privacy.secure_sum else None
    from coalface.privacy.dp import PrivateSums

    cohort = min(rules.cohort or len(population), len(population))
    sums = PrivateSums(privacy.dp, rules, inner, method, cohort, len(population))
    if stage is not None:
        sums.restore(stage.rounds(), stage.ledger())
    return sums
