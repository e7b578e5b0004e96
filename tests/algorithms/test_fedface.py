"""FedAwS and FedFace: who starts a class embedding, what the server does with it, and what it sends back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import seeding, tree
from coalface.algorithms.fedavg import mean_feature
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.revealed_embedding import Server, Upload
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.local import Training, client_round
from coalface.models.net import Net, Weights
from coalface.received import Received
from tests.conftest import SmallRun, small_run

LUCK = seeding.generator(0, "test")


@pytest.fixture
def run(net: Net, population: Population, tmp_path: Path) -> SmallRun:
    return small_run("fedface", net, population, tmp_path)


def test_the_class_embedding_starts_at_the_mean_feature(run: SmallRun) -> None:
    server: Any = run.begin()
    assert not server.known.any()
    faces = run.population[1]
    trained = run.method.start(
        run.net, run.method.broadcast(server, run.method.open_round(server, [1], LUCK), 1), None, faces, LUCK
    ).trained
    by_hand = F.normalize(run.net(server.backbone, faces.images), dim=1).mean(dim=0)
    torch.testing.assert_close(trained.class_embedding, by_hand / by_hand.norm())


def test_fedaws_starts_at_the_servers_random_directions(net: Net, population: Population, tmp_path: Path) -> None:
    run = small_run("fedaws", net, population, tmp_path)
    server: Any = run.begin()
    assert server.known.all()
    assert server.class_embeddings.norm(dim=1).tolist() == pytest.approx([1.0] * 8)
    broadcast = run.method.broadcast(server, run.method.open_round(server, [1], LUCK), 1)
    trained = run.method.start(net, broadcast, None, run.population[1], LUCK).trained
    assert torch.equal(trained.class_embedding, server.class_embeddings[1])


def test_only_clients_that_were_heard_from_are_known_and_take_part(run: SmallRun) -> None:
    server: Any = run.run(Rounds(rounds=1, cohort=2))
    assert int(server.known.sum()) == 2
    assert not server.class_embeddings[~server.known].any()
    record = run.stage.rounds()[-1]
    assert set(record["monitors"]) == {"class_mean_cosine", "class_max_cosine", "class_rank"}
    a, b = server.class_embeddings[server.known]
    assert record["monitors"]["class_mean_cosine"] == pytest.approx(float(a @ b), abs=1e-6)


def test_the_embedding_that_the_server_moved_is_the_one_that_it_sends(run: SmallRun) -> None:
    server: Any = run.begin()
    received = Received(Upload)
    close = F.normalize(torch.tensor([[1.0, 0.1, 0, 0, 0, 0, 0, 0], [1.0, -0.1, 0, 0, 0, 0, 0, 0]]), dim=1)
    still = Weights({name: torch.zeros_like(p) for name, p in server.backbone.parameters.items()}, {})
    for client, embedding in ((1, close[0]), (4, close[1])):
        received.add(client, Upload(still, 3 * embedding, images=2))  # a length that a client has no business to send
    after = run.method.server_round(server, received)
    assert after.known.tolist() == [False, True, False, False, True, False, False, False]
    assert float(after.class_embeddings[1] @ after.class_embeddings[4]) < float(close[0] @ close[1])
    assert after.class_embeddings[1].norm().item() == pytest.approx(1)
    sent = run.method.broadcast(after, {4: 1}, 4).class_embedding
    trained = run.method.start(run.net, run.method.broadcast(after, {4: 1}, 4), None, run.population[4], LUCK).trained
    assert torch.equal(sent, after.class_embeddings[4]) and torch.equal(trained.class_embedding, sent)


def test_a_dead_hinge_leaves_the_backbone_as_it_was(run: SmallRun) -> None:
    """cos ≥ −1 always, so with that target every hinge is dead: the update is zero, and the embedding the mean."""
    run.method = replace(FedFace(), target=-1.0, spread_iterations=0)
    before: Any = run.begin()
    after: Any = run.run(Rounds(rounds=1))
    assert tree.sha256(after.backbone) == tree.sha256(before.backbone)
    assert run.stage.rounds()[0]["losses"]["dead_hinge"] == 1.0
    expected = mean_feature(run.net, before.backbone, run.population[3].images)
    torch.testing.assert_close(after.class_embeddings[3], expected)


def test_a_client_without_images_is_skipped(net: Net, population: Population, tmp_path: Path) -> None:
    """Five clients, and the same five with one more that has nothing: the same model, and it stays unknown."""
    images = population.faces.images[:20]
    five = Population(FaceSet(images, torch.arange(0, 21, 4)), tuple((i,) for i in range(5)))
    offsets = torch.tensor([0, 4, 8, 12, 16, 20, 20])
    six = Population(FaceSet(images, offsets), tuple((i,) for i in range(6)))
    servers: list[Any] = [
        small_run("fedface", net, who, tmp_path / str(len(who))).run(Rounds(rounds=1)) for who in (five, six)
    ]
    assert tree.sha256(servers[0].backbone) == tree.sha256(servers[1].backbone)
    assert servers[1].known.tolist() == [True] * 5 + [False]


def test_training_moves_the_class_embedding_and_it_leaves_with_unit_length(run: SmallRun) -> None:
    server: Any = run.begin()
    broadcast = run.method.broadcast(server, run.method.open_round(server, [0], LUCK), 0)
    faces = run.population[0]
    upload = client_round(run.method, run.net, broadcast, None, faces, run.training, 1, 0, 0).upload
    mean = mean_feature(run.net, server.backbone, faces.images)
    assert isinstance(upload, Upload)
    assert upload.class_embedding.norm().item() == pytest.approx(1.0, abs=1e-6)
    assert not torch.allclose(upload.class_embedding, mean, atol=1e-6)  # the release never trains it


def collapsed(classes: int = 200) -> Server:
    drawn = F.normalize(torch.randn(classes + 1, 64, generator=torch.Generator().manual_seed(1)), dim=1)
    rows = F.normalize(drawn[0] + 0.5 * drawn[1:], dim=1)
    return Server(Weights({"w": torch.zeros(1)}, {}), rows, torch.ones(classes, dtype=torch.bool))


def test_three_steps_that_a_server_may_take() -> None:
    server = collapsed()
    rows = server.class_embeddings
    before = FedAwS().monitors(server)["class_mean_cosine"]
    after = {}
    for step in ("sound", "paper", "release"):
        spread, _ = FedAwS(spread_step=step).spread(rows)  # type: ignore[arg-type]
        after[step] = FedAwS().monitors(replace(server, class_embeddings=spread))["class_mean_cosine"]
    assert abs(after["release"] - before) < 2e-3
    assert after["sound"] < before - 0.1
    assert after["paper"] < before - 0.1
    printed, _ = FedAwS(spread_step="paper", spread_rate=1.0).spread(rows)  # Alg. 1 as printed: λ alone
    assert float((printed * rows).sum(dim=1).mean()) < 0.1  # nobody is near where they were


@pytest.mark.usefixtures("float64")
def test_a_server_that_remembers_who_is_apart_comes_to_the_same(
    net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of eight clients a round: the others' class embeddings were looked at beside each other before."""
    step, looked_at = FedAwS.spread, []

    def all_again(method: FedAwS, w_CD: Tensor, restless_C: Tensor) -> tuple[Tensor, Tensor]:
        looked_at.append(int(restless_C.sum()))
        return step(method, w_CD, torch.ones_like(restless_C) if forgetful else restless_C)

    monkeypatch.setattr(FedAwS, "spread", all_again)
    ends: list[Any] = []
    for forgetful in (False, True):
        folder = tmp_path / str(forgetful)
        run = SmallRun(FedAwS(spread_iterations=40), net, population, folder, Training(rate=0.5, batch=2))
        ends.append(run.run(Rounds(rounds=6, cohort=2)))
    torch.testing.assert_close(ends[0].class_embeddings, ends[1].class_embeddings, rtol=0, atol=1e-12)
    assert looked_at[0] == 8 and min(looked_at[1:6]) < 8


def test_monitors_of_fewer_than_two_are_empty() -> None:
    assert FedAwS().monitors(replace(collapsed(3), known=torch.tensor([True, False, False]))) == {}


def test_of_very_many_classes_a_sample_is_monitored_without_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    server = collapsed(5)
    monkeypatch.setattr("coalface.algorithms.revealed_embedding.MONITORED", 2)  # every third: rows 0 and 3
    found = FedAwS().monitors(server)
    assert found == {"class_mean_cosine": pytest.approx(float(server.class_embeddings[0] @ server.class_embeddings[3]))}


@pytest.mark.parametrize("wrong", [{"spread_max_cos": 1.0}, {"spread_iterations": -1}, {"spread_block": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedAwS(**wrong)
