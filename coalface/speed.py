"""How fast a run was, from what its ledgers hold anyway: nothing is measured that was not."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

Row = Mapping[str, Any]


def images_per_second(ledger: Sequence[Row], rounds: Sequence[Row]) -> float | None:
    """Images that clients trained on, over the seconds of all rounds; evaluation and checkpoints are not in these.

    None where no client told how many: under a secure sum.
    """
    seconds, images = sum(row["seconds"] for row in rounds), sum(row["images"] for row in ledger)
    return images / seconds if seconds and images else None


def outside_training(ledger: Sequence[Row], rounds: Sequence[Row]) -> float | None:
    """The share of the rounds' seconds that no client spent training: choosing, sending, checking, summing, the server.

    A client's seconds are those in the engine's local training; of clients that train together each has its part. None
    where machines of their own trained at the same time.
    """
    seconds, training = sum(row["seconds"] for row in rounds), sum(row["seconds"] for row in ledger)
    return 1 - training / seconds if 0 < seconds >= training else None


def peak_memory(device: torch.device) -> dict[str, int]:
    """Bytes at the highest point of this process: of the host's memory, and of the GPU's if it computes there."""
    found = {}
    if sys.platform != "win32":
        import resource  # noqa: PLC0415  (Windows has none)

        unit = 1 if sys.platform == "darwin" else 1024
        found["host"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if device.type == "cuda":
        found["gpu"] = torch.cuda.max_memory_allocated(device)
    return found
