"""What a client has spent of what its owner allows: over all federations, restarts and rounds that came to nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from coalface.config import ConfigError, from_json
from coalface.offer import Declined
from coalface.registry import Limits
from coalface.store import write_atomically


@dataclass(frozen=True)
class Spent:
    """In all federations together: a server can begin a new one whenever it likes."""

    rounds: int = 0
    minutes: float = 0.0
    megabytes: float = 0.0

    def exceeds(self, limits: Limits) -> bool:
        """Whether nothing more may be spent."""
        pairs = ((self.rounds, limits.rounds), (self.minutes, limits.minutes), (self.megabytes, limits.megabytes))
        return any(limit and spent > limit for spent, limit in pairs)


class Purse:
    """A client's limits, and the file ``spent.json`` in which it counts."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.file = folder / "spent.json"
        self.limits = limits
        self.spent()  # a damaged file is told before anybody calls

    def check(self) -> Spent:
        """What will have been spent once another round has begun; Declined if that is more than is allowed."""
        spent = self.spent()
        begun = replace(spent, rounds=spent.rounds + 1)
        if begun.exceeds(self.limits):
            raise Declined("limit")
        return begun

    @contextmanager
    def round(self) -> Iterator[Bill]:
        """A round, or a collection, which counts as one; Declined before it and after it where a limit is passed.

        It is spent however it ends: a server can spoil a round after the training. It is written down before it
        begins, because a process that is killed in it cannot do so later.
        """
        begun = self.check()
        self._write(begun)
        bill, began = Bill(), time.perf_counter()
        try:
            yield bill
        finally:
            minutes = begun.minutes + (time.perf_counter() - began) / 60
            spent = replace(begun, minutes=minutes, megabytes=begun.megabytes + bill.sent / 1e6)
            self._write(spent)
        if spent.exceeds(self.limits):
            raise Declined("limit")

    def pay(self, sent: int) -> None:
        """For so many bytes of a message beside a round's upload; Declined, so that they stay here, over a limit."""
        before = self.spent()
        spent = replace(before, megabytes=before.megabytes + sent / 1e6)
        self._write(spent)
        if spent.exceeds(self.limits):
            raise Declined("limit")

    def spent(self) -> Spent:
        """So far."""
        if not self.file.exists():
            return Spent()
        try:
            spent: Spent = from_json(Spent, json.loads(self.file.read_text()))
            if min(vars(spent).values()) < 0:
                raise ValueError("less than nothing was spent")
        except ValueError as damage:
            remedy = "write what was spent into it, or remove it to begin at nothing"
            raise ConfigError(f"{self.file} is damaged ({damage}): {remedy}") from damage
        return spent

    def _write(self, spent: Spent) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, json.dumps(vars(spent)).encode())


@dataclass
class Bill:
    """What a round costs beside time."""

    sent: int = 0  # bytes
