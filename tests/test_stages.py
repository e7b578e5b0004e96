"""What a run does with each of its federations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coalface.stages import models


@pytest.mark.parametrize(
    ("clients", "chosen"),
    [(3, [0, 1, 2]), (8, list(range(8))), (15, [0, 1, 3, 5, 7, 9, 11, 13]), (40, [*range(0, 40, 5)])],
)
def test_clients_whose_models_are_evaluated_are_spread_evenly(clients: int, chosen: list[int]) -> None:
    private = SimpleNamespace(clients=lambda: list(range(clients)), load=lambda client, before: client)
    method: Any = SimpleNamespace(generic=False, embedder=lambda server, own: own)
    assert models(method, None, SimpleNamespace(private=private)) == chosen  # type: ignore[arg-type]
