"""Images and weights laid out in another order. Places change, and no number.

torch's own copies go through memory out of order here, and take several times as long as the bytes need. So a GPU takes
Triton kernels (``rearranged_on_gpu``), which read and write in order, a tile at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class Windows(NamedTuple):
    """What the pixels of an output look at, in images of so many models."""

    models: int
    side: int
    stride: int
    padding: int

    def over(self, length: int) -> int:
        """How many there are along a side of an image."""
        return (length + 2 * self.padding - self.side) // self.stride + 1


def neighbourhoods(images: Tensor, windows: Windows, pixels_last: bool = False) -> Tensor:
    """Of images [n, M·C, H, W], channels last: [M, n·H·W, side²·C], a row for each output pixel.

    ``pixels_last`` is how they lie in memory: a GPU multiplies quickest by tf32 if what is summed over comes last.
    """
    if images.is_cuda:
        from coalface.engines import rearranged_on_gpu  # noqa: PLC0415  # Triton comes with torch for GPUs only

        return rearranged_on_gpu.neighbourhoods(images, windows, pixels_last)
    padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, *[windows.padding] * 4)).unflatten(-1, (windows.models, -1))
    views = padded.unfold(1, windows.side, windows.stride).unfold(2, windows.side, windows.stride)
    rows: Tensor = views.permute(3, 0, 1, 2, 5, 6, 4).flatten(4).flatten(1, 3)  # of [n, H, W, M, C, side, side]
    return rows


def turned(weight: Tensor) -> Tensor:
    """[M, I, O, k, k] of [M, O, I, k, k]: turned by half a circle, inputs and outputs exchanged."""
    if weight.is_cuda:
        from coalface.engines import rearranged_on_gpu  # noqa: PLC0415

        return rearranged_on_gpu.turned(weight)
    return weight.permute(0, 2, 3, 4, 1).flip(2, 3).contiguous().permute(0, 1, 4, 2, 3)
