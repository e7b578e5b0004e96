"""The small world of the method under test: faces, or recordings of live people and attacks."""

from __future__ import annotations

import pytest

from coalface.data.population import Population
from coalface.models.net import Net
from tests.conftest import small_net, small_population

ANY = "fedaws"  # where a test names none: clients with one person each


def under_test(request: pytest.FixtureRequest) -> str:
    parametrised = getattr(request.node, "callspec", None)
    return str(parametrised.params.get("name", ANY)) if parametrised else ANY


@pytest.fixture
def net(request: pytest.FixtureRequest) -> Net:
    return small_net(under_test(request))


@pytest.fixture
def population(request: pytest.FixtureRequest) -> Population:
    return small_population(under_test(request))
