from __future__ import annotations

import torch

from coalface import cohort, seeding


def drawn(clients: int, size: int, round_: int = 1) -> list[int]:
    return cohort.draw(clients, size, seeding.generator(0, "round", round_))


def test_cohorts_are_drawn_without_replacement_and_by_seed() -> None:
    first = drawn(1000, 50)
    assert len(set(first)) == 50 and first == sorted(first)
    assert first == drawn(1000, 50) != drawn(1000, 50, round_=2)
    assert drawn(5, 0) == drawn(5, 9) == [0, 1, 2, 3, 4]


def test_cohorts_are_uniform() -> None:
    counts = torch.zeros(10)
    for round_ in range(2000):
        counts[drawn(10, 3, round_)] += 1
    assert (counts / 2000 - 0.3).abs().max() < 0.04  # four standard deviations of a share of 0.3
