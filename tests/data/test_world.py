from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coalface.data import world
from coalface.data.world import Data, resident

SMALL = Data(size=16, public=3, public_images=2, clients=4, identities_each=2, images_each=3, test=20, test_images=2)


def loaded(**settings: object) -> world.World:
    return world.load(replace(SMALL, **settings), 0, torch.device("cpu"))  # type: ignore[arg-type]


def test_every_client_may_see_the_public_faces() -> None:
    made = loaded()
    public = made.clients[2].public.faces
    assert public is not None and made.public is not None
    assert public.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(public.gather(torch.arange(6)), made.public[0].images)
    assert loaded(public=0).clients.public.faces is None


def test_probes_are_kept_from_training() -> None:
    made = loaded(probe_images=2)
    assert made.probes is not None
    assert made.probes.labels.tolist() == [class_ for class_ in range(8) for _ in range(2)]
    for client in range(4):
        faces, mine = made.clients[client], made.probes.labels // 2 == client
        assert faces.labels.tolist() == [0, 0, 0, 1, 1, 1]
        probes = made.probes.gather(mine.nonzero().flatten())
        assert len(torch.cat([faces.images, probes]).flatten(1).unique(dim=0)) == 10  # none is both
    # They are of the same people: the third image of a person is trained on, the fourth is the first probe.
    person = made.partition.clients[3][1]
    rows = made.clients.faces.images[made.clients.faces.offsets[person] :][:5]
    assert torch.equal(made.clients[3].images[3:], rows[:3])
    assert torch.equal(made.probes.gather(torch.tensor([14, 15])), rows[3:])


def test_everyone_is_the_clients_and_then_the_public_people() -> None:
    """Eight people of clients with three images each, whose probes stay out, and three public ones with two each."""
    made = loaded(probe_images=2)
    everyone = made.everyone()
    assert everyone.counts().tolist() == [6, 6, 6, 6, 6] and everyone.pooled().counts().tolist() == [30]
    assert everyone.classes == 11 and made.public is not None
    assert torch.equal(everyone[4].images, made.public[0].images) and torch.equal(
        everyone[1].images, made.clients[1].images
    )
    alone = loaded(public=0)
    assert alone.everyone() is alone.clients


def test_public_people_may_sit_in_a_studio() -> None:
    """The same people: the public ones as under easy conditions, everybody else as under their own."""
    mixed, hard, easy = loaded(public_difficulty="easy"), loaded(), loaded(difficulty="easy")
    assert mixed.public is not None and hard.public is not None and easy.public is not None
    assert torch.equal(mixed.public[0].images, easy.public[0].images)
    assert not torch.equal(mixed.public[0].images, hard.public[0].images)
    assert all(torch.equal(mixed.clients[client].images, hard.clients[client].images) for client in range(4))


def test_unequal_clients_keep_their_own_numbers() -> None:
    made, plain = loaded(probe_images=2, unequal=True), loaded(unequal=True)
    assert made.clients.counts().tolist() == plain.clients.counts().tolist()
    assert made.clients.pooled().counts().sum() == made.clients.counts().sum()


def test_one_probe_makes_no_pair() -> None:
    with pytest.raises(ValueError, match="2 and more to make a pair"):
        Data(probe_images=1)


def test_faces_that_leave_too_little_memory_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.zeros(10, 3, 4, 4, dtype=torch.uint8)  # 480 bytes
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (959, 1000))
    assert resident(images, torch.device("cuda")) is images
    assert resident(images, torch.device("cpu")) is images
