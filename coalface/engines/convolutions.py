"""Convolutions of many models, each of its own images by its own weights.

A GPU's library has fast kernels for few such shapes. So there are several ways to the same numbers, and the quickest is
found out on the first call of a shape:

apart    each model's for itself, at the same time
grouped  one convolution, a group for each model
turned   the same, but the forward pass as a gradient by the images, and the other way round: each is the other with
         turned weights
product  the neighbourhood of each pixel as a row, and for each model a product of matrices

Stacks of images are [M, n, C, H, W]. In memory channels come last, and beside them the models: [n, H, W, M, C], as a
convolution in groups has it. All ways read and make that, so that they compare, and no sum of two meets two orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.engines.quickest import Choose, Way
from coalface.engines.rearranged import Windows, neighbourhoods, pixels, turned
from coalface.engines.streams import Each


class How(NamedTuple):
    """What all models' convolutions have in common."""

    windows: Windows
    groups: int  # of each model: 1 but for depthwise convolutions
    each: Each


def convolution(images: Tensor, weight: Tensor, how: How, choose: Choose) -> Tensor:
    """[M, n, O, H, W] of images [M, n, I, H, W] and weights [M, O, I, k, k]."""
    out: Tensor = _Convolution.apply(images, weight, how, choose)  # type: ignore[no-untyped-call]
    return out


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, how: How, choose: Choose) -> Tensor:
        images = models_beside(images)
        ctx.save_for_backward(images, weight)
        ctx.how, ctx.choose = how, choose
        return choose(_work("forward", images, weight, how), forward_ways(images, weight, how))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        given = models_beside(gradients[0]), images, weight, ctx.how
        by_images = by_weight = None
        if ctx.needs_input_grad[0]:
            by_images = ctx.choose(_work("by images", *given), ways_by_images(*given))
        if ctx.needs_input_grad[1]:
            by_weight = ctx.choose(_work("by weight", *given), ways_by_weight(*given))
        return by_images, by_weight, None, None


def _work(name: str, *given: Any) -> tuple[Any, ...]:
    """What makes a way quicker or slower than another."""
    *tensors, how = given
    return name, tuple((tensor.shape, tensor.dtype) for tensor in tensors), how.windows, how.groups


def forward_ways(images: Tensor, weight: Tensor, how: How) -> dict[str, Way]:
    """[M, n, O, H, W]."""
    ways: dict[str, Way] = {
        "apart": lambda: _apart(images, weight, how),
        "grouped": lambda: _grouped(images, weight, how),
    }
    if how.groups == 1:
        ways["product"] = lambda: _product(images, weight, how.windows)
        if _keeps_size(how.windows):
            ways["turned"] = lambda: _grouped_by_images(images, images.shape[3:], turned(weight), how)
    return ways


def ways_by_images(gradient: Tensor, images: Tensor, weight: Tensor, how: How) -> dict[str, Way]:
    """[M, n, I, H, W]."""
    ways: dict[str, Way] = {
        "apart": lambda: _put_beside(_apart_back(gradient, images, weight, how, [True, False, False])),
        "grouped": lambda: _grouped_by_images(gradient, images.shape[3:], weight, how),
    }
    if how.groups == 1 and _keeps_size(how.windows):
        ways["turned"] = lambda: _grouped(gradient, turned(weight), how)
        ways["product"] = lambda: _product(gradient, turned(weight), how.windows)
    return ways


def ways_by_weight(gradient: Tensor, images: Tensor, weight: Tensor, how: How) -> dict[str, Way]:
    """[M, O, I, k, k]."""
    ways: dict[str, Way] = {
        "apart": lambda: _together(_apart_back(gradient, images, weight, how, [False, True, False])),
        "grouped": lambda: _grouped_by_weight(gradient, images, weight, how),
    }
    if how.groups == 1:
        ways["product"] = lambda: _product_by_weight(gradient, images, weight, how.windows)
    return ways


def _keeps_size(windows: Windows) -> bool:
    return windows.stride == 1 and 2 * windows.padding == windows.side - 1


def models_beside(stack: Tensor) -> Tensor:
    """Models and their channels last in memory: no copy, if that is how they lie already."""
    return stack.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)


def as_one(stack: Tensor) -> Tensor:
    """[M, n, C, H, W] as the images of one model, [n, M·C, H, W], channels last."""
    # Flattened in the order of memory, so that a single image's stride is as the library expects it: another is taken
    # for channels first in one place, for channels last in the next, and gradients are wrong.
    return models_beside(stack).permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)


def stack_of(images: Tensor, models: int) -> Tensor:
    """``as_one``, undone."""
    stack: Tensor = images.unflatten(1, (models, -1)).transpose(0, 1)
    return stack


def _apart(images: Tensor, weight: Tensor, how: How) -> Tensor:
    about = None, how.windows.stride, how.windows.padding, 1, how.groups
    pairs = zip(_each_together(images), _each_together(weight), strict=True)
    return _put_beside(how.each([partial(F.conv2d, *pair, *about) for pair in pairs]))


def _apart_back(gradient: Tensor, images: Tensor, weight: Tensor, how: How, wanted: list[bool]) -> list[Tensor]:
    about = [how.windows.stride] * 2, [how.windows.padding] * 2, [1, 1], False, [0, 0], how.groups, wanted
    stacks = zip(*map(_each_together, (gradient, images, weight)), strict=True)
    back = torch.ops.aten.convolution_backward
    found = how.each([partial(back, *one, None, *about) for one in stacks])
    return [each[wanted.index(True)] for each in found]


def _each_together(stack: Tensor) -> Tensor:
    """Each model's images or weights together, channels last."""
    return stack.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)


def _put_beside(images: Sequence[Tensor]) -> Tensor:
    return torch.stack([each.permute(0, 2, 3, 1) for each in images], dim=3).permute(3, 0, 4, 1, 2)


def _together(weights: Sequence[Tensor]) -> Tensor:
    return torch.stack([each.permute(0, 2, 3, 1) for each in weights]).permute(0, 1, 4, 2, 3)


def _grouped(images: Tensor, weight: Tensor, how: How) -> Tensor:
    models, windows = len(images), how.windows
    about = None, windows.stride, windows.padding, 1, models * how.groups
    return stack_of(F.conv2d(as_one(images), _flat(weight), *about), models)


def _grouped_by_images(gradient: Tensor, size: torch.Size, weight: Tensor, how: How) -> Tensor:
    models, windows = len(gradient), how.windows
    short = [
        whole - ((part - 1) * windows.stride - 2 * windows.padding + windows.side)
        for whole, part in zip(size, gradient.shape[3:], strict=True)
    ]
    about = None, windows.stride, windows.padding, short, models * how.groups
    return stack_of(F.conv_transpose2d(as_one(gradient), _flat(weight), *about), models)


def _grouped_by_weight(gradient: Tensor, images: Tensor, weight: Tensor, how: How) -> Tensor:
    models, windows = len(gradient), how.windows
    about = [windows.stride] * 2, [windows.padding] * 2, [1, 1], False, [0, 0], models * how.groups
    given = as_one(gradient), as_one(images), _flat(weight), None
    found = torch.ops.aten.convolution_backward(*given, *about, [False, True, False])[1]
    by_weight: Tensor = found.unflatten(0, (models, -1))
    return by_weight


def _flat(weight: Tensor) -> Tensor:
    """[M, O, I, k, k] as [M·O, I, k, k], channels last."""
    return weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)


def _product(images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    models, number, _, *sides = images.shape
    high, wide = map(windows.over, sides)
    outputs = weight.shape[1]
    out = images.new_empty(number, high, wide, models, outputs).permute(3, 0, 4, 1, 2)
    by = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
    torch.bmm(neighbourhoods(images, windows), by, out=pixels(out))
    return out


def _product_by_weight(gradient: Tensor, images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    by_pixels = neighbourhoods(gradient, Windows(side=1, stride=1, padding=0), pixels_last=True)
    found = torch.bmm(by_pixels.mT, neighbourhoods(images, windows, pixels_last=True))
    models, outputs, inputs, side, _ = weight.shape
    return found.view(models, outputs, side, side, inputs).permute(0, 1, 4, 2, 3)
