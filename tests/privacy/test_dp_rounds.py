"""benchmarks/dp_rounds.py computes what a federation with differential privacy does, for all clients at once."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

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


def at_once(many: Any, method: Any, net: Net, images: torch.Tensor, clip: float, rounds: int) -> Any:
    luck = torch.Generator().manual_seed(0)
    state = many.begun(method, net, net.fresh(0), images)
    step = many.Step(RATE, clip, flip=False, together=3)  # 3 + 3 + 2
    for round_ in range(rounds):
        state, norms = many.played(method, net, state, images, step, round_ == 0, luck)
    return state, norms


@pytest.mark.parametrize("clip", [0.0, 0.02])
@pytest.mark.parametrize("name", ["fedavg/positive-only", "fedface", "chorus"])
def test_three_rounds_are_those_of_a_federation(name: str, clip: float, many: Any, net: Net, tmp_path: Path) -> None:
    run = small_run(name, net, noise_population(CLIENTS), tmp_path, rate=RATE, batch=0, momentum=0.0, flip=False)
    if hasattr(run.method, "target"):
        run.method = replace(run.method, target=1.0)  # type: ignore[type-var]  # or the hinge is dead from the start
    rules = Rounds(rounds=3)
    if clip:
        reveals, grouped = name == "fedface", 1e-4 if name == "chorus" else 0.0
        settings = DP(noise=1e-4, clip=clip, delta=1e-3, summed_only=reveals, group_noise=grouped)
        run.sums = PrivateSums(settings, rules, Plain(rules), run.method, CLIENTS, CLIENTS)
    server: Any = run.run(rules)
    state, norms = at_once(many, run.method, net, faces(run.population), clip, rounds=3)
    assert not clip or (norms > clip).any()  # something was clipped
    for place, leaf in server.backbone.parameters.items():
        start = net.fresh(0).parameters[place]
        assert float((state.backbone.parameters[place] - leaf).norm()) < 1e-4 + 1e-3 * float((leaf - start).norm())


def test_fedfv_is_held_against_others_and_never_against_itself(many: Any, net: Net) -> None:
    from coalface.algorithms.fedfv import FedFV

    images = faces(noise_population(CLIENTS))
    method = FedFV(equivalents=50, fused=2)
    state = many.begun(method, net, net.fresh(0), images)
    state.embeddings.copy_(torch.eye(CLIENTS))  # so that an equivalent shows who is in it
    sent = many._read(method, state, torch.arange(CLIENTS), False, torch.Generator().manual_seed(0))["equivalents"]
    assert sent.shape == (CLIENTS, 50, 8) and ((sent > 0).sum(dim=2) == 2).all()
    assert not sent[torch.arange(CLIENTS), :, torch.arange(CLIENTS)].any()
    assert (sent > 0).any(dim=1).sum() == CLIENTS * (CLIENTS - 1)  # everybody else is somewhere
    quiet = many._read(method, state, torch.arange(CLIENTS), True, torch.Generator())["equivalents"]
    assert not quiet.any()


def test_noise_is_z_clips_on_the_sum(many: Any, net: Net) -> None:
    from coalface.algorithms.fedavg import PositiveOnly

    images = faces(noise_population(CLIENTS))
    state = many.begun(PositiveOnly(target=-1.0), net, net.fresh(0), images)  # the hinge is dead: nothing but noise
    step = many.Step(RATE, clip=0.2, noise=1.5, flip=False)
    after, norms = many.played(
        PositiveOnly(target=-1.0), net, state, images, step, False, torch.Generator().manual_seed(0)
    )
    assert not norms.any()
    moved = [(leaf - state.backbone.parameters[name]).flatten() for name, leaf in after.backbone.parameters.items()]
    assert float(torch.cat(moved).std()) == pytest.approx(1.5 * 0.2 / CLIENTS, rel=0.1)  # 632 numbers
