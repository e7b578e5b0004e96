"""Trouble, injected into a simulation: clients that drop out, answer late, or send damaged bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from coalface import seeding, wire
from coalface.engines.engine import Engine, Reply, Task


@dataclass(frozen=True)
class Faults:
    """Shares of the cohort, drawn anew for each client and round."""

    dropout: float = 0.0  # never answers
    late: float = 0.0  # answers after the deadline
    damaged: float = 0.0  # sends bytes with errors in them

    def __post_init__(self) -> None:
        shares = (self.dropout, self.late, self.damaged)
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(f"faults must be shares that sum to at most 1, not {shares}")

    def any(self) -> bool:
        """Whether there is anything to inject."""
        return self.dropout + self.late + self.damaged > 0


class Faulty:
    """An engine whose clients fail as told; the same clients in the same rounds for the same seed."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self.name = f"{engine.name} with faults"
        self.engine = engine
        self.faults = faults

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        for client in cohort:
            luck = seeding.generator(task.seed, "faults", task.round, task.attempt, client)
            draw = float(torch.rand((), generator=luck))
            if draw < self.faults.dropout:
                yield Reply(client, trouble="dropped out", bytes_down=wire.encoded_size(task.broadcast(client)))
                continue
            for reply in self.engine.gather(task, [client]):
                if draw < self.faults.dropout + self.faults.late:
                    yield replace(reply, upload=None, trouble="late", bytes_up=0)
                elif draw < self.faults.dropout + self.faults.late + self.faults.damaged and not reply.trouble:
                    yield replace(reply, upload=_damage(wire.encode(reply.upload), luck))
                else:
                    yield reply


def _damage(data: bytes, luck: torch.Generator) -> bytes:
    """The message cut short, or with its header overwritten."""
    at = int(torch.randint(1, len(data), (), generator=luck))
    return data[:at] if at % 2 else b"\xff" * 8 + data[8:]
