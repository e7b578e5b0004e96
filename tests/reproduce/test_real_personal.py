from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coalface.data.faceset import FaceSet
from coalface.report.progress import Progress
from coalface.reproduce.real_lfw import joined
from coalface.reproduce.real_personal import EACH, PROBES, SCALES, PersonalBench
from tests.conftest import noise_faces


class NoPhotographs:
    def held_out(self) -> FaceSet:
        return noise_faces(20, 2, seed=9)


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
