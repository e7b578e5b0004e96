from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface.config import Central
from coalface.data.faceset import FaceSet
from coalface.data.pairs import PairList
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.report.progress import Progress
from coalface.reproduce import real_personal
from coalface.reproduce.bench import Row
from coalface.reproduce.real_lfw import joined
from coalface.reproduce.real_personal import EACH, PROBES, SCALES, PersonalBench
from tests.conftest import noise_faces


class NoPhotographs:
    """Noise in the place of faces: 6 public people, 20 who may be clients."""

    def held_out(self) -> FaceSet:
        return noise_faces(20, 3, seed=9)

    def people(self, name: str) -> FaceSet:
        return noise_faces(20, 14, seed=1) if name == "cfp" else noise_faces(6, 12, seed=0)

    def test(self, name: str) -> tuple[torch.Tensor, PairList]:
        left = torch.arange(60)
        right = (left + 1 + 2 * (left % 2)) % 60  # the next image, or one of the next person
        names = tuple(Path(f"{place}.png") for place in range(60))
        return self.held_out().images, PairList(names, left, right, left // 3 == right // 3, left // 6)


def bench(seed: int, tmp_path: Path) -> PersonalBench:
    nowhere: Any = NoPhotographs()
    run = replace(SCALES["cpu"].run, seed=seed)
    return PersonalBench(run, nowhere, tmp_path, torch.device("cpu"), Progress(quiet=True), "test")


def test_ten_images_of_a_person_train_and_four_are_kept(tmp_path: Path) -> None:
    """Five public people, and 330 of whom 324 go to 18 clients with 18 each; or to 324 clients."""
    faces = joined([noise_faces(5, 12, seed=0), noise_faces(330, 14, seed=1)])
    for each in (EACH, 1):
        world = bench(0, tmp_path)._dealt(faces, 5, each)
        held = [who for client in world.clients.clients for who in client]
        assert len(world.clients) == 324 // each and len(set(held)) == 324 and min(held) >= 5
        assert world.public is not None and world.public.clients == ((0, 1, 2, 3, 4),)
        assert world.clients.counts().tolist() == [10 * each] * (324 // each)
        assert world.probes is not None and len(world.probes) == 324 * PROBES
        trained = set(world.clients[3].rows.tolist())
        assert not trained & set(world.probes.rows.tolist())
        assert world.clients.public.faces is not None and len(world.clients.public.faces) == 60


def test_shuffled_images_stay_with_their_person(tmp_path: Path) -> None:
    faces = noise_faces(3, 14, seed=2)
    one, other = (bench(seed, tmp_path)._shuffled(faces) for seed in (0, 1))
    assert not torch.equal(one.images, other.images)
    for person in range(3):
        mine = slice(14 * person, 14 * (person + 1))
        sums = [set(several.images[mine].flatten(1).long().sum(dim=1).tolist()) for several in (faces, one, other)]
        assert sums[0] == sums[1] == sums[2]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PersonalBench:
    """Four clients with four people each, or sixteen with one; one round."""
    monkeypatch.setattr(real_personal, "EACH", 4)
    monkeypatch.setattr(
        PersonalBench, "_synthetic", lambda _: Population(noise_faces(5, 4, seed=3), ((0, 1, 2, 3, 4),))
    )
    rooms = bench(0, tmp_path)
    rooms.run = replace(
        rooms.run,
        data=replace(rooms.run.data, size=16, clients=4, identities_each=4),
        model="tiny",
        embedding=8,
        pretrain=Central(rounds=1),
        central=Central(rounds=1),
        rounds=Rounds(rounds=1),
    )
    return rooms


def rows_of(rooms: PersonalBench) -> list[Row]:
    rows = real_personal._rows(replace(SCALES["cpu"], run=rooms.run))
    return [replace(row, rounds=min(row.rounds, 2)) for row in rows]


def test_every_row_is_trained_and_measured(small: PersonalBench) -> None:
    measured = small.measure(rows_of(small))
    assert len(measured) == 10
    for row in measured.values():
        assert 0 <= row["scores"]["LFW"]["accuracy"] <= 1 and 0 <= row["scores"]["personal"]["auroc"] <= 1


def test_rows_with_one_person_each_need_no_others(small: PersonalBench) -> None:
    """The start is made for the scale's own clients, who are in none of these rows."""
    [alone] = [row for row in rows_of(small) if row.label == "start, one person each"]
    measured = small.measure([alone])
    assert 0 <= measured[alone.label]["scores"]["personal"]["auroc"] <= 1
