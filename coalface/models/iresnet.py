"""The ArcFace residual networks ("improved" ResNets: batch norm first, PReLU, a linear layer on the whole map).

Deng et al. 2019. The names of the weights are those of the public insightface `arcface_torch` checkpoints. Two
differences that no checkpoint shows: there is no dropout layer (its published rate is 0), and the scale of the last
batch norm (`features.weight`), which they keep at 1, is a parameter like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from coalface.models.norm import BatchNorm2d
from coalface.models.prelu import PReLU
from coalface.models.size import Size, after_halvings


def conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.normal_(layer.weight, std=0.1)
    return layer


class Block(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = BatchNorm2d(channels_in)
        self.conv1 = conv(channels_in, channels_out, 3)
        self.bn2 = BatchNorm2d(channels_out)
        self.prelu = PReLU(channels_out)
        self.conv2 = conv(channels_out, channels_out, 3, stride)
        self.bn3 = BatchNorm2d(channels_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(conv(channels_in, channels_out, 1, stride), BatchNorm2d(channels_out))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        change = self.prelu(self.bn2(self.conv1(self.bn1(x_NCHW))))
        out: Tensor = self.downsample(x_NCHW) + self.bn3(self.conv2(change))
        return out


def stage(channels_in: int, channels_out: int, blocks: int) -> nn.Sequential:
    first = Block(channels_in, channels_out, stride=2)
    return nn.Sequential(first, *(Block(channels_out, channels_out, stride=1) for _ in range(blocks - 1)))


class IResNet(nn.Module):
    def __init__(self, blocks: Sequence[int], embedding: int, size: Size) -> None:
        super().__init__()
        self.conv1 = conv(3, 64, 3)
        self.bn1 = BatchNorm2d(64)
        self.prelu = PReLU(64)
        self.layer1 = stage(64, 64, blocks[0])
        self.layer2 = stage(64, 128, blocks[1])
        self.layer3 = stage(128, 256, blocks[2])
        self.layer4 = stage(256, 512, blocks[3])
        self.bn2 = BatchNorm2d(512)
        height, width = after_halvings(size, 4)
        self.fc = nn.Linear(512 * height * width, embedding)
        self.features = nn.BatchNorm1d(embedding)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        x = self.prelu(self.bn1(self.conv1(images_NCHW)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.features(self.fc(self.bn2(x).flatten(1)))
        return out


def iresnet18(embedding: int = 512, size: Size = 112) -> IResNet:
    """24.0 million weights at 112×112."""
    return IResNet((2, 2, 2, 2), embedding, size)


def iresnet50(embedding: int = 512, size: Size = 112) -> IResNet:
    """43.6 million weights at 112×112."""
    return IResNet((3, 4, 14, 3), embedding, size)
