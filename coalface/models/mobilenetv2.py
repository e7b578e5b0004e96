"""MobileNetV2: inverted residuals with linear bottlenecks. Sandler et al. 2018.

The published network with an embedding where its classes were; layers are named as in the usual ImageNet checkpoints.
"""

from __future__ import annotations

from torch import Tensor, nn

from coalface.models.norm import BatchNorm2d
from coalface.models.size import Size, height_width

# expansion, channels, repeats, stride of the first repeat
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def conv_bn_relu6(channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU6."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, BatchNorm2d(channels_out), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = channels_in * expansion
        self.conv = nn.Sequential(
            *([conv_bn_relu6(channels_in, wide, 1)] if expansion > 1 else []),
            conv_bn_relu6(wide, wide, 3, stride, groups=wide),
            nn.Conv2d(wide, channels_out, 1, bias=False),
            BatchNorm2d(channels_out),
        )
        self.residual = stride == 1 and channels_in == channels_out

    def forward(self, x_NCHW: Tensor) -> Tensor:
        out: Tensor = self.conv(x_NCHW)
        return x_NCHW + out if self.residual else out


class MobileNetV2(nn.Module):
    def __init__(self, embedding: int, stem_stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn_relu6(3, 32, 3, stem_stride)]
        channels = 32
        for expansion, channels_out, repeats, stride in STAGES:
            for repeat in range(repeats):
                layers.append(InvertedResidual(channels, channels_out, expansion, stride if repeat == 0 else 1))
                channels = channels_out
        self.features = nn.Sequential(*layers, conv_bn_relu6(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, embedding))  # the dropout of the checkpoints
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):  # by fan-in: the signal keeps its size on statistics that saw no data yet
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, images_NCHW: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(images_NCHW).mean(dim=(2, 3)))
        return out


def mobilenetv2(embedding: int = 512, size: Size = 112, stem_stride: int = 1) -> MobileNetV2:
    """3.5 million weights with 1,000 outputs, 2.9 million with 512.

    It was made for images of 224; a ``stem_stride`` of 1 (2 is the published one) gives faces of 112 the same last map.
    """
    height_width(size)
    return MobileNetV2(embedding, stem_stride)
