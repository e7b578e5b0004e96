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


def test_of_a_secret_all_bits_count() -> None:
    """torch seeds a generator with 32 bits, which anybody can try out; a machine's secret has 256."""
    secret = 1 << 255
    first, again, other = (
        torch.rand(3, generator=seeding.generator(seed, "noise")) for seed in (secret, secret, secret + 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    made = seeding.generator(secret, "noise").get_state().numpy()
    tried = torch.Generator().manual_seed(seeding.derive(secret, "noise")).get_state().numpy()
    words = slice(seeding.AT, seeding.AT + 8 * seeding.WORDS)
    assert made[words].view("<u8").max() < 1 << 32 and (made[words] != tried[words]).mean() > 0.4  # half are zeros
    assert made.nbytes == tried.nbytes and (made[: seeding.AT] == tried[: seeding.AT]).all()


def test_a_runs_own_seed_is_as_torch_takes_it() -> None:
    expected = torch.rand(3, generator=torch.Generator().manual_seed(seeding.derive(7, "round", 1)))
    assert torch.equal(torch.rand(3, generator=seeding.generator(7, "round", 1)), expected)
