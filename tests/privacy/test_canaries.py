"""The attack of the canaries stays under the stated ε, and finds out noise that is less than stated."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import pytest

from coalface.privacy.account import Account
from coalface.privacy.audits.canaries import epsilon_shown, releases
from coalface.privacy.settings import DP

TRIALS, CLIENTS = 400, 2


def stated(settings: DP, rounds: int) -> float:
    account = Account(settings.noise, settings.delta, CLIENTS, CLIENTS, True)
    for _ in range(rounds):
        account.charge(range(CLIENTS))
    return account.readers()


def shown(settings: DP, rounds: int) -> float:
    pair = [releases(settings, CLIENTS, rounds, TRIALS, canary, seed) for canary, seed in ((1.0, 0), (-1.0, 10**6))]
    return epsilon_shown(*pair, settings.delta)


@pytest.mark.parametrize(("noise", "rounds"), [(1.5, 1), (2.0, 2)])
def test_what_an_attacker_shows_is_under_the_stated_epsilon(noise: float, rounds: int) -> None:
    settings = DP(noise=noise, clip=0.7, delta=1e-3)
    assert 0.3 < shown(settings, rounds) < stated(settings, rounds)


def test_too_little_noise_is_found_out() -> None:
    honest = DP(noise=6.0, clip=0.7, delta=1e-3)
    assert shown(replace(honest, noise=1.5), 1) > stated(honest, 1)


def test_the_bound_is_that_of_two_gaussians() -> None:
    """Scores ±1 with deviation 1: above 1.5, 31 % against 0.6 %, whose ratio is e^3.9; many trials come near it."""
    quantiles = [NormalDist().inv_cdf((i * 7919 % 20_000 + 0.5) / 20_000) for i in range(20_000)]
    bound = epsilon_shown([q + 1 for q in quantiles], [q - 1 for q in quantiles], delta=0.0)
    assert 3.5 < bound < 6.0
    assert epsilon_shown(quantiles, quantiles, delta=0.0) == 0.0
