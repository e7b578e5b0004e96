"""Engines are proven equal: ``sequential`` is the definition, and ``stacked`` gives the same within float tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import tree
from coalface.algorithms import METHODS
from coalface.config import method_named
from coalface.data.population import Population
from coalface.engines import stacked
from coalface.engines.stacked import Stacked, why_not
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import Net
from tests.conftest import SmallRun, noise_population

TOLERANCE = 2e-6  # float32: sums in another order
ONE_STEP = Training(rate=0.05, weight_decay=1e-3)


def run_with(engine: str, name: str, net: Net, population: Population, folder: Path) -> tuple[Any, SmallRun]:
    run = SmallRun(method_named(name)(), net, population, folder / engine, ONE_STEP)
    if engine == "stacked":
        run.engine = Stacked(run.population, run.stage.private)  # type: ignore[assignment]
    return run.run(Rounds(rounds=3, cohort=4)), run


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("net_name", ["tiny", "tiny_bn"])
@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.common is not None])
def test_one_step_stacked_equals_sequential(
    name: str, net_name: str, unequal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stacked.IMAGES_PER_LAUNCH, "cpu", 9)  # several launches a round
    population = noise_population()
    if unequal:
        population = replace(population, images_each=(1, 4, 2, 3, 4, 2, 1, 3))
    net = Net(net_name, embedding=8, size=16)
    one, first = run_with("sequential", name, net, population, tmp_path)
    two, second = run_with("stacked", name, net, population, tmp_path)
    for path, leaf in tree.leaves(one).items():
        torch.testing.assert_close(
            tree.leaves(two)[path], leaf, rtol=0, atol=TOLERANCE, msg=lambda m, p=path: f"{p}: {m}"
        )
    for client in first.stage.private.clients():
        mine, theirs = first.stage.private.load(client, 99), second.stage.private.load(client, 99)
        for path, leaf in tree.leaves(mine).items():
            torch.testing.assert_close(tree.leaves(theirs)[path], leaf, rtol=0, atol=TOLERANCE)
    drop = ("seconds",)
    ledgers = [[{k: v for k, v in row.items() if k not in drop} for row in r.stage.ledger()] for r in (first, second)]
    assert ledgers[0] == ledgers[1]


@pytest.mark.parametrize(
    ("name", "training", "reason"),
    [
        ("local_only", Training(), "models of their own"),
        ("fedavg/private-head", Training(batch=2), "more than one step"),
        ("fedavg/private-head", Training(epochs=2), "more than one step"),
        ("fedavg/private-head", Training(optimiser="adam"), "adam is not linear"),
    ],
)
def test_what_cannot_be_stacked_is_refused_in_words(name: str, training: Training, reason: str) -> None:
    refusal = why_not(method_named(name)(), training, max_images=4, max_norm=0.0)
    assert refusal is not None and reason in refusal


def test_what_can_be_stacked_is_accepted() -> None:
    method = method_named("fedavg/private-head")()
    assert why_not(method, Training(), 4, 0.0) is None
    assert why_not(method, Training(batch=4, momentum=0.9), 4, 0.0) is None
    assert why_not(method, Training(batch=4, images_per_round=4), 100, 0.0) is None
    assert why_not(method, Training(), 4, max_norm=1.0) is not None
