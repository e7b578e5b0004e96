"""Real numbers as 32-bit integers, with a stated quantum. Out of range raises; nothing ever wraps unseen."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
HALF = 1 << 31
BLOCK = 1 << 15  # values at a time: they stay in the processor's cache


class OutOfRange(ValueError):
    """A value that would not fit; the text says by how much, and the remedy."""


@dataclass(frozen=True)
class FixedPoint:
    """Values up to ±``bound`` from up to ``clients`` clients, plus ``spare``, sum up without wrapping."""

    bound: float
    clients: int
    spare: float = 0.0  # room for noise on the sum

    @property
    def quantum(self) -> float:
        """The step between two values, a power of two: each client's rounding error is at most half of it."""
        return float(2.0 ** ceil(log2((self.bound * self.clients + self.spare) / (HALF - self.clients))))

    def encode(self, values: NDArray[Any], factor: float = 1.0, out: Words | None = None) -> Words:
        """The nearest multiples of the quantum to values times a factor, as residues modulo 2^32."""
        words = np.empty(len(values), np.uint32) if out is None else out
        for start in range(0, len(values), BLOCK):
            scaled = values[start : start + BLOCK] * np.float64(factor)
            size = float(np.abs(scaled).max())
            if not size <= self.bound:  # NaN is not either
                raise OutOfRange(
                    f"a value of {size:.4g} is outside ±{self.bound:.4g}: raise privacy.value_bound, or train less a "
                    "round"
                )
            scaled /= self.quantum
            words[start : start + BLOCK] = np.rint(scaled, out=scaled).astype(np.int32).view(np.uint32)
        return words

    def decode(self, total: Words) -> NDArray[np.float64]:
        """The sum that these residues stand for."""
        return total.view(np.int32).astype(np.float64) * self.quantum
