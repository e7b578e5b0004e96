"""The sequential engine forgets each client: tensors alive after a cohort's last client are those after its second."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from coalface.engines.engine import Engine, Reply, Task
from coalface.federation import Rounds
from coalface.models.net import Net
from tests.conftest import noise_population, small_run

CLIENTS = 40


class Weighed:
    """An engine that weighs all living tensors when the round comes back for a client's reply."""

    name = "weighed"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.alive: dict[int, int] = {}

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        for reply in self.engine.gather(task, cohort):
            yield reply
            if reply.client in (1, CLIENTS - 1):
                self.alive[reply.client] = bytes_alive()


def bytes_alive() -> int:
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor:
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


@pytest.mark.parametrize("method", ["fedavg/shared-head", "fedavg/private-head", "local_only", "fedface"])
def test_nothing_of_a_client_stays_but_what_it_keeps_and_reveals(method: str, tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left in cycles must not go while this one weighs
    net = Net("tiny", embedding=64, size=16)
    run = small_run(method, net, noise_population(CLIENTS), tmp_path)
    run.engine = Weighed(run.engine)  # type: ignore[assignment]
    run.run(Rounds(rounds=1))
    first, last = run.engine.alive[1], run.engine.alive[CLIENTS - 1]  # type: ignore[attr-defined]
    between = CLIENTS - 2  # clients
    kept = run.stage.private._size / CLIENTS
    revealed = 64 * 4 if method == "fedface" else 0
    model = sum(leaf.nbytes for leaf in net.fresh(0).parameters.values())
    assert last - first == pytest.approx(between * (kept + revealed), abs=0.5 * model)
