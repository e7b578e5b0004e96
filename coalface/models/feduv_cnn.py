"""The small CNN of FedUV and FedFV: trains from scratch, no batch normalisation.

Hosseini et al. 2021 (FedUV); Liu et al. 2022 (FedFV).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from coalface.models.size import Size, height_width

CHANNELS = (64, 128, 256, 512, 512)


class FedUVCNN(nn.Module):
    def __init__(self, blocks: list[nn.Sequential], flat: int, embedding: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(flat, embedding)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        out: Tensor = self.fc(self.blocks(images_NCHW).flatten(1))
        return out


def feduv_cnn_small(embedding: int = 128, size: Size = 32) -> FedUVCNN:
    """The same in miniature: a fifth of the work at equal size, for laptops and demonstrations."""
    return feduv_cnn(embedding, size, channels=(32, 64, 128, 128, 128))


def feduv_cnn(
    embedding: int = 512,
    size: Size = 64,
    pools: Sequence[int] = (2, 2, 2, 2, 4),
    norm_groups: int = 2,
    channels: Sequence[int] = CHANNELS,
) -> FedUVCNN:
    """5 × [conv 3×3 → ReLU → max-pool → group norm], then one linear layer.

    ReLU keeps the order of numbers, so that the pool may come first here: the same result from a quarter of the ReLUs.

    The papers' size, 64, ends in 1×1×512. Elsewhere a pool is cut to what is left of the image, and windows at the
    border may be short, so that every pixel counts: 112 ends in 2×2×512, 32 in 1×1×512.
    """
    if len(pools) != len(channels):
        raise ValueError(f"pools is {tuple(pools)}: give {len(channels)} pools, one per block")
    sides = height_width(size)
    blocks, channels_in = [], 3
    for channels_out, pool in zip(channels, pools, strict=True):
        if pool > 1 and min(sides) < 2:
            raise ValueError(
                f"size {size} does not fit pools {tuple(pools)}: only {sides[0]}×{sides[1]} is left before a pool "
                f"of {pool}; use larger images or smaller pools"
            )
        window = (min(pool, sides[0]), min(pool, sides[1]))
        blocks.append(
            nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 3, padding=1),
                nn.MaxPool2d(window, ceil_mode=True),
                nn.ReLU(),
                nn.GroupNorm(norm_groups, channels_out),
            )
        )
        sides = (math.ceil(sides[0] / window[0]), math.ceil(sides[1] / window[1]))
        channels_in = channels_out
    return FedUVCNN(blocks, channels_in * sides[0] * sides[1], embedding)
