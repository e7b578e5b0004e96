"""The copies of a GPU are those of a CPU, bit for bit.

Without a GPU, Triton's interpreter runs the kernels, if it is there: `pip install triton` (1 GB, so not by default).
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import torch

from coalface.engines import rearranged
from coalface.engines.convolutions import models_beside
from coalface.engines.rearranged import Windows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernels, which are compiled or interpreted as the environment says when they are imported."""
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    from coalface.engines import rearranged_on_gpu

    return rearranged_on_gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("models", "channels", "size", "windows"),
    [
        (3, 5, (6, 7), (3, 1, 1)),
        (2, 70, (8, 9), (3, 2, 1)),
        (2, 130, (9, 9), (3, 1, 1)),  # several tiles of pixels and of channels
        (16, 3, (16, 16), (3, 2, 1)),
        (2, 64, (5, 5), (1, 1, 0)),
        (2, 9, (5, 5), (1, 2, 0)),
        (1, 2, (6, 6), (5, 1, 2)),
    ],
)
def test_neighbourhoods_and_turned(
    models: int,
    channels: int,
    size: tuple[int, int],
    windows: tuple[int, int, int],
    dtype: torch.dtype,
    on_gpu: ModuleType,
) -> None:
    images = torch.randn(models, 4, channels, *size).to(dtype)
    images = models_beside(images)
    expected = rearranged.neighbourhoods(images, Windows(*windows))
    for pixels_last in (False, True):
        found = on_gpu.neighbourhoods(images.to(DEVICE), Windows(*windows), pixels_last)
        assert torch.equal(found.cpu(), expected)
        assert found.mT.is_contiguous() == pixels_last or 1 in found.shape
    weight = torch.randn(models, channels + 2, channels, windows[0], windows[0]).to(dtype)
    assert torch.equal(on_gpu.turned(weight.to(DEVICE)).cpu(), rearranged.turned(weight))
