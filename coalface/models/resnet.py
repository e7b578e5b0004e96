"""ResNet-18, the network of FedPAD and of the other presentation-attack baselines.

He et al. 2016. The names of the weights are those of the public torchvision checkpoints.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from coalface.models.norm import BatchNorm2d


def conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Block(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(channels_in, channels_out, 3, stride)
        self.bn1 = BatchNorm2d(channels_out)
        self.conv2 = conv(channels_out, channels_out, 3)
        self.bn2 = BatchNorm2d(channels_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(conv(channels_in, channels_out, 1, stride), BatchNorm2d(channels_out))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        change = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x_NCHW)))))
        return F.relu(self.downsample(x_NCHW) + change)


def stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Block(channels_in, channels_out, stride), Block(channels_out, channels_out, 1))


class ResNet18(nn.Module):
    def __init__(self, outputs: int, channels: int, width: int) -> None:
        super().__init__()
        self.conv1 = conv(channels, width, 7, stride=2)
        self.bn1 = BatchNorm2d(width)
        self.layer1 = stage(width, width, 1)
        self.layer2 = stage(width, 2 * width, 2)
        self.layer3 = stage(2 * width, 4 * width, 2)
        self.layer4 = stage(4 * width, 8 * width, 2)
        self.fc = nn.Linear(8 * width, outputs)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images_NCHW))), 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.fc(x.mean(dim=(2, 3)))
        return out


def resnet18(outputs: int = 512, channels: int = 3, width: int = 64) -> ResNet18:
    """Any image size (the last map is averaged); `outputs` is 1 for an attack detector's logit, 1000 for ImageNet.

    `width` is the number of channels of the first stage: 64 is ResNet-18, less is for small machines.
    """
    return ResNet18(outputs, channels, width)
