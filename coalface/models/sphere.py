"""The SphereFace / CosFace networks: plain residual CNNs with PReLU and no normalisation layer at all.

Liu et al. 2017 (SphereFace), Wang et al. 2018 (CosFace); the backbone of FedFace and FedFR.
The names of the weights (`layer1.0.weight`, `layer1.2.conv1.weight`, `fc.weight`) are those of the public FedFR and
PyTorch CosFace checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from coalface.models.prelu import PReLU
from coalface.models.size import Size, after_halvings

CHANNELS = (64, 128, 256, 512)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, bias: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.prelu1 = PReLU(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.prelu2 = PReLU(channels)
        # Nothing rescales the signal between the blocks, so each of them has to start close to the identity:
        # the published deviation of 0.01 keeps 64 layers trainable.
        for conv in (self.conv1, self.conv2):
            nn.init.normal_(conv.weight, std=0.01)
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        out: Tensor = x_NCHW + self.prelu2(self.conv2(self.prelu1(self.conv1(x_NCHW))))
        return out


def stage(channels_in: int, channels_out: int, blocks: int, residual_bias: bool) -> nn.Sequential:
    """A convolution of stride 2, then residual blocks."""
    halve = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1)
    nn.init.xavier_uniform_(halve.weight)
    assert halve.bias is not None
    nn.init.zeros_(halve.bias)
    return nn.Sequential(
        halve, PReLU(channels_out), *(ResidualBlock(channels_out, residual_bias) for _ in range(blocks))
    )


class Sphere(nn.Module):
    def __init__(self, blocks: Sequence[int], embedding: int, size: Size, fc_bias: bool, residual_bias: bool) -> None:
        super().__init__()
        if len(blocks) != len(CHANNELS):
            raise ValueError(f"blocks is {tuple(blocks)}: give {len(CHANNELS)} numbers, one per stage")
        self.layer1 = stage(3, CHANNELS[0], blocks[0], residual_bias)
        self.layer2 = stage(CHANNELS[0], CHANNELS[1], blocks[1], residual_bias)
        self.layer3 = stage(CHANNELS[1], CHANNELS[2], blocks[2], residual_bias)
        self.layer4 = stage(CHANNELS[2], CHANNELS[3], blocks[3], residual_bias)
        height, width = after_halvings(size, 4)
        self.fc = nn.Linear(CHANNELS[3] * height * width, embedding, bias=fc_bias)
        nn.init.xavier_uniform_(self.fc.weight)
        if fc_bias:
            nn.init.zeros_(self.fc.bias)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(images_NCHW))))
        out: Tensor = self.fc(x.flatten(1))
        return out


def sphere20(
    embedding: int = 512,
    size: Size = 112,
    blocks: Sequence[int] = (1, 2, 4, 1),
    fc_bias: bool = True,  # FedFace has none
    residual_bias: bool = False,  # only the sphere20a checkpoints have one
) -> Sphere:
    """20 convolutions and the embedding layer."""
    return Sphere(blocks, embedding, size, fc_bias, residual_bias)


def sphere64(
    embedding: int = 512,
    size: Size = 112,
    blocks: Sequence[int] = (3, 8, 16, 3),  # (3, 7, 16, 3) in the FedFR and PyTorch CosFace releases: 62 convolutions
    fc_bias: bool = True,  # FedFace has none
    residual_bias: bool = False,
) -> Sphere:
    """64 convolutions and the embedding layer."""
    return Sphere(blocks, embedding, size, fc_bias, residual_bias)
