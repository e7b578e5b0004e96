"""What clients give up under central training, put together again."""

from __future__ import annotations

import pytest
import torch

from coalface import wire
from coalface.algorithms.centralised import Centralised, Collected
from coalface.data.population import Population
from tests.conftest import noise_population


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
