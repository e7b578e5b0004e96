"""What is done to an upload before it is summed: it is clipped and, where clients add the noise, given its share."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, floor, inf, sqrt
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalface import seeding, tree, wire
from coalface.engines.engine import Task

Part = Literal["summed", "grouped", "losses"]
Luck = Callable[[int, Part], np.random.Generator]  # where a client's share of the noise on a part comes from
Normal = Callable[[torch.Size], Tensor]  # standard normal numbers, float64
SLACK = 1.001  # a clipped value may be over the clip by its rounding
FINEST = 4.0  # quanta in a share's standard deviation: then a sum of discrete Gaussians is one, to 1e-60


def clip(
    upload: wire.Upload, bound: float, group_bound: float, known: wire.Known | None = None
) -> tuple[wire.Upload, float]:
    """The upload with its Summed fields together, and its SummedInGroup fields together, at most so long; counts 1.

    And the norm of the Summed fields as it was. ``known`` are the squared norms of fields that were just checked.
    """
    fields: dict[str, Any] = {}
    norms = {}
    known = known or {}
    for seen, most in ((wire.Seen.SUMMED, bound), (wire.Seen.GROUPED, group_bound)):
        named = {row.field: getattr(upload, row.field) for row in wire.disclosure(type(upload)) if row.seen is seen}
        squares = [known[name][1] if name in known else _square(value) for name, value in named.items()]
        norms[seen] = sqrt(sum(squares))
        factor = min(1.0, most / norms[seen]) if norms[seen] else 1.0
        if factor < 1:
            fields |= {name: tree.transform(lambda leaf, by=factor: leaf * by, value) for name, value in named.items()}
    fields |= {row.field: 1 for row in wire.disclosure(type(upload)) if row.seen is wire.Seen.COUNT}
    clipped: wire.Upload = dataclasses.replace(upload, **fields)  # type: ignore[type-var]  # subclasses are dataclasses
    return clipped, norms[wire.Seen.SUMMED]


def _square(value: Any) -> float:
    squares = [leaf.detach().double().square().sum() for leaf in tree.leaves(value).values()]
    return float(torch.stack(squares).sum()) if squares else 0.0


@dataclass(frozen=True)
class Noise:
    """The clients' shares of a round's noise: whole standard deviations, in the units of the values."""

    summed: float
    grouped: float
    losses: float
    clip: float
    group_clip: float
    luck: Luck

    def share(self, field: Part, among: int, words: int, quantum: float, client: int) -> NDArray[np.int64]:
        """Discrete Gaussian noise on the grid. Rounding moves a clipped vector, and the noise is larger for it."""
        whole = {"summed": self.summed, "grouped": self.grouped, "losses": self.losses}[field]
        norm = {"summed": self.clip, "grouped": self.group_clip, "losses": inf}[field]  # ±1/2 is on the grid as it is
        if not whole or not words:
            return np.zeros(words, np.int64)
        deviation = (1 + quantum * sqrt(words) / 2 / norm) * whole / sqrt(among) / quantum
        if deviation < FINEST:
            raise ValueError(
                f"a share of noise of {deviation:.2g} quanta is too little to be Gaussian: "
                "lower privacy.value_bound, or raise privacy.dp.noise"
            )
        return discrete_gaussian(deviation, words, self.luck(client, field))


def seeded(task: Task) -> Luck:
    """In a simulation: by the run's seed, so that a resumed run repeats a round."""
    return lambda client, field: np.random.Generator(
        np.random.Philox(seeding.derive(task.seed, "noise", task.round, task.attempt, client, field))
    )


def of_this_machine(client: int, field: Part) -> np.random.Generator:
    """On a real machine: from the operating system's randomness, and never again."""
    return np.random.Generator(np.random.Philox(secrets.randbits(128)))


def central(task: Task, on_machines: bool) -> Normal:
    """The server's own noise on one round: by the run's seed in a simulation, by nobody's on a real machine.

    There it is new each time, so that a round that is told again after a crash does not carry the same noise.
    """
    if not on_machines:
        seeded_luck = seeding.generator(task.seed, "noise", task.round, task.attempt)
        return lambda shape: torch.randn(shape, generator=seeded_luck, dtype=torch.float64)
    luck = np.random.Generator(np.random.Philox(secrets.randbits(128)))
    return lambda shape: torch.from_numpy(np.asarray(luck.standard_normal(tuple(shape))))


def discrete_gaussian(deviation: float, count: int, luck: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers n with probability in proportion to exp(−n²/2σ²), by rejection (Canonne, Kamath, Steinke 2020)."""
    scale = floor(deviation) + 1
    found: list[NDArray[np.int64]] = []
    missing = count
    while missing > 0:
        draws = int(1.5 * missing) + 16
        # The difference of two geometric numbers is a discrete Laplace number.
        stop = 1 - exp(-1 / scale)
        laplace = luck.geometric(stop, draws) - luck.geometric(stop, draws)
        likely = np.exp(-((np.abs(laplace) - deviation**2 / scale) ** 2) / (2 * deviation**2))
        kept = laplace[luck.random(draws) < likely][:missing]
        found.append(kept)
        missing -= len(kept)
    return np.concatenate(found) if found else np.zeros(0, np.int64)
