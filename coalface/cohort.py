"""Who is called in a round."""

from __future__ import annotations

import torch


def draw(clients: int, size: int, generator: torch.Generator) -> list[int]:
    """``size`` of the clients 0 … clients−1 without replacement, in rising order; 0 or too many takes all.

    Rising order gives sums one order everywhere. Drawing one by one costs the cohort, not the registered clients.
    """
    if not size or size >= clients:
        return list(range(clients))
    chosen: set[int] = set()
    while len(chosen) < size:
        chosen.add(int(torch.randint(clients, (), generator=generator)))
    return sorted(chosen)
