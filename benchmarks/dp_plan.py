"""What benchmarks/dp_accuracy.py measures, and the account of it.

Rates and clips are the best of results/dp_search.md for each method and noise, on people whom no table has.
"""

from __future__ import annotations

from collections import Counter
from math import sqrt

from coalface.privacy import account

STILL = "chorus, no noise on chords"  # which is no promise, and hides who was in a sum of updates as well
METHODS = ("fedavg/positive-only", "fedface", "fedfv", "chorus", STILL)
REVEAL = ("fedface", "fedfv")
CLIENTS = (1000, 10_000)
COHORTS = {1000: 1000, 10_000: 1000}  # of 1,000 all: sums then compose exactly
EPSILONS = {1000: (8.0, 50.0, 2.0), 10_000: (2.0, 8.0, 0.5)}  # what is wanted most comes first
IMAGES = 4  # of each client
IMAGES_A_ROUND = 1  # of these
ROUNDS = 30
CHOSEN: dict[str, dict[float, tuple[float, float]]] = {  # rate of a client's one step, and clip of its change
    "fedavg/positive-only": {0.0: (0.25, 0.0), 50.0: (0.25, 0.5), 8.0: (0.25, 0.5), 2.0: (1.0, 0.2)},
    "fedface": {0.0: (0.25, 0.0), 50.0: (1.0, 1.0), 8.0: (1.0, 1.0), 2.0: (0.25, 0.5)},
    "fedfv": {0.0: (0.02, 0.0), 50.0: (0.02, 2.0), 8.0: (0.05, 1.0), 2.0: (0.02, 0.2)},
    "chorus": {0.0: (0.02, 0.0), 50.0: (0.05, 2.0), 8.0: (0.02, 0.5), 2.0: (0.02, 0.1)},
    STILL: {50.0: (0.02, 0.5), 8.0: (0.02, 0.5), 2.0: (0.02, 0.5)},  # not searched: as chorus at ε = 8
}
ALIKE = {0.0: 0.0, 8.0: 50.0, 2.0: 8.0, 0.5: 2.0}  # ε of 10,000 clients: that of 1,000 with about the same noise
CHORD = 10.0  # noise on a choir's sum, over that on the sum of updates: next to nothing of the budget is for chords
NOISE: dict[int, dict[str, dict[float, float]]] = {  # on the sum, in clips, as `dp_accuracy.py --account` prints it
    1000: {
        "fedavg/positive-only": {50.0: 1.56, 8.0: 5.95, 2.0: 19.0},
        "fedface": {50.0: 1.56, 8.0: 5.95, 2.0: 19.0},
        "fedfv": {50.0: 0.78, 8.0: 2.98, 2.0: 9.5},
        "chorus": {50.0: 1.57, 8.0: 5.99, 2.0: 19.1},
        STILL: {50.0: 1.57, 8.0: 5.99, 2.0: 19.1},
    },
    10_000: {
        "fedavg/positive-only": {8.0: 1.9, 2.0: 5.17, 0.5: 17.5},
        "fedface": {8.0: 1.9, 2.0: 5.17, 0.5: 17.5},
        "fedfv": {8.0: 1.9, 2.0: 5.17, 0.5: 17.5},
        "chorus": {8.0: 3.42, 2.0: 11.3, 0.5: 40.0},
    },
}
WORLD = "easy:standard"  # conditions of the server's public photographs, and of everybody else's


def setting(method: str, clients: int, target: float) -> tuple[float, float]:
    """Rate and clip at this ε; 0 is no noise, and no clip."""
    return CHOSEN[method][target if clients == CLIENTS[0] else ALIKE[target]]


def called(method: str, clients: int) -> int:
    """How many clients a round has. FedFV sends mixtures of people who are not called: there it is half of all."""
    return min(COHORTS[clients], clients // 2) if method == "fedfv" else COHORTS[clients]


def epsilon(method: str, clients: int, noise: float, rounds: int, most: int) -> float | None:
    """After so many rounds, with nobody in more sums than ``most``; None where templates are revealed."""
    if method in (*REVEAL, STILL) or not noise:
        return None
    chorus = method == "chorus"
    multiplier = account.combined(noise, CHORD * noise) if chorus else noise
    book = account.Account(multiplier, 0.1 / clients, COHORTS[clients], clients, sample_is_secret=not chorus)
    book.rounds, book.sums_of = rounds, Counter({0: most})
    return book.readers()


def noise_of(target: float, method: str, clients: int) -> float:
    """The multiplier at which the rounds come to this ε; of a method that reveals, fedavg's noise on the mean."""
    if method in REVEAL:
        return float(f"{noise_of(target, METHODS[0], clients) * called(method, clients) / COHORTS[clients]:.3g}")
    share = ROUNDS * COHORTS[clients] / clients
    most = round(share + 3 * sqrt(share * (1 - COHORTS[clients] / clients)))  # of thousands, some are called as often
    low, high = 0.01, 1000.0
    while high / low > 1.002:
        middle = sqrt(low * high)
        found = epsilon(method, clients, middle, ROUNDS, most)
        low, high = (low, middle) if found is not None and found <= target else (middle, high)
    return float(f"{high:.3g}")
