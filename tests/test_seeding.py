from __future__ import annotations

import torch

from coalface import seeding


def test_the_same_purpose_gives_the_same_numbers() -> None:
    first, second = (torch.rand(3, generator=seeding.generator(1, "batches", 4, 5)) for _ in range(2))
    assert torch.equal(first, second)


def test_any_difference_gives_other_numbers() -> None:
    seeds = {
        seeding.derive(1, "batches", 4, 5),
        seeding.derive(2, "batches", 4, 5),
        seeding.derive(1, "cohort", 4, 5),
        seeding.derive(1, "batches", 45),
        seeding.derive(1, "batches", 4, "5"),
        seeding.derive(1, "batches", 5, 4),
    }
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_scheme_is_fixed() -> None:
    # Results in results/ depend on it: a change here is a change of every published number.
    assert seeding.derive(0, "faces") == 1_759_254_614_055_707_257
