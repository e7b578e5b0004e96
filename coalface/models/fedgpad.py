"""The networks of FedGPAD, as in its Table II: two feature extractors, a classifier, a depth estimator, a decoder.

Shao et al. 2022. `fedgpad` is what centres share and users run: the domain-invariant extractor, the classifier and the
depth estimator. `fedgpad_specific` is what stays in a centre: the domain-specific extractor and the decoder.
`fedgpad_relief` is the first, judged by its depth map (ours: `algorithms/relief.py`). All make their six input
channels, RGB and HSV, from the image.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coalface.models.colour import rgb_hsv
from coalface.models.norm import BatchNorm2d
from coalface.models.size import Size, height_width

DEPTH = 32  # pixels on a side of a depth map
LIVE_DEPTH, STEEPNESS = 0.35, 6.0  # the mean of a live face's depth map, about; and of the logit in shares of it
PLANES = (512, 256, 128, 64, 32)  # of the decoder's maps, from 8×8 pixels up, at the paper's width of 64


def scaled_to(width: int, channels: int) -> int:
    """So many channels of the paper's, in a network whose first layer has `width` instead of 64."""
    return max(1, round(channels * width / 64))


def conv(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False), BatchNorm2d(channels_out), nn.ReLU()
    )


class Extractor(nn.Module):
    """conv64; three times conv128, conv196, conv128, pool; conv128, pool; conv256, pool; conv512; mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        c64, c128, c196, c256, c512 = (scaled_to(width, channels) for channels in (64, 128, 196, 256, 512))
        self.first = conv(6, c64)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(channels, c128), conv(c128, c196), conv(c196, c128), nn.MaxPool2d(2))
            for channels in (c64, c128, c128)
        )
        self.last = nn.Sequential(
            conv(c128, c128), nn.MaxPool2d(2), conv(c128, c256), nn.MaxPool2d(2), conv(c256, c512)
        )

    def forward(self, x_N6HW: Tensor) -> tuple[Tensor, Tensor]:
        """Features [n, 512], and the three pooled maps side by side [n, 384, 32, 32]."""
        x, pooled = self.first(x_N6HW), []
        for block in self.blocks:
            x = block(x)
            pooled.append(F.adaptive_avg_pool2d(x, DEPTH))
        return self.last(x).mean(dim=(2, 3)), torch.cat(pooled, dim=1)


class Shared(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        c64, c128, c512 = (scaled_to(width, channels) for channels in (64, 128, 512))
        self.invariant = Extractor(width)
        self.classifier = nn.Sequential(nn.Linear(c512, c512), nn.ReLU(), nn.Linear(c512, 1))
        self.depth = nn.Sequential(conv(3 * c128, c128), conv(c128, c64), conv(c64, 1))

    def forward(self, images_N3HW: Tensor) -> tuple[Tensor, ...]:
        """The logit of live [n, 1], domain-invariant features [n, 512], and depth [n, 32, 32]."""
        features, maps = self.invariant(rgb_hsv(images_N3HW))
        return self.classifier(features), features, self.depth(maps)[:, 0]


class Relief(Shared):
    def forward(self, images_N3HW: Tensor) -> tuple[Tensor, ...]:
        """A logit [n, 1], features [n, 512], depth [n, 32, 32], and the classifier's logit [n, 1].

        The first is by depth alone: 0 for a face as deep as live ones are on the mean, −STEEPNESS for a flat one.
        """
        logit, features, depth = super().forward(images_N3HW)
        return STEEPNESS * (depth.mean(dim=(1, 2))[:, None] / LIVE_DEPTH - 1), features, depth, logit


class Specific(nn.Module):
    def __init__(self, width: int, doublings: int) -> None:
        super().__init__()
        c512 = scaled_to(width, 512)
        planes = [scaled_to(width, channels) for channels in PLANES[len(PLANES) - doublings + 1 :]]
        self.specific = Extractor(width)
        self.fill = nn.Linear(c512, c512 * 4 * 4, bias=False)
        steps: list[nn.Module] = []
        for channels_in, channels_out in zip([c512, *planes], planes, strict=False):
            steps += [
                nn.ConvTranspose2d(channels_in, channels_out, 4, stride=2, padding=1, bias=False),
                BatchNorm2d(channels_out),
                nn.LeakyReLU(0.2),
            ]
        last = [c512, *planes][-1]
        self.decoder = nn.Sequential(*steps, nn.ConvTranspose2d(last, 6, 4, stride=2, padding=1), nn.Tanh())

    def forward(self, images_N3HW: Tensor, invariant_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Domain-specific features [n, 512], and the image [n, 6, H, W] decoded from both kinds together."""
        features, _ = self.specific(rgb_hsv(images_N3HW))
        return features, self.decoder(self.fill(invariant_ND + features).unflatten(1, (-1, 4, 4)))


def fedgpad(size: Size = 256, width: int = 64) -> Shared:
    """The part that travels. `width` is the number of channels of the first layer: 64 in the paper."""
    _doublings(size)
    return Shared(width)


def fedgpad_relief(size: Size = 256, width: int = 64) -> Relief:
    """The part that travels, with its depth map as the judge."""
    _doublings(size)
    return Relief(width)


def fedgpad_specific(size: Size = 256, width: int = 64) -> Specific:
    """The part that stays. It takes images and their domain-invariant features."""
    return Specific(width, _doublings(size))


def _doublings(size: Size) -> int:
    """How often 4×4 is doubled to make the image."""
    height, width = height_width(size)
    if height != width or height not in (32, 64, 128, 256):
        raise ValueError(f"fedgpad decodes square images of 32, 64, 128 or 256 pixels, not {height}×{width}")
    return height.bit_length() - 3
