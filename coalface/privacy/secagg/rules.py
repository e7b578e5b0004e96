"""Who must be there before anything is unmasked, and who masks with whom."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, log2

PRIVACY_BITS = 40  # the graph fails to hide somebody with probability under 2^-40
RECOVERY_BITS = (
    20  # too few neighbours are left to unmask, though enough clients are: under 2^-20, and the round is void
)


class Refusal(RuntimeError):
    """What a client answers to a message that would expose it or others; the text is the reason."""


class TooFew(RuntimeError):
    """Not enough clients are left: the round is void, and its sum stays masked for ever."""


@dataclass(frozen=True)
class Rules:
    """What every client insists on; the server cannot change them."""

    min_cohort: int = 16  # a client is never in a sum of fewer
    threshold: float = 2 / 3  # share of those who advertised keys that must be left; fewer cannot unmask
    corrupt: float = 0.1  # share of clients that may work with the server, for which the sparse graph is laid out
    dropout: float = 0.1  # share that may drop out, for which the sparse graph is laid out
    min_group: int = 3  # a client is never in a group's sum of fewer
    complete: bool = False  # everybody masks with everybody: no arc of a sparse graph can be unmasked for itself

    def __post_init__(self) -> None:
        if self.min_cohort < 3:
            raise ValueError(f"a sum of {self.min_cohort} tells its members about each other: min_cohort is 3 or more")
        if not 0.5 < self.threshold <= 1:
            # Each client signs one list of survivors: two lists cannot both be signed by more than half.
            raise ValueError(f"threshold must be above 0.5 and up to 1, not {self.threshold}")
        if not (0 <= self.corrupt < 0.4 and 0 <= self.dropout < 0.4):
            raise ValueError(f"corrupt and dropout must be shares under 0.4, not {self.corrupt} and {self.dropout}")

    def needed(self, clients: int) -> int:
        """How many of so many clients must be left."""
        return max(self.min_cohort, ceil(self.threshold * clients - 1e-9))

    def layout(self, clients: Iterable[int], digest: bytes) -> Layout:
        """Who masks with whom: a circle whose order is a hash of everybody's keys, so that nobody chooses it."""
        order = _circle(tuple(sorted(clients)), digest)
        all_others = len(order) - 1
        each = all_others if self.complete else degree(len(order), self.corrupt, self.dropout, self.min_cohort)
        whole = each >= all_others
        return Layout(order, each, self.needed(len(order)) if whole else _majority(each))


@dataclass(frozen=True)
class Layout:
    """Each client's neighbours. A client's secrets are shared among them and itself: its holders."""

    circle: Mapping[int, int]  # client -> its place; in the order of the places
    degree: int  # neighbours of a client
    holders_needed: int  # of a client's holders, so many can restore a secret of it

    def neighbours(self, client: int) -> frozenset[int]:
        """Those with whom a client shares masks: everybody, or the nearest on both sides."""
        order = list(self.circle)
        if self.degree >= len(order) - 1:
            return frozenset(order) - {client}
        place, reach = self.circle[client], self.degree // 2
        return frozenset(order[(place + step) % len(order)] for step in range(-reach, reach + 1)) - {client}

    def holders(self, client: int) -> frozenset[int]:
        """Who holds a share of this client's secrets."""
        return self.neighbours(client) | {client}


@lru_cache(maxsize=8)
def _circle(clients: tuple[int, ...], digest: bytes) -> Mapping[int, int]:
    order = sorted(clients, key=lambda client: hashlib.sha256(digest + client.to_bytes(8, "big")).digest())
    return {client: place for place, client in enumerate(order)}


@lru_cache(maxsize=256)
def degree(clients: int, corrupt: float, dropout: float, min_cohort: int) -> int:
    """The fewest neighbours (an even number) that hide everybody and still allow recovery; clients − 1 means all.

    With k neighbours, of whom a majority of holders restores a secret:
    corrupt neighbours alone restore nobody's secret; the circle does not fall apart where k/2 in a row are corrupt or
    gone; enough neighbours stay to restore. And a majority is at least the minimum cohort, as a server that lies about
    who dropped out can cut a circle into arcs, and no arc may be a smaller crowd than that.
    """
    bad, gone = ceil(corrupt * clients), ceil(dropout * clients)
    for each in range(2, clients - 1, 2):
        needed = _majority(each)
        if (
            needed >= min_cohort
            and clients * _tail(clients - 1, bad, each, needed) <= 2**-PRIVACY_BITS
            and clients * _run(clients, bad + gone, each // 2) <= 2**-PRIVACY_BITS
            and clients * _tail(clients - 1, gone, each, each + 2 - needed) <= 2**-RECOVERY_BITS
        ):
            return each
    return clients - 1


def _majority(neighbours: int) -> int:
    return (neighbours + 1) // 2 + 1


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """The probability that a draw without replacement holds at least so many marked ones (hypergeometric)."""
    ways = sum(comb(marked, hit) * comb(population - marked, drawn - hit) for hit in range(least, drawn + 1))
    return ways / comb(population, drawn) if ways else 0.0


def _run(clients: int, marked: int, length: int) -> float:
    """The probability that so many given places in a random order are all marked."""
    if marked < length:
        return 0.0
    return 2.0 ** sum(log2((marked - i) / (clients - i)) for i in range(length))
