"""Data centres are a population: label 1 is live, 0 is attack, and depth goes along."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coalface.data.centres import DomainData, centres, live, load
from coalface.data.recordings import Recordings
from tests.conftest import noise_recordings


def greys(attack: list[int], first: int) -> Recordings:
    """Frame i of a domain is all of the value first + i, and so is its depth if it is live."""
    values = first + torch.arange(len(attack), dtype=torch.uint8)
    kinds, numbers = torch.tensor(attack), torch.arange(len(attack))
    depth = torch.where(kinds[:, None, None] == 0, values[:, None, None], 0).expand(-1, 32, 32)
    return Recordings(values[:, None, None, None].expand(-1, 3, 2, 2), kinds, depth.to(torch.uint8), numbers, numbers)


def test_each_domain_is_a_client_with_attacks_first() -> None:
    population = centres([greys([0, 1, 0], first=10), greys([2, 0], first=20)])
    one, two = population[0], population[1]
    assert one.images[:, 0, 0, 0].tolist() == [11, 10, 12] and one.labels.tolist() == [0, 1, 1]
    assert two.images[:, 0, 0, 0].tolist() == [20, 21] and two.labels.tolist() == [0, 1]
    assert one.depth is not None and one.depth[:, 0, 0].tolist() == [0, 10, 12]
    assert population.counts().tolist() == [3, 2]


def test_pooled_labels_tell_live_from_attack() -> None:
    pooled = centres([greys([0, 1, 0], first=10), greys([2, 0], first=20)]).pooled()[0]
    assert pooled.labels.tolist() == [0, 1, 1, 2, 3]
    assert live(pooled.labels).tolist() == [0, 1, 1, 0, 1]
    assert pooled.depth is not None and pooled.depth[:, 0, 0].tolist() == [0, 10, 12, 0, 21]


def test_a_centre_needs_live_frames_and_attacks() -> None:
    with pytest.raises(ValueError, match="centre 1 holds 2 live and 0 attack frames"):
        centres([greys([0, 1], first=0), greys([0, 0], first=0)])


def test_the_other_three_are_the_centres_unless_named() -> None:
    assert DomainData(target="I").sources() == ("O", "C", "M")
    assert DomainData(target="S", centres=("O", "M")).sources() == ("O", "M")
    with pytest.raises(ValueError, match="M is the users' domain"):
        DomainData(target="M", centres=("O", "M"))
    with pytest.raises(ValueError, match="each data centre is one domain"):
        DomainData(centres=("O", "O"))


def test_a_world_asks_for_each_split_once() -> None:
    asked = []

    def draw(name: str, split: str, subjects: int, *rest: object) -> Recordings:
        asked.append((name, split, subjects))
        return noise_recordings(len(asked))

    data = DomainData(target="C", centres=("O", "S"), subjects=5, dev_subjects=3, test_subjects=7)
    world = load(data, 0, torch.device("cpu"), draw)  # type: ignore[arg-type]
    assert asked == [("O", "train", 5), ("S", "train", 5), ("O", "dev", 3), ("S", "dev", 3), ("C", "test", 7)]
    assert len(world.clients) == 2 and list(world.dev) == ["O", "S"] and len(world.test) == 6


def test_a_centre_may_know_one_kind_of_attack() -> None:
    """Live recordings (0) stay, and the named kind: O keeps prints (1), C replays (4); users meet all."""
    data = DomainData(target="M", centres=("O", "C"), kinds=("print", "replay"))
    world = load(data, 0, torch.device("cpu"), lambda *_: greys([0, 1, 4, 2], first=0))
    assert [held.attack.tolist() for held in world.dev.values()] == [[0, 1], [0, 4]]
    assert world.test.attack.tolist() == [0, 1, 4, 2] and world.clients.counts().tolist() == [2, 2]
    with pytest.raises(ValueError, match="2 centres and 1 kinds"):
        DomainData(target="M", centres=("O", "C"), kinds=("print",))
    with pytest.raises(ValueError, match="no attack 'mask'"):
        DomainData(target="M", centres=("O",), kinds=("mask",))


def test_live_frames_of_a_place_are_of_people_who_set_no_threshold() -> None:
    """Two people, each with a live frame and a print: one is at home, the other one's two frames find the threshold."""
    two = replace(greys([0, 0, 1, 1], first=0), subject=torch.tensor([7, 8, 7, 8]))
    data = DomainData(target="M", centres=("O", "C"))
    assert load(data, 0, torch.device("cpu"), lambda *_: two).home == {}
    world = load(data, 0, torch.device("cpu"), lambda *_: two, users_at_home=True)
    assert {name: len(live) for name, live in world.home.items()} == {"O": 1, "C": 1, "M": 2}
    for name, others in world.dev_at_home.items():
        at_home = 7 if int(world.home[name][0, 0, 0, 0]) == 0 else 8
        assert others.subject.tolist() == [15 - at_home] * 2 and others.attack.tolist() == [0, 1]
