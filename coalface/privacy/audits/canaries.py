"""Canaries: how much the noisy sums really tell, as a lower bound of ε that an attacker can show.

A canary is a user whose data is as bad as data can be: in one federation all its updates are one direction as long as
the clip allows, in the other they are the opposite. Everybody else is the same in both. The attacker sees what is
released, knows the direction, and guesses which federation it was. If its guesses are right too often for the ε that
the account states, the account is wrong; if they are never, the noise may be more than it need be.

Every trial runs the code that protects real rounds. A bound this low proves nothing; one above the stated ε disproves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, cast

import torch

from coalface import wire
from coalface.algorithms.backbone_only import Upload
from coalface.algorithms.fedavg import PositiveOnly
from coalface.engines.engine import Reply, Task
from coalface.federation import Rounds
from coalface.gathering import Plain
from coalface.local import Training
from coalface.metrics.intervals import wilson
from coalface.models.net import Weights
from coalface.privacy.dp import PrivateSums
from coalface.privacy.settings import DP


def releases(settings: DP, clients: int, rounds: int, trials: int, canary: float, seed: int) -> list[float]:
    """What the attacker measures in each trial: the mean of the released sums along the canary's direction.

    ``canary`` is +1 in one federation and −1 in the other. The others send nothing in that direction.
    """
    rules, method = Rounds(rounds=rounds), PositiveOnly()
    sums = PrivateSums(settings, rules, Plain(rules), method, clients, clients)
    sums.account = None  # the trials are not one run
    found = []
    for trial in range(trials):
        measured = 0.0
        for round_ in range(1, rounds + 1):
            task = Task(method, cast(Any, None), Training(), seed + trial, round_, 0, lambda client: wire.Broadcast())
            gathering = sums.open(task, range(clients), lambda client: client, clients)
            for client in range(clients):
                own = _upload([2 * canary * sums.clip, 0.0] if client == 0 else [0.0, 0.3])
                gathering.count_in(Reply(client, own), own)
            received = gathering.close().received
            assert received is not None  # nobody drops out here
            measured += clients * float(received.mean("backbone").parameters["w"][0]) / rounds
        found.append(measured)
    return found


def _upload(values: list[float]) -> Upload:
    return Upload(Weights({"w": torch.tensor(values)}, {}), images=5)


def epsilon_shown(present: Sequence[float], absent: Sequence[float], delta: float, level: float = 0.95) -> float:
    """A lower bound of ε at this confidence, from measurements in the two federations.

    (ε, δ) means P(guess | present) ≤ e^ε · P(guess | absent) + δ for every guess. The guess, "above t", is chosen on
    one half of the trials and judged on the other, so that choosing it among many does not flatter it.
    """
    half = len(present) // 2
    best, threshold = 0.0, float("inf")
    for candidate in sorted(present[:half])[:: max(1, half // 200)]:
        bound = _at(present[:half], absent[:half], candidate, delta, level)
        if bound > best:
            best, threshold = bound, candidate
    return _at(present[half:], absent[half:], threshold, delta, level)


def _at(present: Sequence[float], absent: Sequence[float], threshold: float, delta: float, level: float) -> float:
    hits = wilson(sum(value > threshold for value in present), len(present), level)
    false = wilson(sum(value > threshold for value in absent), len(absent), level)
    return max(0.0, log((hits.low - delta) / false.high)) if hits.low > delta else 0.0
