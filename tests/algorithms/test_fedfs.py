from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import seeding, tree, wire
from coalface.algorithms.fedfs import FedFS
from coalface.data.public import Public
from coalface.federation import Rounds
from coalface.local import Batch, Training, client_round
from coalface.models.net import Net
from coalface.objectives.intra_subject import intra_subject, intra_subject_as_printed, same_person, soft_labels
from tests.conftest import SmallRun, noise_population

ALL = torch.ones(3, 3, dtype=torch.bool)
SCORES = torch.tensor([[0.5, 0.8, -0.1], [0.2, 0.9, 0.7], [0.0, 0.4, 0.6]])


def features(seed: int, rows: int = 6, width: int = 5) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def small(method: FedFS, net: Net, folder: Path) -> SmallRun:
    return SmallRun(method, net, noise_population(3, 1), folder, Training(rate=0.01, batch=0, epochs=2))


# --- soft labels ------------------------------------------------------------------------------------------------------


def test_soft_labels_by_hand() -> None:
    """Row 0 of the scores: the mean is 0.4, so 0.8 is similar and −0.1 is not; itself 0.5 counts twice with γ = 2.

    β = (1.0, 0.8, −∞), and with T = 1 α = (e^1.0, e^0.8, 0) / (e^1.0 + e^0.8). Row 2: the mean is ⅓, so 0.4 is similar.
    """
    alpha = soft_labels(SCORES.double(), ALL, gamma=2.0, sharpen=1.0, top=0)
    total = math.exp(1.0) + math.exp(0.8)
    assert alpha[0].tolist() == pytest.approx([math.exp(1.0) / total, math.exp(0.8) / total, 0])
    assert alpha[2, 0] == 0 and alpha[2, 1] > 0
    assert alpha.sum(dim=1).tolist() == pytest.approx([1, 1, 1])


def test_sharpening_is_the_power_normalised_again() -> None:
    one, two = (soft_labels(SCORES.double(), ALL, gamma=2.0, sharpen=T, top=0) for T in (1.0, 2.0))
    torch.testing.assert_close(two, one**2 / (one**2).sum(dim=1, keepdim=True))


def test_the_most_similar_may_be_counted_instead() -> None:
    assert (soft_labels(SCORES, ALL, gamma=1.0, sharpen=1.0, top=1) > 0).tolist() == [
        [True, True, False], [False, True, False], [False, False, True],
    ]  # fmt: skip


def test_an_image_itself_always_counts_and_others_people_never() -> None:
    among = same_person(torch.tensor([0, 1, 1]), None)
    alpha = soft_labels(SCORES, among, gamma=1.0, sharpen=1.0, top=0)
    assert alpha[0].tolist() == [1, 0, 0] and alpha[1, 0] == 0 and (alpha.diagonal() > 0).all()


def test_large_dot_products_do_not_overflow() -> None:
    alpha = soft_labels(900 * SCORES, ALL, gamma=2.0, sharpen=2.0, top=0)
    assert alpha.isfinite().all() and alpha.sum(dim=1).tolist() == pytest.approx([1, 1, 1])


# --- the loss ---------------------------------------------------------------------------------------------------------


def moved_cosine(loss_of: Any) -> Tensor:
    """Cosines of z to v after a small step down the loss, minus those before, [B, B]."""
    z, v = features(1).requires_grad_(), features(2)
    (gradient,) = torch.autograd.grad(loss_of(z, v).sum(), z)
    before, after = (F.normalize(x, dim=1) @ F.normalize(v, dim=1).T for x in (z, z - 1e-3 * gradient))
    return (after - before).detach()


def test_the_sound_loss_pulls_and_the_printed_one_pushes_the_most_similar_pair() -> None:
    among = torch.ones(6, 6, dtype=torch.bool)
    method = FedFS(scale=4.0)
    z, v = features(1), features(2)
    place = method.alpha(z, v, among).argmax()
    row, column = divmod(int(place), 6)
    sound = moved_cosine(lambda z, v: intra_subject(z, v, method.alpha(z, v, among), among, 1.0))
    assert sound[row, column] > 0
    place = (z @ v.T).argmax()  # raw products make the printed soft labels
    row, column = divmod(int(place), 6)
    printed = moved_cosine(lambda z, v: intra_subject_as_printed(z, v, among, gamma=2.0, power=2.0))
    assert printed[row, column] < 0


def test_the_loss_by_hand() -> None:
    """Two images, v at 0° and 90°, z_0 at 0°: −α_00 log p_00 − α_01 log p_01 with p ∝ (e^1, e^0)."""
    z = v = torch.eye(2)
    alpha = torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    loss = intra_subject(3 * z, v, alpha, torch.ones(2, 2, dtype=torch.bool), 1.0)
    far = math.log(1 + math.e)  # −log p of the farther one; of the nearer one it is 1 less
    assert loss.tolist() == pytest.approx([0.75 * (far - 1) + 0.25 * far, far - 1])


@pytest.mark.parametrize(("temperature", "draws_together"), [(1.0, False), (0.5, None), (0.1, True)])
def test_images_of_a_person_draw_together_below_one_over_t_only(temperature: float, draws_together: Any) -> None:
    """Two images 60° apart, T = 2. The labels are e², e¹: 0.73 and 0.27.

    At temperature 1 the softmax has e¹, e^½: 0.62 and 0.38, more for the other image than the label, which is pushed
    away. At 0.1 it has e¹⁰, e⁵: 0.993 and 0.007. At 1 / T the two are equal, and nothing moves.
    """
    v = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
    z, among = v.clone().requires_grad_(), torch.ones(2, 2, dtype=torch.bool)
    alpha = soft_labels(v @ v.T, among, gamma=1.0, sharpen=2.0, top=2)
    assert alpha[0].tolist() == pytest.approx([0.731, 0.269], abs=1e-3)
    (gradient,) = torch.autograd.grad(intra_subject(z, v, alpha, among, temperature).sum(), z)
    moved = F.normalize(z.detach() - 0.01 * gradient, dim=1)
    nearer = float(moved[0] @ v[1]) - 0.5
    assert abs(nearer) < 1e-6 if draws_together is None else (nearer > 1e-4) is draws_together


def test_padding_teaches_nobody() -> None:
    z, v, labels = features(1), features(2), torch.zeros(6, dtype=torch.int64)
    real = torch.tensor([True] * 4 + [False] * 2)
    method = FedFS()
    whole, padded = same_person(labels[:4], None), same_person(labels, real)
    expected = intra_subject(z[:4], v[:4], method.alpha(z[:4], v[:4], whole), whole, 1.0)
    loss = intra_subject(z, v, method.alpha(z, v, padded), padded, 1.0)
    torch.testing.assert_close(loss[:4], expected)
    printed = intra_subject_as_printed(z[:4], v[:4], whole, 2.0, 2.0)
    torch.testing.assert_close(intra_subject_as_printed(z, v, padded, 2.0, 2.0)[:4], printed)
    nobody = same_person(labels, torch.zeros(6, dtype=torch.bool))
    assert intra_subject(z, v, method.alpha(z, v, nobody), nobody, 1.0).isfinite().all()


# --- rounds -----------------------------------------------------------------------------------------------------------


def test_the_personal_model_goes_its_own_way_and_stays(net: Net, tmp_path: Path) -> None:
    run = small(FedFS(), net, tmp_path)
    server: Any = run.run(Rounds(rounds=2))
    kept = [run.stage.private.load(client, 3) for client in range(3)]
    assert len({tree.sha256(run.method.embedder(server, one)) for one in kept} | {tree.sha256(server.backbone)}) == 4
    assert [row.field for row in wire.disclosure(FedFS.types.upload)] == ["backbone", "projection", "images"]
    local = run.method.start(
        net, run.method.broadcast(server, None, 1), kept[1], run.population[1], seeding.generator(0, "start", 3)
    )
    assert tree.sha256(local.trained.personal) == tree.sha256(kept[1].backbone)  # type: ignore[union-attr]


def test_the_public_model_is_read_and_never_moved(net: Net, tmp_path: Path) -> None:
    run = small(FedFS(), net, tmp_path)
    psi = run.population.public.backbone
    before = tree.sha256(psi)
    run.run(Rounds(rounds=2))
    assert run.population.public.backbone is psi and tree.sha256(psi) == before


def test_both_models_start_together_and_learn(net: Net, tmp_path: Path) -> None:
    run = small(FedFS(), net, tmp_path)
    run.run(Rounds(rounds=3))
    rows = [row["losses"] for row in run.stage.rounds()]
    assert all(row["loss"] == pytest.approx(0.7 * row["intra_subject"] + 0.3 * row["apart"]) for row in rows)
    assert rows[-1]["loss"] < rows[0]["loss"]
    faces, server = run.population[0], run.begin()
    local = run.method.start(net, run.method.broadcast(server, None, 0), None, faces, seeding.generator(0, "start", 1))
    losses = run.method.objective(net, local.trained, local.fixed, Batch(faces.images, faces.labels))
    assert losses["apart"].abs().max() < 1e-6


@pytest.mark.parametrize(
    "settings", [{"second": "embedding"}, {"scale": 0.0}, {"top": 2}, {"loss": "printed"}], ids=lambda s: next(iter(s))
)
def test_every_reading_runs(settings: dict[str, Any], net: Net, tmp_path: Path) -> None:
    run = small(FedFS(**settings), net, tmp_path)
    server: Any = run.run(Rounds(rounds=1))
    assert math.isfinite(run.stage.rounds()[0]["losses"]["loss"])
    assert len(server.projection) == (0 if settings.get("second") == "embedding" else 8)


def test_without_a_public_model_it_is_refused_in_words(net: Net, tmp_path: Path) -> None:
    run = small(FedFS(), net, tmp_path)
    broadcast = run.method.broadcast(run.begin(), None, 0)
    faces = noise_population(1)[0]
    assert faces.public.backbone is None and Public().backbone is None
    with pytest.raises(ValueError, match="public pre-trained model on every client"):
        client_round(run.method, net, broadcast, None, faces, Training(), 1, 0, 0)
