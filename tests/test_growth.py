"""Registered clients who are not called are free: a round has as many lines and bytes with 20 as with 500.

Counted, not timed: lines of coalface by Python's tracing hook, and bytes of every tensor that any operation returns.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coalface.federation import Federation, Rounds
from coalface.models.net import Net
from tests.conftest import SmallRun, noise_population, small_run

FEW, MANY, COHORT = 20, 500, 8
ROW = 8 * 4  # bytes of a class embedding


@dataclass
class Cost:
    lines: int = 0
    bytes: int = 0


class Counting(TorchDispatchMode):
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.cost = Cost()

    def __enter__(self) -> Counting:
        super().__enter__()
        sys.settrace(self._entered)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.settrace(None)
        super().__exit__(*error)

    def _entered(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if "coalface" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.cost.lines += 1
        return self._line

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.cost.bytes += out.nbytes if isinstance(out, torch.Tensor) and not func.is_view else 0
        return out


def third_round(method: str, clients: int, folder: Path) -> Cost:
    """The cost of a round and its checkpoint, after everybody has taken part once."""
    run = small_run(method, Net("tiny", embedding=8, size=16), noise_population(clients, images=2), folder)
    everybody = run.run(Rounds(rounds=1))
    federation = _federation(run)
    _, server = federation.round(everybody, 2)
    run.stage.checkpoint(2, server)
    with Counting() as counting:
        _, server = federation.round(server, 3)
        run.stage.checkpoint(3, server)
    return counting.cost


def _federation(run: SmallRun) -> Federation:
    rules = Rounds(rounds=3, cohort=COHORT)
    return Federation(
        run.method, run.net, len(run.population), run.engine, rules, run.training, 0, run.stage, lambda server: {}
    )


@pytest.mark.parametrize("method", ["fedavg/private-head", "fedavg/positive-only", "feduv", "local_only"])
def test_a_round_does_not_know_how_many_are_registered(method: str, tmp_path: Path) -> None:
    few, many = (third_round(method, clients, tmp_path / str(clients)) for clients in (FEW, MANY))
    assert few.lines * 0.99 < many.lines < few.lines * 1.01
    assert few.bytes * 0.99 < many.bytes < few.bytes * 1.01


def test_class_embeddings_of_all_are_copied_once_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coalface.algorithms.revealed_embedding.MONITORED", 16)
    few, many = (third_round("fedfv", clients, tmp_path / str(clients)) for clients in (FEW, MANY))
    assert many.lines < few.lines * 1.01
    flags = 4 * 8  # bytes for each client: who is known, as flags and as numbers
    assert many.bytes - few.bytes < (MANY - FEW) * (ROW + flags)
