"""FedPAD, FedGPAD and the baselines: what makes each of them itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import tree, wire
from coalface.algorithms.fedgpad import FedGPAD, Trained
from coalface.data.centres import centres
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.liveness import liveness
from coalface.local import Batch, Training, client_round
from coalface.models.net import Net
from coalface.received import Received
from tests.conftest import SmallRun, noise_recordings, small_net, small_population, small_run

PLAIN = Training(rate=0.05, batch=0, flip=False)


def run_of(method: Any, folder: Path, training: Training = PLAIN, people: Population | None = None) -> SmallRun:
    name = "fedgpad" if isinstance(method, FedGPAD) else "fedpad"
    return SmallRun(method, small_net(name), people or small_population(name), folder, training)


def losses(method: FedGPAD) -> tuple[dict[str, torch.Tensor], Trained]:
    net, people = small_net("fedgpad"), small_population("fedgpad")
    server = method.begin(net, net.fresh(0), people, torch.Generator())
    local = method.start(net, method.broadcast(server, None, 0), None, people[0], torch.Generator().manual_seed(0))
    batch = Batch(people[0].images, people[0].labels, depth=people[0].depth)
    return method.objective(net, local.trained, local.fixed, batch), local.trained


@pytest.mark.parametrize("name", ["fedpad", "fedgpad"])
def test_the_mean_counts_centres_alike_and_includes_statistics(name: str, tmp_path: Path) -> None:
    """A centre of 6 frames and one of 12: the server's detector is the plain mean of theirs."""
    people = centres([noise_recordings(0, frames=6), noise_recordings(1, frames=12)])
    run = small_run(name, small_net(name), people, tmp_path, batch=0)
    server: Any = run.begin()
    received, theirs = Received(run.method.types.upload), []
    for client in (0, 1):
        broadcast = run.method.broadcast(server, None, client)
        result = client_round(run.method, run.net, broadcast, None, people[client], run.training, 1, 0, client)
        received.add(client, result.upload)
        theirs.append(tree.leaves(result.upload))
    after = tree.leaves(run.method.server_round(server, received))
    before = tree.leaves(server)
    assert any("statistics" in path for path in after)
    for path, leaf in after.items():
        expected = before[path] + (theirs[0][path] + theirs[1][path]) / 2
        torch.testing.assert_close(leaf, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fedpad", "fedgpad"])
def test_equal_centres_give_what_each_of_them_has(name: str, tmp_path: Path) -> None:
    one, alike = ([noise_recordings(0)], [noise_recordings(0)] * 3)
    states = []
    for number, domains in enumerate((one, alike)):
        run = small_run(name, small_net(name), centres(domains), tmp_path / str(number), batch=0, flip=False)
        server: Any = run.begin()
        received = Received(run.method.types.upload)
        for client in range(len(domains)):  # each as if it were the first: the same draws
            broadcast = run.method.broadcast(server, None, client)
            faces = run.population[client]
            received.add(
                client, client_round(run.method, run.net, broadcast, None, faces, run.training, 1, 0, 0).upload
            )
        states.append(tree.leaves(run.method.server_round(server, received)))
    for path, leaf in states[0].items():
        torch.testing.assert_close(states[1][path], leaf, rtol=0, atol=1e-6)


def test_the_private_half_of_fedgpad_is_not_on_the_wire_and_persists(tmp_path: Path) -> None:
    run = run_of(FedGPAD(), tmp_path)
    run.run(Rounds(rounds=1))
    upload = run.method.expected(run.method.broadcast(run.begin(), None, 0))
    names = {path.split("/")[-1].split(".")[0] for path in tree.leaves(upload)}
    assert names == {"invariant", "classifier", "depth"}
    first: Any = run.stage.private.load(0, 2)
    assert {name.split(".")[0] for name in first.specific.parameters} == {"specific", "fill", "decoder"}
    local = run.method.start(run.net, run.method.broadcast(run.begin(), None, 0), first, run.population[0], None)  # type: ignore[arg-type]
    assert tree.sha256(local.trained.specific) == tree.sha256(first.specific)


def test_the_specific_extractor_starts_as_the_invariant_one() -> None:
    _, trained = losses(FedGPAD())
    assert trained.specific is not None
    assert torch.equal(
        trained.detector.parameters["invariant.last.4.0.weight"],
        trained.specific.parameters["specific.last.4.0.weight"],
    )


def test_the_loss_is_the_weighted_sum_of_its_parts() -> None:
    found, _ = losses(FedGPAD(depth_weight=10, difference_weight=2, reconstruction_weight=0.1))
    by_hand = found["classification"] + 10 * found["depth"] + 2 * found["difference"] + 0.1 * found["reconstruction"]
    torch.testing.assert_close(found["loss"], by_hand)
    assert all(found[part].shape == (6,) for part in ("classification", "depth", "reconstruction"))


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"depth_weight": 0.0}, {"depth"}),
        ({"difference_weight": 0.0}, {"difference"}),
        ({"reconstruction_weight": 0.0}, {"reconstruction"}),
        ({"disentangle": False}, {"difference", "reconstruction"}),
    ],
)
def test_ablations_take_their_loss_out(settings: dict[str, Any], missing: set[str], tmp_path: Path) -> None:
    everything = {"loss", "classification", "depth", "difference", "reconstruction"}
    assert set(losses(FedGPAD(**settings))[0]) == everything - missing
    run = run_of(FedGPAD(**settings), tmp_path)
    run.run(Rounds(rounds=1))
    assert (run.stage.private.load(0, 2) is None) == (settings == {"disentangle": False})


def test_depth_of_attacks_is_zero_in_the_loss() -> None:
    people = small_population("fedgpad")[0]
    assert people.depth is not None and not people.depth[people.labels == 0].any() and people.depth.any()


def test_fedgpad_refuses_what_it_cannot_do() -> None:
    net, people = small_net("fedpad"), small_population("fedpad")
    with pytest.raises(ValueError, match="set model=fedgpad"):
        FedGPAD().begin(net, net.fresh(0), people, torch.Generator())
    with pytest.raises(ValueError, match="0 takes a loss out"):
        FedGPAD(depth_weight=-1)
    net, flat = small_net("fedgpad"), replace(people, faces=replace(people.faces, depth=None))
    with pytest.raises(ValueError, match="method.depth_weight=0"):
        FedGPAD().begin(net, net.fresh(0), flat, torch.Generator())


def test_the_release_moves_every_weight_by_the_rate(tmp_path: Path) -> None:
    """One step of a fresh Adam is rate · g / (|g| + 1e-8): ±rate wherever the gradient is not tiny."""
    training = Training(rate=0.01, optimiser="adam", images_per_round=4, balanced=True, flip=False)
    run = run_of(FedGPAD(), tmp_path, training)
    upload: Any = client_round(
        run.method, run.net, run.method.broadcast(run.begin(), None, 0), None, run.population[0], training, 1, 0, 0
    ).upload
    steps = torch.cat([leaf.flatten() for leaf in upload.detector.parameters.values()]).abs()
    assert float(steps.max()) <= 0.01 + 1e-6
    assert float((steps > 0.0099).float().mean()) > 0.5


def test_fused_detectors_are_those_of_single(tmp_path: Path) -> None:
    people = small_population("single")
    alone = small_run("single", small_net("single"), people, tmp_path / "single")
    fused = small_run("fused", small_net("fused"), people, tmp_path / "fused")
    alone.run(Rounds(rounds=2))
    server: Any = fused.run(Rounds(rounds=2))
    for client in range(len(people)):
        mine: Any = alone.stage.private.load(client, 9)
        assert tree.sha256(mine.detector) == tree.sha256(server.detectors[str(client)])
    images = people[0].images
    ensemble = fused.method.ensemble(server)
    each = torch.stack([liveness(fused.net, weights, images) for weights in ensemble])
    torch.testing.assert_close(liveness(fused.net, ensemble, images), each.mean(dim=0))
    with pytest.raises(TypeError, match="ensemble"):
        fused.method.embedder(server)


def test_liveness_is_the_sigmoid_of_the_logit_by_running_statistics() -> None:
    net = Net("resnet18", outputs=1, width=2)
    weights, images = net.fresh(0), noise_recordings(0).images
    torch.testing.assert_close(liveness(net, weights, images, batch=4), net(weights, images)[:, 0].sigmoid())
    with pytest.raises(ValueError, match="no detector"):
        liveness(net, [], images)


@pytest.mark.parametrize("name", ["all", "all/fedgpad"])
def test_all_is_the_method_in_one_pair_of_hands(name: str, tmp_path: Path) -> None:
    run = small_run(name, small_net(name), small_population(name), tmp_path)
    assert len(run.population) == 1 and len(run.population[0]) == 30
    (row,) = wire.disclosure(run.method.types.collected)  # type: ignore[arg-type]
    assert row.seen is wire.Seen.REVEALED


def test_detection_learns_in_a_few_rounds(tmp_path: Path) -> None:
    run = small_run("fedpad", Net("resnet18", outputs=1, width=4), small_population("fedpad"), tmp_path, batch=0)
    run.run(Rounds(rounds=8))
    first, last = (run.stage.rounds()[at]["losses"]["loss"] for at in (0, -1))
    assert last < 0.7 * first
