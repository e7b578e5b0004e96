"""A launch under way: what it came to is read when the device has done its part, and not before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from coalface import tree
from coalface.engines.engine import Reply
from coalface.local import Losses
from coalface.transfer import Fetched


class Clock:
    """How long a device is at work: a CPU until Python goes on, a GPU in its own time whatever Python does."""

    def __init__(self, kind: str) -> None:
        self._on_gpu = kind == "cuda"
        self._begun = self._ended = self._now()

    def stop(self) -> None:
        """The work is asked for."""
        self._ended = self._now()

    def seconds(self) -> float:
        """When a GPU has done it, too."""
        if self._on_gpu:
            return float(self._begun.elapsed_time(self._ended)) / 1000
        return float(self._ended - self._begun)

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class Flight:
    """A launch that the device may still be at work on, and the answers of its members but for the numbers in them."""

    def __init__(self, replies: list[Reply], losses: Losses, clock: Clock) -> None:
        """The clock was started with the launch, and is stopped here."""
        self._parts, self._clock = list(losses), clock
        leaves = [  # a field that all have in common is one object, and is looked at once
            [leaf.detach() for leaf in tree.leaves(value).values() if leaf.is_floating_point()]
            for value in _each_value(replies)
        ]
        self._widths = [len(several) for several in leaves]
        flat = [leaf for several in leaves for leaf in several]
        norms = [torch.stack(torch._foreach_norm(flat, 2, dtype=torch.float64))] if flat else []
        numbers = torch.cat([*norms, *(value.double() for value in losses.values())])
        clock.stop()
        self._fetched = Fetched()
        self._numbers = self._fetched.fetch(numbers)
        self._replies = [
            replace(r, private=tree.transform(self._fetched.fetch, r.private)) if r.private else r for r in replies
        ]

    def land(self) -> Iterator[Reply]:
        """The answers, when the device has done its part."""
        self._fetched.wait()
        numbers = iter(self._numbers.tolist())
        squares = {
            id(value): sum(next(numbers) ** 2 for _ in range(width))
            for value, width in zip(_each_value(self._replies), self._widths, strict=True)
        }
        losses = {part: [next(numbers) for _ in self._replies] for part in self._parts}
        seconds = self._clock.seconds() / len(self._replies)
        for position, reply in enumerate(self._replies):
            mine = {name: squares[id(getattr(reply.upload, name))] for name in tree.field_names(reply.upload)}
            parts = {part: values[position] for part, values in losses.items()}
            yield replace(reply, squares=mine, seconds=seconds, losses=parts)


def _each_value(replies: list[Reply]) -> list[Any]:
    """The fields of the uploads, each object once."""
    names = tree.field_names(replies[0].upload)
    values = (getattr(reply.upload, name) for reply in replies for name in names)
    return list({id(value): value for value in values}.values())
