"""A recorded federation of the small world: real uploads of real methods, in well under a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from coalface.config import method_named
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.local import Training
from coalface.models.net import Net
from coalface.privacy.audits.recording import Case, Memory, begun, recorded
from tests.conftest import noise_population

Recorded = Callable[..., Case]


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def patterns(people: int, images: int, seed: int) -> FaceSet:
    """People of the small world who are not among its clients."""
    faces = noise_population(clients=people, images=images).faces
    order = torch.rand(faces.images.shape[1:], generator=drawn(seed)).flatten().argsort()
    return FaceSet(faces.images.flatten(1)[:, order].view_as(faces.images), faces.offsets)


def one_each(faces: FaceSet) -> Population:
    return Population(faces, tuple((person,) for person in range(len(faces))))


@pytest.fixture
def recorded_case() -> Recorded:
    def make(
        name: str,
        rounds: int = 2,
        clients: int = 16,
        cohort: int = 16,
        faces: FaceSet | None = None,
        **settings: Any,
    ) -> Case:
        net = Net("tiny", embedding=32, size=16)
        method = method_named(name)(**settings)
        case = Case(
            name=name,
            method=method,
            net=net,
            training=Training(rate=0.05, images_per_round=4, flip=False),
            cohort=cohort,
            seed=0,
            clients=noise_population(clients=clients, images=6) if faces is None else one_each(faces),
            outsiders=patterns(40, 3, seed=1),
            public=patterns(20, 2, seed=2),
            server=None,
            memory=Memory(),
            rounds=[],
        )
        case = replace(case, server=begun(case, net.fresh(0)))
        return recorded(case, 0, rounds, lambda: None)

    return make
