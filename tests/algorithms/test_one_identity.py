"""What the one-identity methods share: objectives that stack over clients."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import vmap

from coalface import seeding, tree
from coalface.algorithms import METHODS
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.local import Batch
from coalface.models.net import Net, Weights
from coalface.normalisation import moved, next_step
from tests.conftest import noise_population, small_run


@pytest.mark.parametrize("name", ["fedaws", "fedface", "feduv", "fedfv", "random_targets"])
def test_the_objective_under_vmap_is_the_objective_of_each(
    name: str, net: Net, population: Population, tmp_path: Path
) -> None:
    run = small_run(name, net, population, tmp_path)
    server = run.run(Rounds(rounds=2))
    clients = [0, 1, 2]
    opened = run.method.open_round(server, clients, seeding.generator(0, "round", 3))
    locals_ = [
        run.method.start(
            net, run.method.broadcast(server, opened, c), None, population[c], seeding.generator(0, "start", c)
        )
        for c in clients
    ]
    kind, has_fixed = type(locals_[0].trained), locals_[0].fixed is not None

    def one(leaves: dict[str, torch.Tensor], fixed: Any, images: torch.Tensor, labels: torch.Tensor) -> Any:
        return run.method.objective(net, tree.rebuild(kind, leaves), fixed, Batch(images, labels))

    trained = [tree.leaves(local.trained) for local in locals_]
    stacked = {path: torch.stack([leaves[path] for leaves in trained]) for path in trained[0]}
    fixed = torch.stack([local.fixed for local in locals_]) if has_fixed else None
    images = torch.stack([population[c].images for c in clients])
    labels = torch.stack([population[c].labels for c in clients])
    together = vmap(one, in_dims=(0, 0 if has_fixed else None, 0, 0))(stacked, fixed, images, labels)
    for position, (client, local) in enumerate(zip(clients, locals_, strict=True)):
        batch = Batch(population[client].images, population[client].labels)
        alone = run.method.objective(net, local.trained, local.fixed, batch)
        for part, value in alone.items():
            torch.testing.assert_close(together[part][position], value, rtol=1e-5, atol=1e-6)


def test_a_step_with_momentum_has_a_share_of_the_last_one() -> None:
    mean, last = Weights({"w": torch.tensor([1.0, 2.0])}, {}), Weights({"w": torch.tensor([4.0, -2.0])}, {})
    assert next_step(mean, last, 0.5).parameters["w"].tolist() == [3.0, 1.0]
    assert next_step(mean, None, 0.5) is mean and next_step(mean, last, 0.0) is mean


@pytest.mark.parametrize("name", ["fedface", "fedfv", "chorus"])
def test_the_server_moves_by_the_step_that_it_remembers(
    name: str, net: Net, population: Population, tmp_path: Path
) -> None:
    run = small_run(name, net, population, tmp_path)
    run.method = replace(run.method, momentum=0.5)  # type: ignore[call-arg]
    before, after = run.run(Rounds(rounds=2)), run.run(Rounds(rounds=3))
    expected = moved(before.backbone, after.last_step)
    for path, leaf in tree.leaves(after.backbone).items():
        torch.testing.assert_close(leaf, tree.leaves(expected)[path])
    assert run.method.momentum and any(leaf.any() for leaf in after.last_step.parameters.values())


@pytest.mark.parametrize("name", ["fedavg/private-head", "fedprox/private-head", "centralised"])
def test_who_would_learn_nothing_hears_so(name: str) -> None:
    """The softmax of one class is 1. Central training has everybody's classes."""
    method = METHODS[name]()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        method.check(noise_population(clients=3, identities_each=2))
        assert not heard
        method.check(noise_population(clients=3, identities_each=1))
    assert [("nothing will be learnt" in str(warning.message)) for warning in heard] == [True] * (name != "centralised")
