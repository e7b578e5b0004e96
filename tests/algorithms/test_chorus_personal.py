from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from coalface import seeding, wire
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.chorus_personal import ChorusPersonal
from coalface.federation import Rounds
from coalface.local import Batch, Training
from coalface.models.net import Net
from coalface.objectives.one_vs_all import one_vs_all
from tests.conftest import SmallRun, noise_population

SETTINGS: Any = {"scale": 30.0, "margin": 0.4, "balance": 0.7, "power": 3.0}


def small(method: Chorus, net: Net, folder: Path) -> SmallRun:
    return SmallRun(method, net, noise_population(), folder, Training(rate=0.01, batch=0))


def losses_of(run: SmallRun, server: Any, client: int) -> tuple[Any, dict[str, torch.Tensor]]:
    opened = run.method.open_round(server, [client], seeding.generator(0, "open", 1))
    faces, broadcast = run.population[client], run.method.broadcast(server, opened, client)
    local = run.method.start(run.net, broadcast, None, faces, seeding.generator(0, "start", 1))
    return local, run.method.objective(run.net, local.trained, local.fixed, Batch(faces.images, faces.labels))


def test_other_choirs_stand_for_strangers(net: Net, tmp_path: Path) -> None:
    """Two choirs of four: client 0 has one stranger, the chord of the other choir; before the first round, none."""
    run = small(ChorusPersonal(), net, tmp_path)
    faces = run.population[0]
    local, first = losses_of(run, run.begin(), 0)
    own = one_vs_all(
        F.normalize(net(local.trained.backbone, faces.images), dim=1), local.trained.class_embedding[None],
        torch.zeros(1), torch.zeros(4, dtype=torch.int64), **SETTINGS,
    )  # fmt: skip
    torch.testing.assert_close(first["custom"], own)
    server: Any = run.run(Rounds(rounds=1))
    local, second = losses_of(run, server, 0)
    me = local.trained.class_embedding[None]
    mine = one_vs_all(
        net(server.backbone, faces.images), me, torch.zeros(1), torch.zeros(4, dtype=torch.int64), **SETTINGS
    )
    stranger = one_vs_all(server.chords[1], me, torch.zeros(1), torch.ones(1, dtype=torch.int64), **SETTINGS)
    torch.testing.assert_close(second["custom"], mine + stranger)


def test_without_its_own_part_it_is_chorus(net: Net, tmp_path: Path) -> None:
    plain: Any = small(Chorus(), net, tmp_path / "plain").run(Rounds(rounds=3))
    personal: Any = small(ChorusPersonal(customise=0.0), net, tmp_path / "personal").run(Rounds(rounds=3))
    torch.testing.assert_close(personal.chords, plain.chords)
    for name, leaf in plain.backbone.parameters.items():
        torch.testing.assert_close(personal.backbone.parameters[name], leaf)


def test_nothing_more_travels_and_the_rest_stays(net: Net, tmp_path: Path) -> None:
    assert wire.disclosure(ChorusPersonal.types.upload) == wire.disclosure(Chorus.types.upload)
    run = small(ChorusPersonal(), net, tmp_path)
    server: Any = run.run(Rounds(rounds=3))
    kept: Any = run.stage.private.load(2, 4)
    head = run.method.head(server, kept)
    assert head is not None and not torch.equal(head, torch.eye(8)) and kept.bias.abs().max() > 0
    assert run.method.head(server) is None and run.method.embedder(server) is server.backbone


def test_while_choirs_enrol_nobody_trains(net: Net, tmp_path: Path) -> None:
    """Two choirs, one a round: two rounds enrol, and the third trains."""
    run = small(ChorusPersonal(enrol_first=True), net, tmp_path)
    begun = run.begin().backbone.parameters
    stood = [
        torch.equal(run.run(Rounds(rounds=n, cohort=4)).backbone.parameters["0.weight"], begun["0.weight"])
        for n in (2, 3)
    ]
    assert stood == [True, False]


def test_mixtures_are_refused() -> None:
    with pytest.raises(ValueError, match="looks like nobody"):
        ChorusPersonal(parts=16)
