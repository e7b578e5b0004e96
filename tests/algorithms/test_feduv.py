"""FedUV: the loss is a hinge that falls, the codeword stays, and similarity may be taken on the code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import seeding, wire
from coalface.algorithms.feduv import FedUV, acceptance_threshold, code_scores
from coalface.data.population import Population
from coalface.evaluation import embed
from coalface.federation import Rounds
from coalface.local import client_round
from coalface.models.net import Net
from tests.conftest import SmallRun, small_run


@pytest.fixture
def run(net: Net, population: Population, tmp_path: Path) -> SmallRun:
    return small_run("feduv", net, population, tmp_path)


def codeword_of(run: SmallRun, server: Any, client: int) -> torch.Tensor:
    luck = seeding.generator(0, "start", client)
    broadcast = run.method.broadcast(server, None, client)
    word: torch.Tensor = run.method.start(run.net, broadcast, None, run.population[client], luck).fixed
    return word


def test_scores_by_hand() -> None:
    """W' = I, g = (3, 4): y/√c = (0.6, 0.8); with v = (1, −1) the score is (0.6 − 0.8)/√2."""
    score = code_scores(torch.tensor([[3.0, 4.0]]), torch.eye(2), torch.tensor([1.0, -1.0]))
    assert score.item() == pytest.approx(-0.2 / 2**0.5)


def test_the_loss_is_never_negative_and_falls(run: SmallRun) -> None:
    run.training = replace(run.training, rate=0.5, epochs=3)
    run.run(Rounds(rounds=8))
    rows = [row["losses"] for row in run.stage.rounds()]
    assert all(row["loss"] >= 0 for row in rows)
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.05
    assert rows[-1]["bits_right"] > rows[0]["bits_right"]


def test_the_codeword_is_the_same_every_round_differs_between_clients_and_never_travels(run: SmallRun) -> None:
    server: Any = run.begin()
    words = [codeword_of(run, server, client) for client in range(6)]
    assert torch.equal(words[0], codeword_of(run, server, 0))
    assert len({tuple(word.tolist()) for word in words}) == 6
    broadcast = run.method.broadcast(server, None, 0)
    upload = client_round(run.method, run.net, broadcast, None, run.population[0], run.training, 1, 0, 0).upload
    for message in (broadcast, upload):
        assert words[0].numpy().tobytes()[:64] not in wire.encode(message)


def test_the_code_head_is_averaged_with_the_backbone(run: SmallRun) -> None:
    before: Any = run.begin()
    after: Any = run.run(Rounds(rounds=1))
    assert not torch.equal(before.code_head, after.code_head)
    assert {row.field: row.seen for row in wire.disclosure(FedUV.types.upload)}["code_head"] is wire.Seen.SUMMED


def test_faces_are_compared_by_the_code_or_by_the_embedding(run: SmallRun) -> None:
    server: Any = run.begin()
    images = run.population[0].images
    by_code = embed(run.net, server.backbone, images, head=FedUV().head(server))
    assert by_code.shape == (4, 511)
    torch.testing.assert_close(by_code, run.net(server.backbone, images) @ server.code_head.T)
    assert FedUV(similarity="embedding").head(server) is None
    assert embed(run.net, server.backbone, images, head=None).shape == (4, 8)


def test_the_threshold_accepts_the_share_it_says() -> None:
    scores = torch.arange(1, 102) / 100  # 0.01 … 1.01
    assert acceptance_threshold(scores, 0.9) == pytest.approx(0.11)


def test_settings_that_leave_no_secret_or_no_room_are_refused(net: Net, population: Population) -> None:
    with pytest.raises(ValueError, match="a secret is left"):
        FedUV(code_length=127, user_bits=64)
    with pytest.raises(ValueError, match="8 clients need more than 2"):
        FedUV(user_bits=2).begin(net, net.fresh(0), population, seeding.generator(0, "begin"))


def test_the_secret_form_sends_no_code_head_and_is_given_no_number(
    net: Net, population: Population, tmp_path: Path
) -> None:
    run = small_run("feduv/secret", net, population, tmp_path)
    before: Any = run.begin()
    after: Any = run.run(Rounds(rounds=3))
    assert torch.equal(before.code_head, after.code_head)
    assert {row.field for row in wire.disclosure(run.method.types.upload)} == {"backbone", "images"}
    assert {row["field"] for row in wire.described(run.method.types.broadcast)} == {"backbone", "code_head"}
    kept: list[Any] = [run.stage.private.load(client, 4) for client in range(6)]
    assert len({tuple(private.codeword[:32].tolist()) for private in kept}) == 6  # not even its beginning is given out
    losses = [row["losses"]["loss"] for row in run.stage.rounds()]
    assert losses[-1] < losses[0]
