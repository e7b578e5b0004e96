"""Pieces of work that are each too small for a GPU: at the same time they share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Each = Callable[[Sequence[Callable[[], Any]]], list[Any]]  # does pieces of work, and has their results


def in_turn(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """One after the other."""
    return [work() for work in works]


class Streams:
    """Each on a stream of its own."""

    def __init__(self, works: int) -> None:
        self._streams = [torch.cuda.Stream() for _ in range(works)]

    def __call__(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """What comes afterwards waits for all of them."""
        main, results = torch.cuda.current_stream(), []
        begun = main.record_event()
        try:
            for stream, work in zip(self._streams, works, strict=True):
                stream.wait_event(begun)
                with torch.cuda.stream(stream):
                    results.append(work())
        finally:  # a recording with streams that never come back cannot even be ended
            for stream in self._streams:
                main.wait_stream(stream)
        return results
