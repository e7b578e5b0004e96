"""Clients that train at the same time on a CPU: the same bits on any number of cores, and few more at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import tree
from coalface.config import method_named
from coalface.data.population import Population
from coalface.engines import on_cores
from coalface.engines.stacked import Stacked
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import Net
from tests.conftest import SmallRun

STEPS = Training(rate=0.05, batch=2, epochs=2, momentum=0.9)


def finished(net: Net, people: Population, folder: Path, cores: int) -> tuple[Any, SmallRun]:
    torch.set_num_threads(cores)
    run = SmallRun(method_named("fedface")(), net, people, folder, STEPS)
    run.engine = Stacked(run.population, run.stage.private)  # type: ignore[assignment]
    return run.run(Rounds(rounds=2)), run


def meeting(monkeypatch: pytest.MonkeyPatch, meet: Callable[[], None]) -> None:
    """``meet`` is called in each step of each client."""
    method = method_named("fedface")
    objective = method.objective

    def met(*given: Any) -> Any:
        meet()
        return objective(*given)

    monkeypatch.setattr(method, "objective", met)


def test_bits_do_not_depend_on_the_number_of_cores(net: Net, population: Population, tmp_path: Path) -> None:
    ends = [finished(net, population, tmp_path / str(cores), cores)[0] for cores in (1, 2, 5)]
    assert len({tree.sha256(end) for end in ends}) == 1


def test_clients_train_at_the_same_time(
    net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step waits for that of another client: one after another they would wait for ever."""
    two = threading.Barrier(2)
    meeting(monkeypatch, lambda: two.wait(timeout=30) and None)
    finished(net, population, tmp_path, 2)
    assert torch.get_num_threads() == 2


def test_hardly_more_clients_are_in_memory_than_there_are_cores(
    net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight clients on two cores: one begun for each, and two that wait for their turn to be added up."""
    monkeypatch.setattr(on_cores, "AHEAD", 1)
    begun: list[int] = []
    added: list[int] = []
    most = 0
    lock, plus, real = threading.Lock(), on_cores._plus, on_cores._train_in_thread

    def noted(cores: int, task: Any, member: Any) -> Any:
        nonlocal most
        with lock:
            begun.append(member.client)
            most = max(most, len(begun) - len(added))
        return real(cores, task, member)

    monkeypatch.setattr(on_cores, "_train_in_thread", noted)
    monkeypatch.setattr(on_cores, "_plus", lambda *given: [plus(*given), added.append(1)][0])
    finished(net, population, tmp_path, 2)
    assert len(begun) == len(added) == 16 and most <= 2 + 2


@pytest.mark.parametrize(("pixels", "at_once"), [(2 * 2 * 256, 2), (3 * 2 * 256 - 1, 2), (100, 1), (10**6, 5)])
def test_clients_with_large_steps_go_fewer_at_a_time(
    pixels: int, at_once: int, net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of two images of 16 × 16, on five cores."""
    monkeypatch.setattr(on_cores, "PIXELS_AT_ONCE", pixels)
    _, run = finished(net, population, tmp_path, 5)
    engine: Any = run.engine
    assert list(engine.on_cores._pools) == ([at_once] if at_once > 1 else [])


def test_an_error_says_at_which_client_and_leaves_the_cores_as_they_were(
    net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom() -> None:
        raise RuntimeError("boom")

    meeting(monkeypatch, boom)
    with pytest.raises(RuntimeError, match="boom") as error:
        finished(net, population, tmp_path, 2)
    assert error.value.__notes__ == ["in round 1 of client 0, 4 images"]  # the first that is asked for
    assert torch.get_num_threads() == 2
