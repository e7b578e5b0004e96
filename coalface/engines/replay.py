"""Small work on a GPU, recorded once and replayed: one launch instead of hundreds.

A step of a small network on a few hundred images takes the GPU less time than Python takes to ask for it. A CUDA graph
asks once. What is recorded is the very function that would have been called.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Groups = dict[str, dict[str, Tensor]]
Function = Callable[[Groups], Groups]
Shapes = tuple[tuple[str, str, torch.Size, torch.dtype], ...]

RECORDINGS = 8  # shapes that are kept; together they hold the memory of the largest call
WARM_UPS = 3  # calls before recording, in which libraries choose their kernels


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Groups
    outputs: Groups


class Replay:
    """Calls a function of groups of named tensors. It must do the same for every call of the same shapes."""

    def __init__(self) -> None:
        self._recordings: dict[Shapes, _Recording] = {}
        self._possible = True
        self._pool = torch.cuda.graph_pool_handle()  # one for all: they are replayed in turn, and results are copied

    def __call__(self, function: Function, inputs: Groups) -> Groups:
        """``function(inputs)``, replayed where it was recorded; new tensors either way."""
        shapes = tuple((group, name, leaf.shape, leaf.dtype) for group, name, leaf in _each(inputs))
        if shapes not in self._recordings and self._possible and len(self._recordings) < RECORDINGS:
            self._record(shapes, function, inputs)
        if shapes not in self._recordings:
            return function(inputs)
        recording = self._recordings[shapes]
        _copy(inputs, recording.inputs)
        recording.graph.replay()
        return _copied(recording.outputs)

    def _record(self, shapes: Shapes, function: Function, inputs: Groups) -> None:
        held = _copied(inputs)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                function(held)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = function(held)
        except torch.OutOfMemoryError:  # no fault of the objective's
            raise
        except RuntimeError as reason:  # an objective that looks at the device's numbers from Python
            torch.cuda.synchronize()
            self._possible = False
            warnings.warn(f"this method cannot be replayed on the GPU and runs slower: {reason}", stacklevel=2)
            return
        self._recordings[shapes] = _Recording(graph, held, outputs)


def _each(groups: Groups) -> Iterator[tuple[str, str, Tensor]]:
    return ((group, name, leaf) for group, leaves in groups.items() for name, leaf in leaves.items())


def _copy(given: Groups, held: Groups) -> None:
    """One launch for all tensors of a dtype: of several dtypes at once it would be one for each tensor."""
    by_dtype: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for (*_, source), (*_, place) in zip(_each(given), _each(held), strict=True):
        sources, places = by_dtype[source.dtype]
        sources.append(source)
        places.append(place)
    for sources, places in by_dtype.values():
        torch._foreach_copy_(places, sources)


def _copied(groups: Groups) -> Groups:
    """All tensors in one launch: times one, which is a copy, number by number."""
    copies = iter(torch._foreach_mul([leaf.detach() for *_, leaf in _each(groups)], 1))
    return {group: {name: next(copies) for name in leaves} for group, leaves in groups.items()}
