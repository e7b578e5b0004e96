"""Between host and device. There is no GPU here: what is held is that nothing changes on the way."""

from __future__ import annotations

import torch

from coalface.transfer import sent_together


def test_tensors_that_travel_together_arrive_as_they_were() -> None:
    given = [
        torch.tensor([[1, -2], [3, 1 << 40]]),
        torch.tensor(0.1, dtype=torch.float64),
        torch.tensor([0.1, -0.0, torch.inf]),
        torch.empty(0, 3),
        torch.tensor([True, False, True]),
    ]
    arrived = sent_together(given, torch.device("cpu"))
    for before, after in zip(given, arrived, strict=True):
        assert (after.dtype, after.shape, after.tolist()) == (before.dtype, before.shape, before.tolist())
