"""Which of several ways to the same numbers a GPU is through with first: found out once for each kind of work."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

TRIALS = 3

Way = Callable[[], Tensor]
Choose = Callable[[Hashable, Mapping[str, Way]], Tensor]  # the result of some work, by one of its ways


def first_way(work: Hashable, ways: Mapping[str, Way]) -> Tensor:
    """Without looking for a quicker one."""
    return next(iter(ways.values()))()


class Quickest:
    """Remembers what it found. A CPU takes the first way, so that its results are the same everywhere."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._names: dict[Hashable, str] = {}

    def __call__(self, work: Hashable, ways: Mapping[str, Way]) -> Tensor:
        """The work's result, by the quickest way."""
        if self._on_gpu and work not in self._names and not torch.cuda.is_current_stream_capturing():
            self._names[work] = min(ways, key=lambda name: _milliseconds_if_possible(ways[name]))
        return ways[self._names[work]]() if work in self._names else first_way(work, ways)


def _milliseconds(way: Way) -> float:
    """Of one call, recorded: of the GPU's own time, and not of what Python takes to ask for it."""
    way()  # libraries choose their kernels
    graph = torch.cuda.CUDAGraph()
    # The outer one sees to it that this stream is the current one again, whatever happens.
    with (
        torch.cuda.stream(torch.cuda.current_stream()),
        torch.cuda.graph(graph, capture_error_mode="thread_local"),  # Python is in autograd's thread half of the time
    ):
        for _ in range(TRIALS):
            way()
    graph.replay()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    graph.replay()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / TRIALS


def _milliseconds_if_possible(way: Way) -> float:
    try:
        return _milliseconds(way)
    except RuntimeError as reason:  # no kernel or no memory for it: for ever
        warnings.warn(f"a way to a convolution is not possible here: {reason}", stacklevel=2)
        return float("inf")
