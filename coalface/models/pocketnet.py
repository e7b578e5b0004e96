"""PocketNet: under a million weights, in cells that a search found. Boutros et al. 2022.

A cell has two inputs, the outputs of the two cells before it, and four inner nodes, each the sum of two operations on
earlier states; its output is the nodes side by side. Three cells halve the map, and the tail is MobileFaceNet's.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from coalface.models.norm import BatchNorm2d
from coalface.models.size import Size, height_width

# Each node: two operations, each with the state that it reads: 0 and 1 are the cell's inputs, 2 … the nodes before.
NORMAL = (
    (("conv3", 0), ("conv1", 1)),
    (("conv3", 2), ("conv5", 0)),
    (("conv3", 3), ("conv3", 0)),
    (("conv3", 4), ("same", 0)),
)
REDUCING = (
    (("conv3", 1), ("conv7", 0)),
    (("same", 2), ("conv5", 1)),
    (("pool", 0), ("same", 2)),
    (("pool", 0), ("pool", 1)),
)
NODES = 4


def separable(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """PReLU, a depthwise and a pointwise convolution, batch norm."""
    return nn.Sequential(
        nn.PReLU(channels_in),
        nn.Conv2d(channels_in, channels_in, kernel, stride, kernel // 2, groups=channels_in, bias=False),
        nn.Conv2d(channels_in, channels_out, 1, bias=False),
        BatchNorm2d(channels_out),
    )


def operation(name: str, channels: int, stride: int) -> nn.Module:
    """An edge of a cell, by its name in the tables above."""
    if name == "same":
        return nn.Identity()
    if name == "pool":
        return nn.Sequential(nn.MaxPool2d(3, stride, 1), BatchNorm2d(channels))
    return separable(channels, channels, int(name.removeprefix("conv")), stride)


class HalvedTwice(nn.Module):
    """Half the map, from its even pixels and from its odd ones."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.slope = nn.PReLU(channels_in)
        self.even, self.odd = (
            nn.Sequential(
                nn.Conv2d(channels_in, channels_in, 1, 2, groups=channels_in, bias=False),
                nn.Conv2d(channels_in, channels_out // 2, 1, bias=False),
            )
            for _ in range(2)
        )
        self.norm = BatchNorm2d(channels_out)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        x = self.slope(x_NCHW)
        out: Tensor = self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], dim=1))
        return out


class Cell(nn.Module):
    def __init__(self, before_last: int, last: int, channels: int, after_reducing: bool, reducing: bool) -> None:
        super().__init__()
        self.first = HalvedTwice(before_last, channels) if after_reducing else separable(before_last, channels, 1)
        self.second = separable(last, channels, 1)
        self.table = REDUCING if reducing else NORMAL
        self.nodes = nn.ModuleList(
            nn.ModuleList(operation(name, channels, 2 if reducing and state < 2 else 1) for name, state in edges)
            for edges in self.table
        )

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states = [self.first(before_last), self.second(last)]
        for edges, operations in zip(self.table, self.nodes, strict=True):
            first, second = cast("nn.ModuleList", operations)
            states.append(first(states[edges[0][1]]) + second(states[edges[1][1]]))
        return torch.cat(states[2:], dim=1)


class PocketNet(nn.Module):
    def __init__(self, embedding: int, size: Size, channels: int, cells: int) -> None:
        super().__init__()
        height, width = height_width(size)
        if height % 16 or width % 16:
            raise ValueError(f"size {size} does not fit: pocketnet halves four times, so take multiples of 16")
        stem = NODES * channels
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, 1, bias=False), BatchNorm2d(stem))
        self.cells = nn.ModuleList()
        before_last = last = stem
        after_reducing = False
        for place in range(cells):
            reducing = place in (cells // 3, 2 * cells // 3, cells - 1)
            channels *= 2 if reducing else 1
            self.cells.append(Cell(before_last, last, channels, after_reducing, reducing))
            before_last, last, after_reducing = last, NODES * channels, reducing
        wide = 1024 if embedding == 512 else 512
        self.tail = nn.Sequential(
            nn.PReLU(last),
            nn.Conv2d(last, wide, 1, bias=False),
            BatchNorm2d(wide),
            nn.PReLU(wide),
            nn.Conv2d(wide, wide, (height // 16, width // 16), groups=wide, bias=False),
            BatchNorm2d(wide),
            nn.Conv2d(wide, embedding, 1, bias=False),
            BatchNorm2d(embedding),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                # Without the gain of an activation: nodes are sums, so that a signal grows from cell to cell until
                # batch norm has seen data.
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear")

    def forward(self, images_NCHW: Tensor) -> Tensor:
        before_last = last = self.stem(images_NCHW)
        for cell in self.cells:
            before_last, last = last, cell(before_last, last)
        out: Tensor = self.tail(last).flatten(1)
        return out


def pocketnet(embedding: int = 128, size: Size = 112, channels: int = 16, cells: int = 18) -> PocketNet:
    """PocketNetS, 0.93 million weights with 128 outputs; PocketNetM has 32 channels and 9 cells, 1.7 million."""
    return PocketNet(embedding, size, channels, cells)
