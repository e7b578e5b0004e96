"""Which of several ways to the same numbers a GPU is through with first: found out once for each kind of work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

TRIALS = 3

Way = Callable[[], Tensor]


class Quickest:
    """Remembers what it found. A CPU takes the first way, so that its results are the same everywhere."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._names: dict[Hashable, str] = {}

    def __call__(self, work: Hashable, ways: Mapping[str, Way]) -> Tensor:
        """The work's result, by the quickest way."""
        if self._on_gpu and work not in self._names and not torch.cuda.is_current_stream_capturing():
            self._names[work] = min(ways, key=lambda name: _milliseconds_if_possible(ways[name]))
        return ways[self._names.get(work, next(iter(ways)))]()


def milliseconds(way: Callable[[], object]) -> float:
    """Of one call, when libraries have chosen their kernels."""
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    way()
    begun.record()
    for _ in range(TRIALS):
        way()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / TRIALS


def _milliseconds_if_possible(way: Way) -> float:
    try:
        return milliseconds(way)
    except RuntimeError:  # no kernel or no memory for it: for ever
        return float("inf")
