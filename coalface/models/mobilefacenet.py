"""MobileFaceNet: about a million weights, for phones.

Chen et al. 2018. Inverted residuals with PReLU; the last feature map is weighed position by position (a depthwise
convolution as large as the map) instead of averaged, because the centre of a face says more than its corners.
"""

from __future__ import annotations

from torch import Tensor, nn

from coalface.models.norm import BatchNorm2d
from coalface.models.prelu import PReLU
from coalface.models.size import Size, after_halvings

# expansion, channels, repeats, stride of the first repeat
BOTTLENECKS = ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))


def conv_bn(
    channels_in: int,
    channels_out: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    linear: bool = False,
) -> nn.Sequential:
    """Convolution, batch norm and, unless linear, PReLU."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding, groups=groups, bias=False)
    # By fan-in, so that the signal keeps its size even where batch norm runs on statistics that saw no data yet.
    nn.init.kaiming_normal_(conv.weight, a=0.25, nonlinearity="linear" if linear else "leaky_relu")
    activation = [] if linear else [PReLU(channels_out)]
    return nn.Sequential(conv, BatchNorm2d(channels_out), *activation)


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = channels_in * expansion
        self.expand = conv_bn(channels_in, wide, 1)
        self.depthwise = conv_bn(wide, wide, 3, stride=stride, padding=1, groups=wide)
        self.project = conv_bn(wide, channels_out, 1, linear=True)
        self.residual = stride == 1 and channels_in == channels_out

    def forward(self, x_NCHW: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x_NCHW)))
        return x_NCHW + out if self.residual else out


class MobileFaceNet(nn.Module):
    def __init__(self, embedding: int, size: Size) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 64, 3, stride=2, padding=1), conv_bn(64, 64, 3, padding=1, groups=64))
        bottlenecks, channels = [], 64
        for expansion, channels_out, repeats, stride in BOTTLENECKS:
            for repeat in range(repeats):
                bottlenecks.append(Bottleneck(channels, channels_out, expansion, stride if repeat == 0 else 1))
                channels = channels_out
        self.bottlenecks = nn.Sequential(*bottlenecks)
        self.widen = conv_bn(channels, 512, 1)
        self.weigh = conv_bn(512, 512, after_halvings(size, 4), groups=512, linear=True)
        self.embed = conv_bn(512, embedding, 1, linear=True)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        x = self.widen(self.bottlenecks(self.stem(images_NCHW)))
        out: Tensor = self.embed(self.weigh(x)).flatten(1)
        return out


def mobilefacenet(embedding: int = 512, size: Size = 112) -> MobileFaceNet:
    """0.99 million weights with the paper's 128-d embedding, 1.2 million with 512."""
    return MobileFaceNet(embedding, size)
