"""What the rounds so far have told of one user, as ε at a fixed δ. The accountants are those of dp-accounting.

Neighbouring federations differ in one user's data, all of it (replace one user; the number of users is public). So the
sum of clipped updates moves by twice the clip, and the noise over that is half the multiplier z of the settings.

readers   Those who get the models, and not the lists of who was called. Cohorts have a fixed size and are drawn without
          replacement: amplification by sampling, Theorem 27 of Wang, Balle and Kasiviswanathan 2019, as
          ``SampledWithoutReplacementDpEvent`` in the RDP accountant.
server    It knows whom it called, and so do readers of chorus, whose chords show which choirs sang: no amplification.
          A user is told of once for each sum it was in; the most that any user was in counts, and composing Gaussian
          mechanisms is exact.

The first is never more than the second, which is a bound for it too.
"""

# ruff: noqa: PLC0415  (dp-accounting is optional, so it is imported where it is used)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import sqrt
from typing import Any

REMEDY = "differential privacy needs the package dp-accounting: pip install 'coalface[privacy]'"


class Account:
    """ε after so many rounds, and who was in them."""

    def __init__(self, multiplier: float, delta: float, cohort: int, clients: int, sample_is_secret: bool) -> None:
        """``multiplier``: the noise on everything that one upload moves, over the clip (``combined``)."""
        try:
            import dp_accounting  # noqa: F401
        except ImportError as error:
            raise ImportError(REMEDY) from error
        self.multiplier, self.delta, self.cohort, self.clients = multiplier, delta, cohort, clients
        self.sample_is_secret = sample_is_secret and cohort < clients
        self.rounds = 0
        self.sums_of: Counter[int] = Counter()  # how many sums each user was in

    def restore(self, rounds: Iterable[Mapping[str, Any]], ledger: Iterable[Mapping[str, Any]]) -> None:
        """Go on from a run's records; void rounds told nothing."""
        good = {(row["round"], row["attempt"]) for row in rounds if not row["void"]}
        self.rounds = len(good)
        self.sums_of = Counter(
            row["client"] for row in ledger if row["outcome"] == "counted" and (row["round"], row["attempt"]) in good
        )

    def charge(self, clients: Iterable[int]) -> None:
        """One more sum, over these users."""
        self.rounds += 1
        self.sums_of.update(clients)

    def after_one_more(self, clients: Iterable[int]) -> float:
        """The readers' ε, if these users were in one more sum."""
        most = max((self.sums_of[client] + 1 for client in clients), default=0)
        return self._readers(self.rounds + 1, max(most, self._most()))

    def readers(self) -> float:
        """ε for those who get the models."""
        return self._readers(self.rounds, self._most())

    def server(self) -> float:
        """ε for somebody who knows who was called, and sees sums with all their noise."""
        return self._composed(self._most())

    def _most(self) -> int:
        return max(self.sums_of.values(), default=0)

    def _readers(self, rounds: int, most: int) -> float:
        known = self._composed(most)
        return min(known, self._sampled(rounds)) if self.sample_is_secret else known

    def _composed(self, times: int) -> float:
        """So many Gaussian mechanisms on the same user are one, with less noise by the square root."""
        from dp_accounting import get_epsilon_gaussian

        return float(get_epsilon_gaussian(self.multiplier / 2 / sqrt(times), self.delta)) if times else 0.0

    def _sampled(self, rounds: int) -> float:
        """So many rounds with a secret sample: RDP adds up."""
        from dp_accounting.rdp import compute_epsilon

        orders, one_round = self._curve
        return float(compute_epsilon(orders, rounds * one_round, self.delta)[0]) if rounds else 0.0

    @cached_property
    def _curve(self) -> tuple[Any, Any]:
        """The RDP of one round at each order. It takes most of a second, and is the same every round."""
        from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
        from dp_accounting.rdp import RdpAccountant

        accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        noise = GaussianDpEvent(self.multiplier / 2)
        accountant.compose(SampledWithoutReplacementDpEvent(self.clients, self.cohort, noise))
        return accountant._orders, accountant._rdp


def combined(*multipliers: float) -> float:
    """The multiplier of several noisy sums that one upload moves together: a single Gaussian mechanism."""
    return 1 / sqrt(sum(1 / z**2 for z in multipliers))
