"""What the round asks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from coalface import wire
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net


@dataclass(frozen=True)
class Task:
    """One round's work, the same for every client but for what is broadcast to it."""

    method: Method
    net: Net
    training: Training
    seed: int
    round: int
    attempt: int  # 0, or how often this round was void before
    broadcast: Callable[[int], wire.Broadcast]


@dataclass(frozen=True)
class Reply:
    """A client's answer. Either an upload (checked by the round, not here) or the trouble that prevented it."""

    client: int
    upload: Any = None  # wire.Upload, or the bytes of one
    private: wire.Private | None = None  # in simulation only: a real client keeps it at home
    trouble: str = ""
    images: int = 0
    seconds: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=dict)  # squared norms of the upload's fields, if it is known here


@contextmanager
def at_client(task: Task, client: int, images: int) -> Iterator[None]:
    """Whatever goes wrong says in which round and at which client it did."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in round {task.round} of client {client}, {images} images")
        raise


class Engine(Protocol):
    """Runs clients."""

    name: str

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        """Replies, one per client, in the order of the cohort: the sum is then the same on every machine."""
