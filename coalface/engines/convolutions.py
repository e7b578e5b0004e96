"""Convolutions of many models at once, each of its own images by its own weights: one kernel for all of them.

A GPU's library has that as one convolution in groups, and fast kernels for some passes and shapes of it only. So there
are other ways to the same numbers, and the quickest is found out on the first call of a shape:

grouped  one convolution, a group for each model
turned   the forward pass as a gradient by the images, and the other way round: each is the other with turned weights
product  the neighbourhood of each pixel as a row, and for each model a product of matrices
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from coalface.engines.quickest import Quickest, Way
from coalface.engines.rearranged import Windows, neighbourhoods, turned


class ConvolutionsOfMany(TorchFunctionMode):
    """While it is on, ``vmap`` takes the convolutions of a stack of models by the quickest way."""

    def __init__(self, quickest: Quickest) -> None:
        super().__init__()
        self._quickest = quickest

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        """Part of a mode: every call of torch comes by here."""
        if function is not torch.conv2d or named or not _is_plain(*arguments):
            return function(*arguments, **(named or {}))
        images, weight, bias, stride, padding = arguments[:5]
        if torch.is_autocast_enabled("cuda"):
            images, weight = (tensor.to(torch.get_autocast_dtype("cuda")) for tensor in (images, weight))
        out = _Stacked.apply(images, weight, stride[0], padding[0], self._quickest)  # type: ignore[no-untyped-call]
        return out if bias is None else out + bias.to(out.dtype)[:, None, None]


def _is_plain(images: Tensor, weight: Tensor, *how: Any) -> bool:
    """A convolution as a layer calls it, of a stack's own weights, without groups, as square as most are."""
    if len(how) != 5 or not all(torch._C._functorch.is_batchedtensor(tensor) for tensor in (images, weight)):
        return False
    _, stride, padding, dilation, groups = how
    square = all(isinstance(pair, tuple) and len(set(pair)) == 1 for pair in (stride, padding, weight.shape[2:]))
    return square and dilation == (1, 1) and groups == 1


class _Stacked(torch.autograd.Function):
    """How ``vmap`` takes it."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, stride: int, padding: int, quickest: Quickest) -> Any:
        """Never called: there is a stack, or it would not have come to this."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Part of an autograd function; the convolution below remembers what it needs."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, images: Tensor, weight: Tensor, stride: int, padding: int, quickest: Quickest
    ) -> tuple[Any, int]:
        """Part of an autograd function."""
        images, weight = images.movedim(in_dims[0], 0), weight.movedim(in_dims[1], 0)
        windows = Windows(info.batch_size, weight.shape[-1], stride, padding)
        return convolution(images, weight, windows, quickest), 0


def convolution(images: Tensor, weight: Tensor, windows: Windows, quickest: Quickest) -> Tensor:
    """[M, n, O, H, W] of images [M, n, I, H, W] and weights [M, O, I, k, k]."""
    abreast = _Convolution.apply(_abreast(images), weight, windows, quickest)  # type: ignore[no-untyped-call]
    out: Tensor = abreast.unflatten(1, (windows.models, -1)).transpose(0, 1)
    return out


def _abreast(images: Tensor) -> Tensor:
    """[M, n, C, H, W] as [n, M·C, H, W], channels last: no copy, if that is how they lie already."""
    return images.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)


class _Convolution(torch.autograd.Function):
    """Of images [n, M·I, H, W], channels last."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, windows: Windows, quickest: Quickest) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.windows, ctx.quickest = windows, quickest
        work = ("forward", images.shape, weight.shape, images.dtype, windows)
        return quickest(work, forward_ways(images, weight, windows))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        about = (images.shape, weight.shape, images.dtype, ctx.windows)
        by_images = by_weight = None
        if ctx.needs_input_grad[0]:
            by_images = ctx.quickest(("by images", *about), ways_by_images(gradient, images, weight, ctx.windows))
        if ctx.needs_input_grad[1]:
            by_weight = ctx.quickest(("by weight", *about), ways_by_weight(gradient, images, weight, ctx.windows))
        return by_images, by_weight, None, None


def forward_ways(images: Tensor, weight: Tensor, windows: Windows) -> dict[str, Way]:
    """[n, M·O, H, W]."""
    ways: dict[str, Way] = {
        "grouped": lambda: _grouped(images, weight, windows),
        "product": lambda: _product(images, weight, windows),
    }
    if _keeps_size(windows):
        ways["turned"] = lambda: _grouped_by_images(images, images.shape[2:], turned(weight), windows)
    return ways


def ways_by_images(gradient: Tensor, images: Tensor, weight: Tensor, windows: Windows) -> dict[str, Way]:
    """[n, M·I, H, W]."""
    ways: dict[str, Way] = {"grouped": lambda: _grouped_by_images(gradient, images.shape[2:], weight, windows)}
    if _keeps_size(windows):
        ways["turned"] = lambda: _grouped(gradient, turned(weight), windows)
        ways["product"] = lambda: _product(gradient, turned(weight), windows)
    return ways


def ways_by_weight(gradient: Tensor, images: Tensor, weight: Tensor, windows: Windows) -> dict[str, Way]:
    """[M, O, I, k, k]."""
    return {
        "grouped": lambda: _grouped_by_weight(gradient, images, weight, windows),
        "product": lambda: _product_by_weight(gradient, images, weight, windows),
    }


def _keeps_size(windows: Windows) -> bool:
    return windows.stride == 1 and 2 * windows.padding == windows.side - 1


def _grouped(images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    return F.conv2d(images, _flat(weight), stride=windows.stride, padding=windows.padding, groups=windows.models)


def _grouped_by_images(gradient: Tensor, size: torch.Size, weight: Tensor, windows: Windows) -> Tensor:
    short = [
        whole - ((part - 1) * windows.stride - 2 * windows.padding + windows.side)
        for whole, part in zip(size, gradient.shape[2:], strict=True)
    ]
    return F.conv_transpose2d(gradient, _flat(weight), None, windows.stride, windows.padding, short, windows.models)


def _grouped_by_weight(gradient: Tensor, images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    about = [windows.stride] * 2, [windows.padding] * 2, [1, 1], False, [0, 0], windows.models
    flat = _flat(weight)
    found = torch.ops.aten.convolution_backward(gradient, images, flat, None, *about, [False, True, False])[1]
    by_weight: Tensor = found.unflatten(0, (windows.models, -1))
    return by_weight


def _product(images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    rows = neighbourhoods(images, windows)
    height, width = map(windows.over, images.shape[2:])
    out = images.new_empty(len(images), height, width, windows.models * weight.shape[1])
    by = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
    torch.bmm(rows, by, out=_pixels(out.permute(0, 3, 1, 2), windows.models))
    return out.permute(0, 3, 1, 2)


def _product_by_weight(gradient: Tensor, images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    pixels = neighbourhoods(gradient, Windows(windows.models, side=1, stride=1, padding=0), pixels_last=True)
    found = torch.bmm(pixels.mT, neighbourhoods(images, windows, pixels_last=True))
    outputs, inputs, side, _ = weight.shape[1:]
    return found.view(windows.models, outputs, side, side, inputs).permute(0, 1, 4, 2, 3)


def _pixels(images: Tensor, models: int) -> Tensor:
    """[n, M·C, H, W], channels last, as [M, n·H·W, C], in place."""
    pixels: Tensor = images.permute(0, 2, 3, 1).flatten(0, 2).unflatten(1, (models, -1)).transpose(0, 1)
    return pixels


def _flat(weight: Tensor) -> Tensor:
    """[M, O, I, k, k] as [M·O, I, k, k], channels last."""
    return weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
