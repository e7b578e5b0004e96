"""A secret in pieces (Shamir 1979): any ``threshold`` of them restore it, fewer tell nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

PRIME = 2**256 + 297  # the first prime above 2^256: every 32-byte secret is an element of the field
SHARE_BYTES = 33


def split(secret: bytes, holders: Iterable[int], threshold: int, entropy: Callable[[int], bytes]) -> dict[int, bytes]:
    """A share for each holder: the value at holder + 1 of a random polynomial whose value at 0 is the secret."""
    holders = list(holders)
    if len(secret) != 32:
        raise ValueError(f"a secret has 32 bytes, not {len(secret)}")
    if not 1 <= threshold <= len(holders):
        raise ValueError(f"{len(holders)} holders cannot have a threshold of {threshold}")
    # 16 bytes more than the prime has: the remainder is uniform up to 2^-127.
    drawn = [int.from_bytes(entropy(SHARE_BYTES + 15), "big") % PRIME for _ in range(threshold - 1)]
    rising = [*drawn, int.from_bytes(secret, "big")]  # the highest power first
    shares = {}
    for holder in holders:
        value = 0
        for coefficient in rising:
            value = (value * (holder + 1) + coefficient) % PRIME
        shares[holder] = value.to_bytes(SHARE_BYTES, "big")
    return shares


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret from ``threshold`` of the shares. Wrong shares give a wrong secret: check it against a commitment."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares of {threshold} that are needed")
    holders = tuple(sorted(shares)[:threshold])
    values = (int.from_bytes(shares[holder], "big") for holder in holders)
    secret = sum(value * factor for value, factor in zip(values, _at_zero(holders), strict=True)) % PRIME
    return (secret % 2**256).to_bytes(32, "big")


@lru_cache(maxsize=1024)
def _at_zero(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's factors for the value at 0."""
    factors = []
    for holder in holders:
        above, below = 1, 1
        for other in holders:
            if other != holder:
                above = above * (other + 1) % PRIME
                below = below * (other - holder) % PRIME
        factors.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(factors)
