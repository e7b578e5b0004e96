from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from coalface import seeding, tree, wire
from coalface.algorithms import hard_negatives as hn
from coalface.algorithms.fedfr import FedFR
from coalface.algorithms.fine_tune import FineTune
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.public import Public, Together
from coalface.federation import Rounds
from coalface.local import Batch, Training, client_round
from coalface.models.head import affine_identity, mapped
from coalface.models.net import Net
from coalface.objectives.contrastive import contrastive
from coalface.objectives.one_vs_all import one_vs_all, spread_cosine
from tests.conftest import SmallRun, noise_faces, noise_population

TRAINING = Training(rate=0.05, batch=3, momentum=0.9)


def small(method: Any, net: Net, folder: Path, clients: int = 3, each: int = 2) -> SmallRun:
    return SmallRun(method, net, noise_population(clients, each), folder, TRAINING)


def one_client(run: SmallRun, server: Any, client: int, training: Training = TRAINING) -> Any:
    broadcast = run.method.broadcast(server, None, client)
    return client_round(run.method, run.net, broadcast, None, run.population[client], training, 1, 0, client)


def started(run: SmallRun, server: Any, client: int = 0, private: Any = None) -> Any:
    broadcast = run.method.broadcast(server, None, client)
    return run.method.start(run.net, broadcast, private, run.population[client], seeding.generator(0, "start", 1))


# --- the losses -------------------------------------------------------------------------------------------------------


def test_the_contrast_by_hand() -> None:
    """cos to the global model 1, to the last own one 0, τ = ½: −log(e² / (e² + 1))."""
    one, other = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert contrastive(one, one, other, 0.5).item() == pytest.approx(-math.log(math.e**2 / (math.e**2 + 1)))
    assert contrastive(one, other, other, 0.5).item() == pytest.approx(math.log(2))


def test_where_both_models_agree_the_contrast_teaches_nothing() -> None:
    features = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    same = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    contrastive(features, same, same, 0.5).sum().backward()
    assert features.grad is not None and features.grad.abs().max() < 1e-7


def test_one_vs_all_by_hand() -> None:
    """s = 1, m = 0, λ = ½, g the identity, cosines 1 and 0: half of log(1 + e⁻¹) + log 2; of a stranger, log(1 + e)."""
    feature, classifiers, bias = torch.tensor([[4.0, 0.0]]), torch.eye(2), torch.zeros(2)
    settings: Any = {"scale": 1.0, "margin": 0.0, "balance": 0.5, "power": 1.0}
    mine = one_vs_all(feature, classifiers, bias, torch.tensor([0]), **settings)
    assert mine.item() == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2)
    stranger = one_vs_all(feature, classifiers, bias, torch.tensor([2]), **settings)
    assert stranger.item() == pytest.approx((math.log(1 + math.e) + math.log(2)) / 2)


def test_scale_margin_and_bias_of_one_vs_all() -> None:
    """s = 2, m = 0.1, λ = 0.75, b = 0.3, cos = 0.5 with t' = 2, so g = 2·0.75² − 1 = 0.125."""
    angle = torch.tensor([[0.5, math.sqrt(0.75)]])
    settings: Any = {"scale": 2.0, "margin": 0.1, "balance": 0.75, "power": 2.0}
    for label, expected in ((0, 0.375 * math.log(1 + math.exp(-(2 * 0.025 + 0.3)))),
                            (7, 0.125 * math.log(1 + math.exp(2 * 0.225 + 0.3)))):  # fmt: skip
        loss = one_vs_all(angle, torch.tensor([[3.0, 0.0]]), torch.tensor([0.3]), torch.tensor([label]), **settings)
        assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_g_keeps_the_ends_and_lowers_the_middle() -> None:
    assert spread_cosine(torch.tensor([-1.0, 0.0, 1.0]), 3.0).tolist() == [-1.0, -0.75, 1.0]


# --- hard negatives ---------------------------------------------------------------------------------------------------


def closest_cosines(net: Net, public: FaceView, own: torch.Tensor) -> torch.Tensor:
    features = [F.normalize(net(net.fresh(0), images), dim=1) for images in (public.faces.images, own)]
    return (features[0] @ features[1].T).amax(dim=1)


def test_hard_negatives_are_those_above_the_threshold_to_any_own_image(net: Net) -> None:
    public, own = FaceView.of(noise_faces(20, 3, seed=3), range(20)), noise_population(1, 2)[0].images
    closest = closest_cosines(net, public, own)
    cut = float(closest.sort().values[20:22].mean())
    places = hn.hard_negatives(net, net.fresh(0), own, public, cut)
    assert places.tolist() == (closest > cut).nonzero().flatten().tolist() and len(places) == 39


def test_fewer_are_hard_as_the_threshold_rises(net: Net) -> None:
    public, own = FaceView.of(noise_faces(20, 3, seed=3), range(20)), noise_population(1, 2)[0].images
    cuts = [-1.0, *closest_cosines(net, public, own).quantile(torch.tensor([0.25, 0.5, 0.75])).tolist(), 1.0]
    sets = [set(hn.hard_negatives(net, net.fresh(0), own, public, cut).tolist()) for cut in cuts]
    assert all(more > fewer for more, fewer in pairwise(sets))
    assert len(sets[0]) == 60 and not sets[-1]


class Watched(FaceSet):
    """Notes how many images are asked for at a time."""

    largest = 0

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        Watched.largest = max(Watched.largest, len(rows))
        return super().gather(rows)


def test_public_faces_are_never_in_memory_all_at_once(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hn, "BLOCK", 7)
    faces, own = noise_faces(20, 3, seed=3), noise_population(1, 2)[0]
    public = FaceView.of(Watched(faces.images, faces.offsets), range(20))
    cut = float(closest_cosines(net, public, own.images).median())
    remembered = hn.hard_negatives(net, net.fresh(0), own.images, public, cut)
    monkeypatch.setattr(hn, "REMEMBERED", 0)
    streamed = hn.hard_negatives(net, net.fresh(0), own.images, public, cut)
    assert 0 < len(streamed) < 60 and streamed.tolist() == remembered.tolist()
    together = Together(own, public)
    for rows in torch.arange(len(together)).split(5):
        together.gather(rows)
    assert Watched.largest == 7


def test_own_and_public_faces_together() -> None:
    own, faces = noise_population(1, 2, images=2)[0], noise_faces(3, 2, seed=3)
    together = Together(own, FaceView.of(faces, [2, 0], at_most=1))
    assert len(together) == 6 and together.labels.tolist() == [0, 0, 1, 1, 2, 3]
    drawn = together.gather(torch.tensor([5, 0, 4]))
    assert torch.equal(drawn, torch.stack([faces.images[0], own.images[0], faces.images[4]]))


# --- rounds -----------------------------------------------------------------------------------------------------------


def test_public_proxies_come_back_as_the_weighted_mean(net: Net, tmp_path: Path) -> None:
    """The release averages Φ into a variable that nobody reads; here the next broadcast has the mean."""
    run = small(FedFR(), net, tmp_path)
    run.population = replace(run.population, images_each=(1, 2, 4))  # with two people each: weights 2, 4 and 8
    run.engine.population = run.population
    server: Any = run.begin()
    uploads = [one_client(run, server, client).upload for client in range(3)]
    expected = server.public_proxies + sum(w / 14 * up.public_proxies for w, up in zip((2, 4, 8), uploads, strict=True))
    after: Any = run.run(Rounds(rounds=1))
    torch.testing.assert_close(run.method.broadcast(after, None, 0).public_proxies, expected)
    assert not torch.equal(after.public_proxies, server.public_proxies)


def test_frozen_public_proxies_neither_move_nor_travel(net: Net, tmp_path: Path) -> None:
    run = small(FedFR(phi_update="frozen"), net, tmp_path)
    server: Any = run.begin()
    assert one_client(run, server, 0).upload.public_proxies.shape == (0, 8)
    after: Any = run.run(Rounds(rounds=2))
    assert torch.equal(after.public_proxies, server.public_proxies)


def test_only_the_backbone_and_public_proxies_are_on_the_wire() -> None:
    assert [row.field for row in wire.disclosure(FedFR.types.upload)] == ["backbone", "public_proxies", "images"]


def test_a_clients_own_state_persists_while_it_sits_out(net: Net, tmp_path: Path) -> None:
    run = small(FedFR(), net, tmp_path, clients=6)
    run.run(Rounds(rounds=4, cohort=2))
    last = {row["client"]: row["round"] for row in run.stage.ledger()}
    client = min(last, key=lambda who: last[who])
    assert last[client] < 4
    kept: Any = run.stage.private.load(client, 5)
    local = started(run, run.begin(), client, kept)
    assert tree.sha256(local.fixed.previous) == tree.sha256(kept.backbone)
    assert torch.equal(local.trained.proxies, kept.proxies) and torch.equal(local.trained.transform, kept.transform)


@pytest.mark.parametrize("hard", [1.0, -1.0], ids=["no hard negative", "all are hard"])
@pytest.mark.parametrize("branch", ["bce", "cosface", "none"])
def test_one_identity_runs(branch: Any, hard: float, net: Net, tmp_path: Path) -> None:
    run = small(FedFR(hard=hard, branch=branch), net, tmp_path, each=1)
    run.run(Rounds(rounds=2))
    assert all(math.isfinite(row["losses"]["loss"]) for row in run.stage.rounds())
    assert run.stage.rounds()[0]["losses"]["public_share"] == pytest.approx(0 if hard == 1 else 0.6, abs=0.1)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, {"cosface", "contrastive", "custom"}),
        ({"branch": "none"}, {"cosface", "contrastive"}),
        ({"branch": "none", "contrast": 0.0}, {"cosface"}),
        ({"branch": "none", "contrast": 0.0, "public": "none"}, {"cosface"}),
    ],
    ids=["all of it", "without the branch", "hard negatives only", "FedAvg"],
)
def test_parts_can_be_left_out(settings: dict[str, Any], parts: set[str], net: Net, tmp_path: Path) -> None:
    run = small(FedFR(**settings), net, tmp_path)
    run.run(Rounds(rounds=1))
    losses = run.stage.rounds()[0]["losses"]
    assert losses.keys() - {"loss", "public_share"} == parts
    assert (losses["public_share"] == 0) == (settings.get("public") == "none")
    weighted = losses["cosface"] + 5 * losses.get("contrastive", 0.0) + 10 * losses.get("custom", 0.0)
    assert losses["loss"] == pytest.approx(weighted, rel=1e-5)
    private: Any = run.stage.private.load(0, 2)
    assert (run.method.head(None, private) is None) == (settings.get("branch") == "none")


def test_the_first_round_has_no_contrast(net: Net, tmp_path: Path) -> None:
    run = small(FedFR(), net, tmp_path)
    run.run(Rounds(rounds=2))
    first, second = (row["losses"]["contrastive"] for row in run.stage.rounds())
    assert first == pytest.approx(math.log(2), abs=1e-6) and abs(second - math.log(2)) > 1e-4


def test_the_branch_reaches_its_own_tensors_and_the_backbone(net: Net, tmp_path: Path) -> None:
    run = small(FedFR(), net, tmp_path)
    local, kept = started(run, run.begin()), one_client(run, run.begin(), 0).private
    for name in ("transform", "classifiers", "bias", "proxies"):
        assert not torch.equal(getattr(kept, name), getattr(local.trained, name)), name
    faces = run.population[0]
    mapped_faces = mapped(net(kept.backbone, faces.images), run.method.head(None, kept))
    assert mapped_faces.shape == (8, 8) and not torch.allclose(mapped_faces, net(kept.backbone, faces.images))


def test_the_cosface_branch_does_not_see_public_faces(net: Net, tmp_path: Path) -> None:
    run = small(FedFR(branch="cosface"), net, tmp_path)
    local = started(run, run.begin())
    batch = Batch(local.faces.gather(torch.arange(len(local.faces))), local.faces.labels)
    custom = run.method.objective(net, local.trained, local.fixed, batch)["custom"]
    assert (custom[:8] > 0).all() and (custom[8:] == 0).all() and len(custom) == 8 + 6


def test_public_proxies_start_where_pre_training_ended_or_at_class_means(net: Net) -> None:
    people, weights = noise_population(2), net.fresh(0)
    server = FedFR().begin(net, weights, people, torch.Generator())
    assert people.public.faces is not None
    features = F.normalize(net(weights, people.public.faces.gather(torch.arange(6))), dim=1)
    torch.testing.assert_close(server.public_proxies[1], F.normalize(features[2] + features[3], dim=0))
    head = torch.rand(3, 8)
    trained = replace(people, public=replace(people.public, head=head))
    assert FedFR().begin(net, weights, trained, torch.Generator()).public_proxies is head


def test_own_proxies_may_start_at_class_means(net: Net, tmp_path: Path) -> None:
    run = small(FedFR(proxies="mean"), net, tmp_path)
    features = F.normalize(net(net.fresh(0), run.population[0].images), dim=1)
    proxies = started(run, run.begin()).trained.proxies
    torch.testing.assert_close(proxies[1], F.normalize(features[4:].mean(dim=0), dim=0))


def test_without_public_faces_it_is_refused_in_words() -> None:
    bare = replace(noise_population(2), public=Public())
    for method in (FedFR(), FineTune()):
        with pytest.raises(ValueError, match=r"there are none: set data\.public, or method\.public=none"):
            method.check(bare)
        replace(method, public="none").check(bare)


def test_an_affine_head_by_hand() -> None:
    features, head = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0, 5.0], [0.0, 2.0, -1.0]])
    assert mapped(features, head).tolist() == [[8.0, 3.0]]
    assert mapped(features, head[:, :2]).tolist() == [[3.0, 4.0]]
    assert torch.equal(mapped(features, affine_identity(2, like=features)), features)
    with pytest.raises(ValueError, match=r"\[c, 2\] or \[c, 3\]"):
        mapped(features, torch.ones(2, 4))


# --- the baselines of Table 2 -----------------------------------------------------------------------------------------


def test_fine_tuning_leaves_the_server_alone_and_goes_on_where_it_was(net: Net, tmp_path: Path) -> None:
    run = small(FineTune(), net, tmp_path)
    before = run.begin()
    assert tree.sha256(run.run(Rounds(rounds=2))) == tree.sha256(before)
    once = one_client(run, before, 0).private
    assert torch.equal(started(run, before, 0, once).trained.proxies, once.proxies)
    first, second = (row["losses"]["cosface"] for row in run.stage.rounds())
    assert second < first


def test_distillation_starts_at_nothing_and_then_holds_back(net: Net, tmp_path: Path) -> None:
    """Before the first step the client's model is the one that it was given: their logits agree."""
    run = small(FineTune(distil=1.0), net, tmp_path / "kd")
    server = run.begin()
    local, faces = started(run, server), run.population[0]
    losses = run.method.objective(net, local.trained, local.fixed, Batch(faces.images, faces.labels))
    assert losses["distilled"].abs().max() < 1e-5
    slow = Training(rate=1e-4, batch=4, epochs=5)
    plain = one_client(small(FineTune(), net, tmp_path / "plain"), server, 0, slow).private
    held = one_client(small(FineTune(distil=10.0), net, tmp_path / "held"), server, 0, slow).private

    def strayed(kept: Any) -> float:
        given = net(net.fresh(0), faces.images)
        return float((1 - F.cosine_similarity(net(kept.backbone, faces.images), given)).mean())

    assert strayed(held) < strayed(plain)
