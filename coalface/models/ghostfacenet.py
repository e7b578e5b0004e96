"""GhostFaceNet: GhostNet with PReLU, and a weighed last map. Alansari et al. 2023, after Han et al. 2020.

A ghost module makes half of its channels by a convolution and the other half from these by a cheap depthwise one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from coalface.models.norm import BatchNorm2d
from coalface.models.size import Size, height_width

# kernel, expansion, channels, squeeze and excite, stride
BOTTLENECKS = (
    (3, 16, 16, False, 1), (3, 48, 24, False, 2), (3, 72, 24, False, 1), (5, 72, 40, True, 2), (5, 120, 40, True, 1),
    (3, 240, 80, False, 2), (3, 200, 80, False, 1), (3, 184, 80, False, 1), (3, 184, 80, False, 1),
    (3, 480, 112, True, 1), (3, 672, 112, True, 1), (5, 672, 160, True, 2), (5, 960, 160, False, 1),
    (5, 960, 160, True, 1), (5, 960, 160, False, 1), (5, 512, 160, True, 1),
)  # fmt: skip
LAST = 512


def rounded(channels: float) -> int:
    """To a multiple of 4, never more than a tenth down."""
    whole = max(4, int(channels + 2) // 4 * 4)
    return whole + 4 if whole < 0.9 * channels else whole


def conv_bn(channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and batch norm."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(conv.weight, a=0.25)
    return nn.Sequential(conv, BatchNorm2d(channels_out))


class GhostModule(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, linear: bool) -> None:
        super().__init__()
        half = channels_out // 2
        self.primary, self.cheap = conv_bn(channels_in, half, 1), conv_bn(half, half, 3, groups=half)
        self.first, self.second = (nn.Identity() if linear else nn.PReLU(half) for _ in range(2))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        half = self.first(self.primary(x_NCHW))
        return torch.cat([half, self.second(self.cheap(half))], dim=1)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        few = rounded(channels / 4)
        self.gates = nn.Sequential(
            nn.Conv2d(channels, few, 1), nn.PReLU(few), nn.Conv2d(few, channels, 1), nn.Hardsigmoid()
        )

    def forward(self, x_NCHW: Tensor) -> Tensor:
        gates: Tensor = self.gates(x_NCHW.mean(dim=(2, 3), keepdim=True))
        return x_NCHW * gates


class GhostBottleneck(nn.Module):
    def __init__(self, channels_in: int, wide: int, channels_out: int, kernel: int, stride: int, excite: bool) -> None:
        super().__init__()
        self.main = nn.Sequential(
            GhostModule(channels_in, wide, linear=False),
            *([conv_bn(wide, wide, kernel, stride, groups=wide)] if stride > 1 else []),
            *([SqueezeExcite(wide)] if excite else []),
            GhostModule(wide, channels_out, linear=True),
        )
        same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same else nn.Sequential(
            conv_bn(channels_in, channels_in, kernel, stride, groups=channels_in), conv_bn(channels_in, channels_out, 1)
        )  # fmt: skip

    def forward(self, x_NCHW: Tensor) -> Tensor:
        out: Tensor = self.main(x_NCHW) + self.shortcut(x_NCHW)
        return out


class GhostFaceNet(nn.Module):
    def __init__(self, embedding: int, size: Size, width: float, stem_stride: int) -> None:
        super().__init__()
        height, breadth = height_width(size)
        channels = rounded(16 * width)
        layers: list[nn.Module] = [conv_bn(3, channels, 3, stem_stride), nn.PReLU(channels)]
        for kernel, expansion, channels_out, excite, stride in BOTTLENECKS:
            wide, out = rounded(expansion * width), rounded(channels_out * width)
            layers.append(GhostBottleneck(channels, wide, out, kernel, stride, excite))
            channels = out
        last = rounded(LAST * width)
        self.features = nn.Sequential(*layers, conv_bn(channels, last, 1), nn.PReLU(last))
        for halving in (stem_stride, 2, 2, 2, 2):
            height, breadth = -(-height // halving), -(-breadth // halving)
        self.weigh = nn.Conv2d(last, last, (height, breadth), groups=last, bias=False)
        self.norm = BatchNorm2d(last)
        self.embed = nn.Sequential(nn.Conv2d(last, embedding, 1, bias=False), BatchNorm2d(embedding))

    def forward(self, images_NCHW: Tensor) -> Tensor:
        out: Tensor = self.embed(self.norm(self.weigh(self.features(images_NCHW)))).flatten(1)
        return out


def ghostfacenet(embedding: int = 512, size: Size = 112, width: float = 1.3, stem_stride: int = 2) -> GhostFaceNet:
    """GhostFaceNetV1-width-stride: 4.07 million numbers at width 1.3, those of batch norm's statistics included."""
    return GhostFaceNet(embedding, size, width, stem_stride)
