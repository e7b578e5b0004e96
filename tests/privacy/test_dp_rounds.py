"""benchmarks/dp_rounds.py computes what a federation with differential privacy does, for all clients at once."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedavg import PositiveOnly
from coalface.algorithms.fedfv import FedFV
from coalface.federation import Rounds
from coalface.gathering import Plain
from coalface.models.net import Net
from coalface.privacy.dp import PrivateSums
from coalface.privacy.settings import DP
from tests.conftest import noise_population, small_run

CLIENTS, RATE = 8, 0.5


@pytest.fixture(scope="module")
def many() -> Any:
    place = Path(__file__).resolve().parents[2] / "benchmarks" / "dp_rounds.py"
    spec = importlib.util.spec_from_file_location("dp_rounds", place)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["dp_rounds"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def faces(population: Any) -> torch.Tensor:
    return torch.stack([population[client].images for client in range(len(population))])


def at_once(many: Any, run: Any, net: Net, clip: float, cohorts: list[list[int]]) -> Any:
    luck = torch.Generator().manual_seed(0)
    state = many.begun(run.method, net, net.fresh(0), CLIENTS)
    step = many.Step(RATE, clip, flip=False, together=3)  # of eight: 3 + 3 + 2
    for called in cohorts:
        images = faces(run.population)
        state, norms = many.played(run.method, net, state, images, torch.tensor(called), step, luck)
    return state, norms


@pytest.mark.parametrize("cohort", [0, 4])
@pytest.mark.parametrize("clip", [0.0, 0.02])
@pytest.mark.parametrize("name", ["fedavg/positive-only", "fedface", "chorus"])
def test_four_rounds_are_those_of_a_federation(
    name: str, clip: float, cohort: int, many: Any, net: Net, tmp_path: Path
) -> None:
    run = small_run(name, net, noise_population(CLIENTS), tmp_path, rate=RATE, batch=0, momentum=0.0, flip=False)
    if hasattr(run.method, "target"):
        run.method = replace(run.method, target=1.0)  # type: ignore[type-var]  # or the hinge is dead from the start
    rules = Rounds(rounds=4, cohort=cohort)
    if clip:
        reveals, grouped = name == "fedface", 1e-4 if name == "chorus" else 0.0
        settings = DP(noise=1e-4, clip=clip, delta=1e-3, summed_only=reveals, group_noise=grouped)
        run.sums = PrivateSums(settings, rules, Plain(rules), run.method, cohort or CLIENTS, CLIENTS)
    server: Any = run.run(rules)
    called: dict[int, list[int]] = {}
    for row in run.stage.ledger():
        called.setdefault(row["round"], []).append(row["client"])
    state, norms = at_once(many, run, net, clip, [*called.values()])
    assert not clip or (norms > clip).any()  # something was clipped
    for place, leaf in server.backbone.parameters.items():
        start = net.fresh(0).parameters[place]
        assert float((state.backbone.parameters[place] - leaf).norm()) < 1e-4 + 1e-3 * float((leaf - start).norm())


def test_cohorts_are_drawn_without_replacement_and_choirs_are_whole(many: Any) -> None:
    luck = torch.Generator().manual_seed(0)
    some = many.drawn(PositiveOnly(), 40, 12, luck)
    assert len(some.unique()) == 12 and int(some.max()) < 40
    singing = many.drawn(Chorus(choir=4), 40, 12, luck).view(3, 4)
    assert (singing % 4 == torch.arange(4)).all() and (singing // 4 == singing[:, :1] // 4).all()


def test_fedfv_is_held_against_those_who_are_not_called(many: Any, net: Net) -> None:
    method = FedFV(equivalents=50, fused=2)
    state = many.begun(method, net, net.fresh(0), CLIENTS)
    called, luck = torch.tensor([0, 1, 2]), torch.Generator().manual_seed(0)
    assert many._equivalents(method, state, called, luck) is None  # nobody is known yet
    state.embeddings.copy_(torch.eye(CLIENTS))  # so that an equivalent shows who is in it
    state.known[:7] = True
    sent = many._equivalents(method, state, called, luck)
    assert sent.shape == (50, 8) and ((sent > 0).sum(dim=1) == 2).all()
    assert (sent > 0).any(dim=0).tolist() == [False] * 3 + [True] * 4 + [False]


def test_noise_is_z_clips_on_the_sum(many: Any, net: Net) -> None:
    images = faces(noise_population(CLIENTS))
    dead = PositiveOnly(target=-1.0)  # its hinge: there is nothing but noise
    state = many.begun(dead, net, net.fresh(0), CLIENTS)
    step = many.Step(RATE, clip=0.2, noise=1.5, flip=False)
    luck = torch.Generator().manual_seed(0)
    after, norms = many.played(dead, net, state, images, torch.arange(CLIENTS), step, luck)
    assert not norms.any()
    moved = [(leaf - state.backbone.parameters[name]).flatten() for name, leaf in after.backbone.parameters.items()]
    assert float(torch.cat(moved).std()) == pytest.approx(1.5 * 0.2 / CLIENTS, rel=0.1)  # 632 numbers
