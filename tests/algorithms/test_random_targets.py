"""Fixed targets: how far apart they are, and that they stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import wire
from coalface.algorithms.random_targets import Kind, RandomTargets, draw_targets
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.metrics.collapse import max_cosine, mean_cosine
from coalface.models.net import Net
from tests.conftest import SmallRun, small_run


def drawn(kind: Kind, classes: int, dimensions: int) -> torch.Tensor:
    return draw_targets(kind, classes, dimensions, torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("kind", "classes"), [("gaussian", 40), ("orthonormal", 16), ("simplex", 17), ("simplex", 2)])
def test_targets_are_unit_vectors(kind: Kind, classes: int) -> None:
    assert drawn(kind, classes, 16).norm(dim=1).tolist() == pytest.approx([1.0] * classes)


def test_orthonormal_targets_are_at_right_angles() -> None:
    torch.testing.assert_close(drawn("orthonormal", 16, 16) @ drawn("orthonormal", 16, 16).T, torch.eye(16))


@pytest.mark.parametrize("classes", [2, 3, 9, 17])
def test_a_simplex_attains_the_bound(classes: int) -> None:
    """No C directions have a lower mean cosine than −1/(C − 1), and here every pair has it."""
    targets = drawn("simplex", classes, 16)
    assert mean_cosine(targets) == pytest.approx(-1 / (classes - 1), abs=1e-6)
    assert max_cosine(targets) == pytest.approx(-1 / (classes - 1), abs=1e-6)


def test_one_target_is_a_direction_of_every_kind() -> None:
    for kind in ("gaussian", "orthonormal", "simplex"):
        assert drawn(kind, 1, 4).shape == (1, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "classes"), [("orthonormal", 17), ("simplex", 18)])
def test_too_many_classes_are_refused(kind: Kind, classes: int) -> None:
    with pytest.raises(ValueError, match=f"{classes} {kind} targets"):
        drawn(kind, classes, 16)


def test_targets_never_move_and_only_the_backbone_does(net: Net, population: Population, tmp_path: Path) -> None:
    run: SmallRun = small_run("random_targets", net, population, tmp_path)
    before: Any = run.begin()
    after: Any = run.run(Rounds(rounds=3))
    assert torch.equal(before.targets, after.targets)
    assert RandomTargets().broadcast(after, None, 2).target.tolist() == before.targets[2].tolist()
    losses = [row["losses"]["loss"] for row in run.stage.rounds()]
    assert losses[-1] < losses[0]


def test_a_secret_target_is_kept_differs_between_clients_and_never_travels(
    net: Net, population: Population, tmp_path: Path
) -> None:
    run: SmallRun = small_run("random_targets/secret", net, population, tmp_path)
    first: Any = run.run(Rounds(rounds=3), stop_after=1)
    before: list[Any] = [run.stage.private.load(client, 2) for client in range(4)]
    run.run(Rounds(rounds=3))
    after: list[Any] = [run.stage.private.load(client, 4) for client in range(4)]
    assert [kept.target.tolist() for kept in before] == [kept.target.tolist() for kept in after]
    assert len({tuple(kept.target.tolist()) for kept in before}) == 4
    message = wire.encode(run.method.broadcast(first, None, 0))
    assert before[0].target.numpy().tobytes() not in message
    assert {row.field for row in wire.disclosure(run.method.types.upload)} == {"backbone", "images"}
