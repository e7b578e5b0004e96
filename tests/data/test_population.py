"""Who holds which faces. The set below: identity i has i + 1 images, and image n is a square of grey n."""

from __future__ import annotations

import io
import pickle

import pytest
import torch

from coalface.data.faceset import FaceSet, FaceView
from coalface.data.population import ClientFaces, Population
from coalface.data.public import Public
from coalface.local import Training, batches, draws


def grey_faces(identities: int = 4) -> FaceSet:
    offsets = torch.tensor([0, *range(1, identities + 1)]).cumsum(0)
    greys = torch.arange(int(offsets[-1]), dtype=torch.uint8)
    return FaceSet(greys[:, None, None, None].expand(-1, 3, 2, 2).contiguous(), offsets)


def greys(held: ClientFaces) -> list[int]:
    return held.images[:, 0, 0, 0].tolist()


def test_rows_give_images_and_positions() -> None:
    rows, labels = grey_faces().rows([2, 0])
    assert rows.tolist() == [3, 4, 5, 0]  # identity 2 begins after 1 + 2 images
    assert labels.tolist() == [0, 0, 0, 1]


def test_rows_are_capped_for_all_or_for_each() -> None:
    faces = grey_faces()
    assert faces.rows([3, 2], at_most=2)[0].tolist() == [6, 7, 3, 4]
    rows, labels = faces.rows([3, 2], at_most=torch.tensor([1, 9]))
    assert rows.tolist() == [6, 3, 4, 5]
    assert labels.tolist() == [0, 1, 1, 1]
    assert faces.rows([])[0].tolist() == []


@pytest.mark.parametrize("identity", [-1, 4])
def test_unknown_identity_is_refused(identity: int) -> None:
    with pytest.raises(IndexError, match=f"identity {identity} is not among the 4"):
        grey_faces().rows([0, identity])


def test_subset_of_neighbours_is_a_view_and_others_a_copy() -> None:
    faces = grey_faces()
    view = faces.subset([1, 2])
    assert view.images.untyped_storage().data_ptr() == faces.images.untyped_storage().data_ptr()
    assert view.offsets.tolist() == [0, 2, 5]
    copy = faces.subset([2, 0])
    assert copy.images.untyped_storage().data_ptr() != faces.images.untyped_storage().data_ptr()
    assert copy.images[:, 0, 0, 0].tolist() == [3, 4, 5, 0]
    assert copy.offsets.tolist() == [0, 3, 4]


def test_a_client_has_its_faces_its_labels_and_its_classes() -> None:
    population = Population(grey_faces(), ((3,), (2, 0)))
    assert (len(population), population.classes) == (2, 3)
    held = population[1]
    assert greys(held) == [3, 4, 5, 0]
    assert held.labels.tolist() == [0, 0, 0, 1]
    assert held.classes.tolist() == [1, 2]  # class 0 is the first client's
    assert len(held) == 4
    assert [len(client) for client in population] == [4, 4]


def test_images_each_caps_every_identity_of_a_client() -> None:
    population = Population(grey_faces(), ((3,), (2, 1)), images_each=(3, 1))
    assert greys(population[0]) == [6, 7, 8]
    assert greys(population[1]) == [3, 1]


@pytest.mark.parametrize("images_each", [None, (2, 1, 9)])
def test_counts_match_what_is_gathered(images_each: tuple[int, ...] | None) -> None:
    population = Population(grey_faces(6), ((5,), (4, 3), (0, 2)), images_each)
    assert population.counts().tolist() == [len(client) for client in population]


def test_pooled_is_the_union_with_the_same_classes_and_caps() -> None:
    population = Population(grey_faces(6), ((5,), (4, 3), (0, 2)), images_each=(2, 1, 9))
    pooled = population.pooled()
    assert (len(pooled), pooled.classes) == (1, population.classes)
    held = pooled[0]
    assert greys(held) == [grey for client in population for grey in greys(client)]
    by_class = torch.cat([client.classes[client.labels] for client in population])
    assert torch.equal(held.classes[held.labels], by_class)
    assert pooled.pooled().clients == pooled.clients


def test_pooled_whole_set_is_not_copied() -> None:
    faces = grey_faces()
    pooled = Population(faces, ((0,), (1, 2), (3,))).pooled()
    assert pooled[0].images.data_ptr() == faces.images.data_ptr()


def test_pooled_refuses_an_identity_held_twice() -> None:
    with pytest.raises(ValueError, match="identity 2 is held 2 times"):
        Population(grey_faces(), ((2,), (1, 2))).pooled()


def test_saving_one_client_does_not_carry_the_faces_of_others() -> None:
    population = Population(FaceSet(torch.zeros(1000, 3, 8, 8, dtype=torch.uint8), torch.arange(1001)), ((7,), (8,)))
    saved = io.BytesIO()
    torch.save(population[0].images, saved)
    assert saved.getbuffer().nbytes < 4000  # one image has 192 bytes, the set 192,000


def test_public_faces_go_along_without_those_of_others() -> None:
    faces = FaceSet(torch.arange(200).to(torch.uint8).repeat_interleave(192).reshape(200, 3, 8, 8), torch.arange(201))
    client = Population(faces, ((7,),), public=Public(FaceView.of(faces, [3, 9])))[0]
    saved = pickle.dumps(client)
    assert len(saved) < 8000  # three images of 192 bytes
    public = pickle.loads(saved).public.faces  # noqa: S301  # our own bytes
    assert public.labels.tolist() == [0, 1] and public.gather(torch.tensor([1, 0]))[:, 0, 0, 0].tolist() == [9, 3]


@pytest.mark.parametrize(
    ("clients", "caps", "message"),
    [
        (((0,), (4,)), {}, "identity 4 is not among the 4"),
        (((-1,),), {}, "identity -1 is not among the 4"),
        (((0,), (1,)), {"images_each": (1,)}, "images_each has 1 numbers where there are 2: one for each client"),
        (((0, 1),), {"images_of_class": (1,)}, "images_of_class has 1 numbers where there are 2: one for each class"),
        (((0,),), {"images_each": (0,)}, "images_each must be at least 1 everywhere, not 0"),
        (((0,),), {"images_each": (1,), "images_of_class": (1,)}, "not both"),
    ],
)
def test_what_cannot_be_held_is_refused(
    clients: tuple[tuple[int, ...], ...], caps: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Population(grey_faces(), clients, **caps)


@pytest.mark.parametrize("client", [-1, 2])
def test_unknown_client_is_refused(client: int) -> None:
    with pytest.raises(IndexError, match=f"client {client} is not among the 2"):
        Population(grey_faces(), ((0,), (1,)))[client]


class CountedTuple(tuple[tuple[int, ...], ...]):
    """Counts the items read from it, one by one or in slices."""

    read = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        for item in super().__iter__():
            CountedTuple.read += 1
            yield item

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        CountedTuple.read += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
        return super().__getitem__(place)


def test_one_client_of_a_hundred_thousand_costs_no_walk_over_the_others() -> None:
    n = 100_000
    faces = FaceSet(torch.zeros(n, 3, 1, 1, dtype=torch.uint8), torch.arange(n + 1))
    population = Population(faces, CountedTuple((client,) for client in range(n)))
    assert n <= CountedTuple.read <= 4 * n  # registering reads each client a few times, and never again
    CountedTuple.read = 0
    assert population[n - 1].classes.tolist() == [n - 1]
    assert population.first_class(n // 2) == n // 2
    assert population.classes == n
    assert CountedTuple.read <= 4
    assert len(repr(population)) < 100


def test_a_step_reads_its_own_images_and_no_others() -> None:
    """So that one client may hold more than a device's memory, as in central training."""
    held = Population(grey_faces(), ((0, 1, 2, 3),))[0]
    training = Training(batch=4, flip=False)
    steps = list(batches(held, training, torch.Generator().manual_seed(0)))
    assert "images" not in held.__dict__
    rows = torch.cat([draw.rows for draw in draws(held.host_labels, training, torch.Generator().manual_seed(0))])
    assert torch.cat([step.images for step in steps])[:, 0, 0, 0].tolist() == rows.tolist()  # image n is of grey n
