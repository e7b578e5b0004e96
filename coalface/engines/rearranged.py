"""Images and weights laid out in another order. Places change, and no number.

torch's own copies go through memory out of order here, and take several times as long as the bytes need. So a GPU takes
Triton kernels (``rearranged_on_gpu``), which read and write in order, a tile at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class Windows(NamedTuple):
    """What the pixels of an output look at."""

    side: int
    stride: int
    padding: int

    def over(self, length: int) -> int:
        """How many there are along a side of an image."""
        return (length + 2 * self.padding - self.side) // self.stride + 1


def pixels(images: Tensor) -> Tensor:
    """Images [M, n, C, H, W], channels last in memory: [M, n·H·W, C], in place."""
    return images.permute(0, 1, 3, 4, 2).flatten(1, 3)


def neighbourhoods(images: Tensor, windows: Windows, pixels_last: bool = False) -> Tensor:
    """Of images [M, n, C, H, W], channels last in memory: [M, n·H·W, side²·C], a row for each output pixel.

    ``pixels_last`` is how they lie in memory: a GPU multiplies quickest by tf32 if what is summed over comes last.
    """
    if windows == (1, 1, 0) and not pixels_last:
        return pixels(images)
    if images.is_cuda:
        from coalface.engines import rearranged_on_gpu  # noqa: PLC0415  # Triton comes with torch for GPUs only

        return rearranged_on_gpu.neighbourhoods(images, windows, pixels_last)
    padded = F.pad(images.permute(0, 1, 3, 4, 2), (0, 0, *[windows.padding] * 4))
    views = padded.unfold(2, windows.side, windows.stride).unfold(3, windows.side, windows.stride)
    rows: Tensor = views.permute(0, 1, 2, 3, 5, 6, 4).flatten(4).flatten(1, 3)  # of [M, n, H, W, C, side, side]
    return rows


def turned(weight: Tensor) -> Tensor:
    """[M, I, O, k, k] of [M, O, I, k, k]: turned by half a circle, inputs and outputs exchanged."""
    if weight.is_cuda:
        from coalface.engines import rearranged_on_gpu  # noqa: PLC0415

        return rearranged_on_gpu.turned(weight)
    return weight.permute(0, 2, 3, 4, 1).flip(2, 3).contiguous().permute(0, 1, 4, 2, 3)
