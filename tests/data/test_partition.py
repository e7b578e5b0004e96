"""Identities get one role each, and the record of it cannot be changed unnoticed."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coalface.data.faceset import FaceSet
from coalface.data.partition import Partition, read_manifest, split

SMALL: dict[str, Any] = {"public": 3, "clients": 4, "identities_each": 2, "validation": 2, "test": 5, "seed": 7}


def everyone(partition: Partition) -> list[int]:
    held = [identity for client in partition.clients for identity in client]
    return [*partition.public, *partition.validation, *partition.test, *held]


@given(
    public=st.integers(0, 9),
    clients=st.integers(0, 9),
    identities_each=st.integers(1, 4),
    validation=st.integers(0, 9),
    test=st.integers(0, 9),
    spare=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
    images=st.sampled_from(["all", "unequal"]),
)
def test_split_is_disjoint_and_complete(
    public: int, clients: int, identities_each: int, validation: int, test: int, spare: int, seed: int, images: Any
) -> None:
    needed = public + validation + test + clients * identities_each
    partition = split(
        needed + spare,
        public=public,
        clients=clients,
        identities_each=identities_each,
        validation=validation,
        test=test,
        seed=seed,
        images=images,
    )
    dealt = everyone(partition)
    assert len(dealt) == len(set(dealt)) == needed
    assert set(dealt) <= set(range(needed + spare))
    assert (len(partition.public), len(partition.validation), len(partition.test)) == (public, validation, test)
    assert [len(client) for client in partition.clients] == [identities_each] * clients
    if spare == 0:
        assert sorted(dealt) == list(range(needed))


def test_same_seed_same_split_other_seed_other_split() -> None:
    assert split(20, **SMALL) == split(20, **SMALL)
    assert split(20, **SMALL) != split(20, **{**SMALL, "seed": 8})


def test_more_clients_keep_the_same_people_in_test_and_public() -> None:
    few, many = split(100, **SMALL), split(100, **{**SMALL, "clients": 40, "images": "unequal"})
    assert (few.test, few.validation, few.public) == (many.test, many.validation, many.public)
    assert many.clients[:4] == few.clients


def test_identities_are_shuffled() -> None:
    assert split(1000, public=0, clients=0, test=500, seed=0).test != tuple(range(500))


def test_too_few_identities_says_how_many_are_missing() -> None:
    with pytest.raises(
        ValueError, match=r"^2 identities are missing: 5 test .* 4 clients × 2 = 18, and the set has 16$"
    ):
        split(16, **SMALL)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"public": -1}, "public must not be negative: -1"),
        ({"identities_each": 0}, "identities_each must be at least 1, not 0"),
        ({"images": "some"}, "images must be 'all' or 'unequal', not 'some'"),
        ({"images": "unequal", "images_min": 5, "images_max": 4}, "not 5 and 4"),
        ({"images": "unequal", "images_min": 0}, "not 0 and 100"),
    ],
)
def test_senseless_requests_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(100, **{**SMALL, **wrong})


def test_unequal_counts_follow_the_stated_law() -> None:
    def draw() -> tuple[int, ...] | None:
        asked: dict[str, Any] = {"images": "unequal", "images_min": 2, "images_max": 15}
        return split(40_000, public=0, clients=40_000, test=0, seed=3, **asked).images_each

    counts = draw()
    assert counts is not None
    assert counts == draw()
    assert (min(counts), max(counts)) == (2, 15)
    seen = Counter(counts)
    # log((n+1)/n) / log(16/2): 0.195 of the clients have 2 images, 0.031 have 15; a third each in 2–3, 4–7 and 8–15.
    for n in range(2, 16):
        assert seen[n] / 40_000 == pytest.approx(math.log((n + 1) / n) / math.log(8), abs=0.01)
    assert sum(seen[n] for n in (2, 3)) / 40_000 == pytest.approx(1 / 3, abs=0.01)


def test_equal_bounds_give_everyone_the_same_cap() -> None:
    assert split(100, **SMALL, images="unequal", images_min=6, images_max=6).images_each == (6, 6, 6, 6)
    assert split(100, **SMALL).images_each is None


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"test": (1, 2)}, "identity 1 is in public and in test"),
        ({"clients": ((4,), (5, 4))}, "identity 4 is in client 0 and in client 1"),
        ({"validation": (3, 3)}, "identity 3 is in validation and in validation"),
        ({"test": (0, 1), "clients": ((0, 1),)}, "and 1 more"),
        ({"clients": ((4,), ())}, "client 1 holds no identity"),
        ({"public": (-2,)}, "identity numbers start at 0, not -2"),
        ({"test": (9,), "identities": 9}, "identity 9 is not among the 9"),
        ({"clients": ((4,), (5,)), "images_each": (1,)}, "images_each has 1 numbers for 2 clients"),
        ({"clients": ((4,),), "images_each": (0,)}, "images_each must be at least 1 everywhere, not 0"),
    ],
)
def test_impossible_roles_are_refused(roles: dict[str, Any], message: str) -> None:
    possible: dict[str, Any] = {"public": (0, 1), "validation": (), "test": (), "clients": ()}
    Partition(**possible)
    with pytest.raises(ValueError, match=message):
        Partition(**{**possible, **roles})


def test_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    partition = split(100, **SMALL, images="unequal")
    partition.write_manifest(tmp_path / "split.json")
    assert read_manifest(tmp_path / "split.json") == partition
    assert [path.name for path in tmp_path.iterdir()] == ["split.json"]  # no half-written file beside it
    manifest = json.loads((tmp_path / "split.json").read_text())
    assert manifest == json.loads(json.dumps(partition.manifest()))
    assert (tmp_path / "split.json").read_text() == partition.text() != split(101, **SMALL, images="unequal").text()
    assert manifest["seed"] == 7
    assert manifest["counts"] == {"public": 3, "validation": 2, "test": 5, "clients": 4, "client_identities": 8}


def test_manifest_of_a_hand_made_partition(tmp_path: Path) -> None:
    partition = Partition(public=(), validation=(), test=(0,), clients=((2, 1),))
    partition.write_manifest(tmp_path / "split.json")
    assert read_manifest(tmp_path / "split.json") == partition


@pytest.mark.parametrize("field", ["seed", "test", "clients", "counts", "images_each", "sha256"])
def test_altered_manifest_is_refused(tmp_path: Path, field: str) -> None:
    manifest = split(100, **SMALL).manifest()
    manifest[field] = {"seed": 8, "test": manifest["test"][1:], "clients": manifest["clients"][1:]}.get(field, "other")
    (tmp_path / "split.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="was altered after it was written"):
        read_manifest(tmp_path / "split.json")


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "is not a partition manifest")])
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_manifest(tmp_path / "split.json")


def test_population_and_subset_take_the_faces_of_their_roles() -> None:
    faces = FaceSet(torch.arange(12, dtype=torch.uint8).view(12, 1, 1, 1).expand(-1, 3, 1, 1), torch.arange(0, 13, 2))
    partition = Partition((0,), (), (4, 5), ((3,), (1, 2)), images_each=(1, 2), identities=6)
    population = partition.population(faces)
    assert population[0].images[:, 0, 0, 0].tolist() == [6]  # identity 3 has images 6 and 7, and may use one
    assert population[1].images[:, 0, 0, 0].tolist() == [2, 3, 4, 5]
    test = partition.subset(faces, partition.test)
    assert test.images[:, 0, 0, 0].tolist() == [8, 9, 10, 11]
    assert test.offsets.tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="splits 6 identities and the face set has 2"):
        partition.population(test)
    with pytest.raises(ValueError, match="splits 6 identities and the face set has 2"):
        partition.subset(test, (0,))


def test_a_hundred_thousand_clients_make_a_manifest_and_a_population(tmp_path: Path) -> None:
    n = 100_000
    partition = split(n + 10, public=5, clients=n, test=5, seed=1, images="unequal", images_min=1, images_max=3)
    partition.write_manifest(tmp_path / "split.json")
    assert read_manifest(tmp_path / "split.json") == partition
    faces = FaceSet(torch.zeros(n + 10, 3, 1, 1, dtype=torch.uint8), torch.arange(n + 11))
    population = partition.population(faces)
    assert population.classes == len(population) == n
    assert population[n - 1].classes.tolist() == [n - 1]
    assert len(repr(partition)) < 100
