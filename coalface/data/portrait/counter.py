"""Random numbers as a function of a place: no state, so any part of a set can be drawn alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1
_SCALE = ((1024**2 - 1) / 6) ** -0.5  # two uniform numbers on 0 … 1023 sum to mean 1023 and this deviation, inverted


def keys(*place: int | Tensor) -> NDArray[np.uint64]:
    """One 64-bit key for each place; a place is a tuple of integers or int64 tensors [n], whose order counts."""
    key = np.zeros(1, dtype=np.uint64)
    for part in place:
        if isinstance(part, Tensor):
            number = part.cpu().numpy().astype(np.int64).view(np.uint64)
        else:
            number = np.array([part & _MASK], dtype=np.uint64)
        key = _mixed(key * np.uint64(_FACTORS[0]) + number + np.uint64(_GOLDEN))
    return key


def uniforms(key: NDArray[np.uint64], count: int) -> Tensor:
    """``count`` numbers in (0, 1) for each key, float64 [n, count], on the CPU."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = _mixed(key[:, None] + steps[None]) >> np.uint64(11)
    return torch.from_numpy((bits.astype(np.float64) + 0.5) * 2.0**-53)


def pixel_noise(key: Tensor, height: int, width: int) -> Tensor:
    """Noise of mean 0 and variance 1 for each pixel, float32 [n, 3, H, W], the same bits on CPU and GPU.

    ``key`` is int64 [n]. One hash serves a pixel: each colour takes the sum of two 10-bit numbers of it.
    """
    pixel = torch.arange(height * width, device=key.device, dtype=torch.int64).view(1, height, width)
    bits = key.view(-1, 1, 1) + pixel * _signed(_GOLDEN)
    for factor, shift in zip(_FACTORS, (30, 27), strict=True):
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * _signed(factor)
    bits = bits >> 3  # the low bits of a product are its worst
    pairs = [((bits >> (20 * c)) & 1023) + ((bits >> (20 * c + 10)) & 1023) for c in range(3)]
    noise: Tensor = torch.stack([pair.float() for pair in pairs], 1).sub_(1023.0).mul_(_SCALE)
    return noise


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of the SplitMix64 generator (Steele, Lea, Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FACTORS[0])
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_FACTORS[1])
    mixed: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return mixed


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
