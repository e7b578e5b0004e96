"""What benchmarks/dp_accuracy.py measures, and the account of it: settings that were chosen on other people."""

from __future__ import annotations

from collections import Counter
from math import sqrt

from coalface.privacy import account

METHODS = ("fedavg/positive-only", "fedface", "fedfv", "chorus")
REVEAL = ("fedface", "fedfv")
CLIENTS = (1000, 10_000)
EPSILONS = {1000: (50.0, 8.0, 2.0), 10_000: (8.0, 2.0, 0.5)}
IMAGES = 4  # of each client
IMAGES_A_ROUND = 1  # of these
ROUNDS = 60
RATES = {"fedavg/positive-only": 2.0, "fedface": 2.0, "fedfv": 0.5, "chorus": 0.5}  # of a client's one step
CLIPS = {"fedavg/positive-only": 0.5, "fedface": 0.5, "fedfv": 0.5, "chorus": 0.5}  # of its change
CHORD = 10.0  # noise on a choir's sum, over that on the sum of updates: next to nothing of the budget is for chords
WORLD = "easy:standard"  # conditions of the server's public photographs, and of everybody else's


def epsilon(method: str, clients: int, noise: float, rounds: int) -> float | None:
    """After so many rounds of everybody; None where templates are revealed."""
    if method in REVEAL or not noise:
        return None
    multiplier = account.combined(noise, CHORD * noise) if method == "chorus" else noise
    book = account.Account(multiplier, 0.1 / clients, clients, clients, sample_is_secret=False)
    book.rounds, book.sums_of = rounds, Counter({0: rounds})
    return book.readers()


def noise_of(target: float, clients: int) -> float:
    """The multiplier at which fedavg's rounds come to this ε."""
    low, high = 0.01, 1000.0
    while high / low > 1.002:
        middle = sqrt(low * high)
        found = epsilon(METHODS[0], clients, middle, ROUNDS)
        low, high = (low, middle) if found is not None and found <= target else (middle, high)
    return float(f"{high:.3g}")
