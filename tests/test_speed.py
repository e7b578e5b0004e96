from __future__ import annotations

import torch

from coalface.speed import images_per_second, outside_training, peak_memory

ROUNDS = [{"seconds": 2.0}, {"seconds": 3.0}]
LEDGER = [{"seconds": 1.0, "images": 20}, {"seconds": 0.5, "images": 10}, {"seconds": 2.5, "images": 30}]


def test_images_a_second_and_what_is_not_training() -> None:
    assert images_per_second(LEDGER, ROUNDS) == 12.0  # 60 images in 5 s
    assert outside_training(LEDGER, ROUNDS) == 1 - 4 / 5
    assert outside_training(LEDGER, ROUNDS[:1]) is None  # 4 s in 2 s: on two machines at least
    assert images_per_second([], []) is None and outside_training([], []) is None


def test_peak_memory_never_falls() -> None:
    before = peak_memory(torch.device("cpu"))["host"]
    block = torch.ones(64 << 20, dtype=torch.uint8)
    after = peak_memory(torch.device("cpu"))["host"]
    del block
    assert 16 << 20 < before <= after == peak_memory(torch.device("cpu"))["host"]
