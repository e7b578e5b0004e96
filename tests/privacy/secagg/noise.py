"""How far words are from noise, and how alike to numbers; both in standard deviations of what luck would give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalface.privacy.secagg.fixed_point import Words

Floats = NDArray[np.float64]


def uniformity(words: Words) -> float:
    """The largest distance from uniform, of any byte's chi-squared (255 degrees) and any bit's share, in deviations."""
    worst = 0.0
    for place in range(4):
        counts = np.bincount((words >> (8 * place)) & 255, minlength=256)
        chi = ((counts - len(words) / 256) ** 2 / (len(words) / 256)).sum()
        worst = max(worst, abs(chi - 255) / (2 * 255) ** 0.5)
    for bit in range(32):
        worst = max(worst, abs(((words >> bit) & 1).mean() - 0.5) * 2 * len(words) ** 0.5)
    return worst


def alike(words: Words, values: Floats) -> float:
    """The largest correlation with the update, of the words as numbers and of low and high bits; in deviations."""
    views = [words.view(np.int32), words.astype(np.float64), words & 0xFFFF, words >> 16, words >> 31]
    found = [abs(np.corrcoef(view.astype(np.float64), values)[0, 1]) for view in views]
    return float(max(found) * len(values) ** 0.5)
