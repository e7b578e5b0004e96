"""Differential privacy for users: clip each upload, add noise to the sum, keep the account, stop before the budget.

    clip     every Summed field of an upload together, to one L2 norm; SummedInGroup fields to another. All are trained
             floats: integer counters do not travel, and averaged batch-norm statistics are refused (``settings``).
    weights  equal, and the counts are 1: how many images a client has is its own business.
    noise    central: Gaussian, on the sums, by a server that is trusted to add it.
             distributed: each client adds a share, a discrete Gaussian on the grid of the fixed point, before its
             upload is masked (Kairouz, Liu, Steinke 2021); the fewest clients that can unmask have all of it together.
    losses   are not told: they are measured on private images, and no noise covers them.

In a simulation noise comes from the run's seed, so that a resumed run repeats the round that was cut short and tells
nothing twice. Whoever knows the seed can take it away again: on real machines (``Machines``) noise is a machine's own,
clients clip their uploads themselves, and a round that is told again after a crash is charged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import TYPE_CHECKING, Any

import torch

from coalface import wire
from coalface.engines.engine import Reply, Task
from coalface.federation import Rounds
from coalface.gathering import BudgetSpent, Gathered, Gathering, Plain, checked
from coalface.method import Method
from coalface.privacy.account import Account, combined
from coalface.privacy.journal import Journal
from coalface.privacy.noise import Noise, central, clip, seeded
from coalface.privacy.settings import DP, revealed

if TYPE_CHECKING:
    from coalface.privacy.secure_sum import SecureSums

CLIP_RATE = 0.2  # of the adaptive clip, as in Andrew et al. 2021
IN_CLIP = "in_clip"


@dataclass(frozen=True)
class Machines:
    """What the server has of its own where clients are on machines of their own."""

    journal: Journal  # of what was told


class PrivateSums:
    """A way to sum (``gathering.Sums``) around another one. Without ``machines``, clients are simulated."""

    def __init__(
        self,
        settings: DP,
        rounds: Rounds,
        inner: Plain | SecureSums,
        method: Method,
        cohort: int,
        clients: int,
        machines: Machines | None = None,
    ) -> None:
        self.settings, self.rounds, self.inner, self.machines = settings, rounds, inner, machines
        self.clip = settings.clip  # of the coming round
        self.of_bits = cohort / 20 if settings.clip_quantile else 0.0  # noise on how many were under the clip
        if self.of_bits and 2 * self.of_bits <= settings.noise:
            raise ValueError(
                f"a cohort of {cohort} is too small to adapt the clip under privacy.dp.noise={settings.noise}: "
                f"it takes more than {10 * settings.noise:.0f} clients, or set privacy.dp.clip_quantile=0"
            )
        # The noise on the bits takes its part of z, and the noise on the values is a little more for it.
        self.of_values = 1 / sqrt(settings.noise**-2 - (2 * self.of_bits) ** -2) if self.of_bits else settings.noise
        grouped = [settings.group_noise] if settings.group_noise else []
        multiplier = combined(settings.noise, *grouped)
        # Amplification holds for cohorts drawn as ``cohort.draw`` does, where nothing that is published shows the draw.
        secret = type(method).cohort is Method.cohort and not grouped
        # No number is true of what is told beside the noise: fields that are revealed, group sums without any.
        bare = any(row.seen is wire.Seen.GROUPED for row in wire.disclosure(method.types.upload)) and not grouped
        told = bare or bool(revealed(method))
        self.account = None if told else Account(multiplier, settings.delta, cohort, clients, secret)
        if self.account and settings.budget and (first := self.account.after_one_more([0])) > settings.budget:
            raise ValueError(
                f"the first round alone has ε = {first:.3g}, over privacy.dp.budget={settings.budget:g}: "
                "raise privacy.dp.noise or the budget"
            )

    def restore(self, rounds: Sequence[Mapping[str, Any]], ledger: Iterable[Mapping[str, Any]]) -> None:
        """Go on from a run's records; on real machines from the journal, which no crash takes back."""
        if self.account is not None and self.machines is None:
            self.account.restore(rounds, ledger)
        elif self.account is not None and self.machines is not None:
            for clients in self.machines.journal.told():
                self.account.charge(clients)
        done = [row["privacy"] for row in rounds if not row["void"]]
        if done:
            self.clip = done[-1]["next_clip"]

    def open(self, task: Task, cohort: Sequence[int], group_of: Callable[[int], int], clients: int) -> Gathering:
        """Part of ``gathering.Sums``; BudgetSpent if this round would pass the budget."""
        budget = self.settings.budget
        if budget and self.account is not None and (epsilon := self.account.after_one_more(cohort)) > budget:
            raise BudgetSpent(f"round {task.round} would bring ε to {epsilon:.3g}, over the budget of {budget:.3g}")
        if isinstance(self.inner, Plain):
            inner: Gathering = self.inner.open(task, cohort, group_of, clients)
        else:
            inner = self.inner.open(task, cohort, group_of, clients, self._shares(task))
        return PrivateGathering(self, inner, task, len(cohort))

    def deviations(self) -> tuple[float, float]:
        """Standard deviation of the noise on the sum of values, and on a group's sum."""
        return self.of_values * self.clip, self.settings.group_noise * self.settings.group_clip

    def _shares(self, task: Task) -> Noise | None:
        if self.settings.where == "central":
            return None
        summed, grouped = self.deviations()
        return Noise(summed, grouped, self.of_bits, self.clip, self.settings.group_clip, seeded(task))

    def charge(self, task: Task, clients: list[int]) -> dict[str, float]:
        """One more sum is told, over these clients; ε by now."""
        if self.account is None:
            return {}
        if self.machines is not None:
            self.machines.journal.add(task.round, task.attempt, clients)
        self.account.charge(clients)
        told = {"epsilon": self.account.readers(), "delta": self.account.delta}
        return told if self.settings.where == "central" else {**told, "epsilon_server": self.account.server()}


class PrivateGathering:
    """One round (``gathering.Gathering``)."""

    def __init__(self, sums: PrivateSums, inner: Gathering, task: Task, cohort: int) -> None:
        self.sums, self.inner, self.task, self.cohort = sums, inner, task, cohort
        self.clip = sums.clip

    def count_in(self, reply: Reply, expected: wire.Upload) -> str:
        """Clip, then count in; what does not concern the sums is left out."""
        if self.sums.machines is not None and not isinstance(self.sums.inner, Plain):
            return self.inner.count_in(reply, expected)  # under masks: the client has clipped it itself
        known = wire.Known()
        outcome, upload = checked(reply, expected, self.sums.rounds, known)
        if upload is None:
            return outcome
        clipped, norm = clip(upload, self.clip, self.sums.settings.group_clip, known)
        adaptive = {IN_CLIP: float(norm <= self.clip) - 0.5} if self.sums.of_bits else {}
        return self.inner.count_in(replace(reply, upload=clipped, losses=adaptive, squares={}), expected)

    def close(self) -> Gathered:
        """The sums with their noise, and what they have told by now."""
        sums, gathered = self.sums, self.inner.close()
        received = gathered.received
        if received is None or len(received.clients) < sums.rounds.needed(self.cohort):
            if gathered.unmasked:  # the round is void, but what was seen was told
                sums.charge(self.task, [*gathered.unmasked])
            return Gathered(None, why=gathered.why)
        normal = central(self.task, on_machines=sums.machines is not None)
        by_server = sums.settings.where == "central"
        if by_server:
            grouped = {
                row.field for row in wire.disclosure(self.task.method.types.upload) if row.seen is wire.Seen.GROUPED
            }
            of_sum, of_group = sums.deviations()
            received.disturb(
                lambda field, total: (
                    total + (normal(total.shape) * (of_group if field in grouped else of_sum)).to(total)
                )
            )
        if sums.of_bits:
            under = gathered.losses[IN_CLIP] * len(received.clients)
            under += sums.of_bits * float(normal(torch.Size(()))) if by_server else 0.0
            share = under / len(received.clients) + 0.5
            sums.clip = self.clip * exp(-CLIP_RATE * (share - sums.settings.clip_quantile))
        told = sums.charge(self.task, received.clients)
        return Gathered(received, {}, {**told, "clip": self.clip, "next_clip": sums.clip})

    def told(self, reply: Reply) -> Reply:
        """Part of ``gathering.Gathering``."""
        return replace(self.inner.told(reply), images=0, losses={})
