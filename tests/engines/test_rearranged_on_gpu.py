"""The copies of a GPU are those of a CPU, bit for bit."""

from __future__ import annotations

import pytest
import torch

from coalface.engines.rearranged import Windows, neighbourhoods, turned

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton needs a GPU")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("models", "channels", "size", "windows"),
    [
        (3, 5, (6, 7), (3, 1, 1)),
        (2, 70, (8, 9), (3, 2, 1)),
        (16, 256, (14, 14), (3, 1, 1)),
        (16, 3, (32, 32), (3, 2, 1)),
        (2, 64, (5, 5), (1, 1, 0)),
        (2, 9, (5, 5), (1, 2, 0)),
        (1, 2, (6, 6), (5, 1, 2)),
    ],
)
def test_neighbourhoods_and_turned(
    models: int, channels: int, size: tuple[int, int], windows: tuple[int, int, int], dtype: torch.dtype
) -> None:
    images = torch.randn(4, models * channels, *size).to(dtype).contiguous(memory_format=torch.channels_last)
    expected = neighbourhoods(images, Windows(models, *windows))
    for pixels_last in (False, True):
        found = neighbourhoods(images.cuda(), Windows(models, *windows), pixels_last)
        assert torch.equal(found.cpu(), expected)
        assert found.mT.is_contiguous() == pixels_last or 1 in found.shape
    weight = torch.randn(models, 7, channels, windows[0], windows[0]).to(dtype)
    assert torch.equal(turned(weight.cuda()).cpu(), turned(weight))
