"""What clients give up under central training, put together again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from coalface import wire
from coalface.algorithms.centralised import Centralised, Collected
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import Net
from tests.conftest import SmallRun, noise_population


def test_faces_that_were_collected_are_the_population_again() -> None:
    people: Population = noise_population(clients=3, identities_each=2)
    method = Centralised()
    again = method.assembled([method.collect(people[client]) for client in range(3)])
    assert again.clients == people.clients and again.classes == 6
    pooled, expected = method.clients(again)[0], method.clients(people)[0]
    assert torch.equal(pooled.images, expected.images) and torch.equal(pooled.labels, expected.labels)


@pytest.mark.parametrize("people", [[1, 1], [0, 2], [1, 0], [-1, 0], [0, 1 << 40], []])
def test_people_that_are_not_numbered_as_they_must_be_are_refused(people: list[int]) -> None:
    images = torch.zeros(len(people), 3, 16, 16, dtype=torch.uint8)
    with pytest.raises(wire.Refused, match="numbered from 0"):
        Centralised().assembled([Collected(images, torch.tensor(people, dtype=torch.int64))])


def test_an_image_that_is_left_over_is_normalised_by_running_statistics(tmp_path: Path) -> None:
    """Nine images in batches of four: the last one has no statistics of its own."""
    net, people = Net("tiny_bn", embedding=8, size=16), noise_population(clients=3, images=3)
    run = SmallRun(Centralised(normalisation="average"), net, people, tmp_path, Training(rate=0.01, batch=4))
    run.run(Rounds(rounds=1))
    (row,) = run.stage.ledger()
    assert (row["images"], row["outcome"]) == (9, "counted")
