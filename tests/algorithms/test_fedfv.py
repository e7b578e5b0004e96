"""FedFV: equivalent class embeddings, who is in them, and what happens when there are none."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from coalface import seeding, tree
from coalface.algorithms.fedfv import FedFV, distinct, fuse
from coalface.algorithms.revealed_embedding import Server, Trained
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.local import Batch
from coalface.models.net import Net, Weights
from tests.conftest import SmallRun, small_run

LUCK = seeding.generator(0, "test")


def luck() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def server_of(embeddings: torch.Tensor) -> Server:
    return Server(Weights({"w": torch.zeros(1)}, {}), embeddings, embeddings.any(dim=1))


def random_server(clients: int = 20, unknown: tuple[int, ...] = ()) -> Server:
    rows = F.normalize(torch.randn(clients, 16, generator=luck()), dim=1)
    rows[list(unknown)] = 0
    return server_of(rows)


def test_an_equivalent_is_the_normalised_mean_of_its_members() -> None:
    rows = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    mixed = fuse(rows, torch.tensor([[0, 1], [1, 2]]))
    half = 1 / math.sqrt(2)
    assert mixed.tolist() == [pytest.approx([half, half, 0]), pytest.approx([0, half, half])]


@pytest.mark.parametrize("fused", [1, 2, 3, 10])
def test_members_are_known_distinct_and_not_called(fused: int) -> None:
    method, server, called = FedFV(fused=fused), random_server(unknown=(0, 7)), [1, 2, 3]
    opened = method.open_round(server, called, luck())
    assert set(opened.members) == {1, 2, 3}
    for members in opened.members.values():
        assert members is opened.members[1]  # the same for the whole cohort
        assert members.shape == (100, fused)
        assert not set(members.flatten().tolist()) & {0, 7, 1, 2, 3}
        assert all(len(set(row)) == fused for row in members.tolist())
    equivalents = method.broadcast(server, opened, 2).equivalents
    assert equivalents.norm(dim=1).tolist() == pytest.approx([1.0] * 100, abs=1e-6)


def test_full_participation_leaves_each_client_out_of_its_own_pool() -> None:
    method, server = FedFV(equivalents=50), random_server(6)
    opened = method.open_round(server, list(range(6)), luck())
    assert all(client not in members for client, members in opened.members.items())
    assert all(
        set(members.flatten().tolist()) == set(range(6)) - {client} for client, members in opened.members.items()
    )
    sent = [method.broadcast(server, opened, client).equivalents for client in (0, 1)]
    assert not torch.equal(sent[0], sent[1])


def test_members_that_cancel_are_drawn_again() -> None:
    """Two of three point opposite ways: only the pairs with the third have a direction."""
    server = server_of(torch.tensor([[1.0, 0], [-1.0, 0], [0, 1.0], [0.6, 0.8]]))
    members = FedFV().open_round(server, [3], luck()).members[3]
    assert {frozenset(row) for row in members.tolist()} == {frozenset({0, 2}), frozenset({1, 2})}


@pytest.mark.parametrize("opposite", [False, True], ids=["none cancels", "some cancel"])
def test_what_is_fused_at_once_was_drawn_in_turn(opposite: bool) -> None:
    method, server = FedFV(equivalents=5), random_server(6)
    if opposite:
        server.class_embeddings[1] = -server.class_embeddings[0]
    pools = [torch.tensor(pool) for pool in ([0, 1, 2], [0, 1, 2, 3], [2, 3, 4, 5])]
    at_once, in_turn = luck(), luck()
    together = method.draw_each(server, pools, at_once)
    apart = [method.draw(server, pool, in_turn) for pool in pools]
    for some, others in zip(together, apart, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(some, others, strict=True))
    assert torch.equal(at_once.get_state(), in_turn.get_state())


def test_if_all_cancel_there_are_no_negatives_and_no_nan() -> None:
    server = server_of(torch.tensor([[1.0, 0], [-1.0, 0], [0.6, 0.8]]))
    method = FedFV(equivalents=4)
    broadcast = method.broadcast(server, method.open_round(server, [2], luck()), 2)
    assert not broadcast.equivalents.any()


def test_every_subset_is_as_likely() -> None:
    drawn = Counter(tuple(sorted(row)) for row in distinct(4, 6000, 2, luck()).tolist())
    assert len(drawn) == 6
    assert all(abs(count - 1000) < 150 for count in drawn.values())  # five standard deviations


# --- the client -----------------------------------------------------------------------------------------------------


class Two:
    """A net whose embedding is its input."""

    def __call__(self, weights: Weights, images: torch.Tensor, *, batch_statistics: bool = False) -> torch.Tensor:
        return images * weights.parameters["w"]


def loss_of(method: FedFV, equivalents: torch.Tensor, own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = Weights({"w": torch.ones(2, requires_grad=True)}, {})
    batch = Batch(torch.tensor([[3.0, 4.0]]), torch.zeros(1, dtype=torch.int64))
    loss = method.objective(Two(), Trained(weights, own), equivalents, batch)["loss"]  # type: ignore[arg-type]
    return loss, weights.parameters["w"]


def test_the_loss_by_hand_with_the_papers_scale() -> None:
    """u = (0.6, 0.8), w = (1, 0), one equivalent (0, 1): −log(e^0.6 / (e^0.6 + e^0.8))."""
    loss, _ = loss_of(FedFV(scale=1.0), torch.tensor([[0.0, 1.0]]), torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx(math.log(1 + math.exp(0.2)))


def test_absent_equivalents_do_not_count() -> None:
    some = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    with_gaps, without = (loss_of(FedFV(), rows, torch.tensor([1.0, 0.0]))[0] for rows in (some, some[:1]))
    assert torch.equal(with_gaps, without)


def test_without_any_equivalent_nothing_is_learnt() -> None:
    own = torch.tensor([1.0, 0.0], requires_grad=True)
    loss, w = loss_of(FedFV(), torch.zeros(3, 2), own)
    assert loss.item() == 0
    for gradient in torch.autograd.grad(loss.sum(), [w, own]):
        assert not gradient.any()


def test_the_gradient_of_the_own_embedding_is_at_right_angles_to_it() -> None:
    own = torch.tensor([0.8, 0.6], requires_grad=True)
    loss, _ = loss_of(FedFV(), torch.tensor([[0.0, 1.0]]), own)
    (gradient,) = torch.autograd.grad(loss.sum(), own)
    assert gradient.norm() > 0.1 and float(gradient @ own.detach()) == pytest.approx(0, abs=1e-6)


def test_a_slow_embedding_has_the_same_loss_and_a_tenth_of_the_gradient() -> None:
    gradients = []
    for share in (1.0, 0.1):
        own = torch.tensor([0.8, 0.6], requires_grad=True)
        loss, w = loss_of(FedFV(embedding_rate=share), torch.tensor([[0.0, 1.0]]), own)
        gradients.append((loss.detach(), *torch.autograd.grad(loss.sum(), [w, own])))
    (loss, backbone, fast), (same_loss, same_backbone, slow) = gradients
    assert torch.equal(loss, same_loss) and torch.equal(backbone, same_backbone)
    torch.testing.assert_close(slow, 0.1 * fast)


@pytest.fixture
def run(net: Net, population: Population, tmp_path: Path) -> SmallRun:
    return small_run("fedfv", net, population, tmp_path)


def test_equivalents_are_read_and_never_trained(run: SmallRun) -> None:
    server: Any = run.run(Rounds(rounds=1))
    broadcast = run.method.broadcast(server, run.method.open_round(server, [0, 1], LUCK), 0)
    local = run.method.start(run.net, broadcast, None, run.population[0], LUCK)
    assert set(tree.leaves(local.trained)) == {*tree.leaves(broadcast.backbone, "backbone"), "class_embedding"}
    assert torch.equal(local.fixed, broadcast.equivalents) and not local.fixed.requires_grad


def test_the_first_round_only_enrols(run: SmallRun) -> None:
    """Nobody is known yet, so there is nothing to be unlike: class embeddings arrive, the backbone stays."""
    before: Any = run.begin()
    after: Any = run.run(Rounds(rounds=1))
    assert tree.sha256(before.backbone) == tree.sha256(after.backbone) and after.known.all()
    later: Any = run.run(Rounds(rounds=2))
    assert tree.sha256(after.backbone) != tree.sha256(later.backbone)


def test_from_random_embeddings_the_first_round_already_learns(run: SmallRun) -> None:
    run.method = replace(FedFV(), init="random")
    before: Any = run.begin()
    assert tree.sha256(before.backbone) != tree.sha256(run.run(Rounds(rounds=1)).backbone)  # type: ignore[attr-defined]


def test_enrolment_calls_those_who_are_missing_and_trains_nobody() -> None:
    method, server = FedFV(enrol_first=True), random_server(unknown=(0, 7))
    assert method.cohort(server, 20, 8, luck()) == [0, 7]
    opened = method.open_round(server, [0], luck())
    assert not method.broadcast(server, opened, 0).equivalents.any()  # 18 are known, and still nobody is told of them
    everybody = random_server()
    assert len(method.cohort(everybody, 20, 8, luck())) == 8
    assert method.broadcast(everybody, method.open_round(everybody, [0], luck()), 0).equivalents.any()
