"""Layers of many models at once, where ``vmap`` itself would go a long way round."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from coalface.engines.convolutions import How, convolution
from coalface.engines.quickest import Choose
from coalface.engines.rearranged import Windows
from coalface.engines.streams import Each


class LayersOfMany(TorchFunctionMode):
    """While it is on, ``vmap`` takes convolutions by the way that is chosen, and frozen batch norm number by number."""

    def __init__(self, each: Each, choose: Choose) -> None:
        super().__init__()
        self._each, self._choose = each, choose

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        """Part of a mode: every call of torch comes by here."""
        named = named or {}
        if function is torch.conv2d and not named and _is_plain(*arguments):
            return self._convolution(*arguments)
        if function is F.batch_norm and not named["training"] and _of_many(arguments[0]):
            images, mean, variance = arguments
            return _frozen_norm(images, mean, variance, named["weight"], named["bias"], named["eps"])
        if function is torch.prelu and _of_many(arguments[0]):  # autocast does not get to see it
            images, slope = arguments
            return function(images, slope.to(images.dtype))
        return function(*arguments, **named)

    def _convolution(
        self,
        images: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
    ) -> Tensor:
        kind = images.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            images, weight = (tensor.to(torch.get_autocast_dtype(kind)) for tensor in (images, weight))
        how = How(Windows(weight.shape[-1], stride[0], padding[0]), groups, self._each)
        out: Tensor = _Stacked.apply(images, weight, how, self._choose)  # type: ignore[no-untyped-call]
        return out if bias is None else out + bias.to(out.dtype)[:, None, None]


def _of_many(tensor: Tensor) -> bool:
    batched: bool = torch._C._functorch.is_batchedtensor(tensor)
    return batched


def _is_plain(images: Tensor, weight: Tensor, *how: Any) -> bool:
    """A convolution as a layer calls it, of a stack's own weights, as square as most are."""
    if len(how) != 5 or not (_of_many(images) and _of_many(weight)):
        return False
    _, stride, padding, dilation, _ = how
    square = all(isinstance(pair, tuple) and len(set(pair)) == 1 for pair in (stride, padding, weight.shape[2:]))
    return square and dilation == (1, 1)


class _Stacked(torch.autograd.Function):
    """How ``vmap`` takes a convolution."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, how: How, choose: Choose) -> Any:
        """Never called: there is a stack, or it would not have come to this."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Part of an autograd function; the convolution below remembers what it needs."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, images: Tensor, weight: Tensor, how: How, choose: Choose) -> tuple[Tensor, int]:
        """Part of an autograd function."""
        return convolution(images.movedim(in_dims[0], 0), weight.movedim(in_dims[1], 0), how, choose), 0


def _frozen_norm(
    images: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """By running statistics: a factor and a shift for each channel. The library's wants all models' side by side."""
    factor = torch.rsqrt(variance + eps)
    if weight is not None:
        factor = factor * weight
    shift = -mean * factor
    if bias is not None:
        shift = shift + bias
    factor, shift = (leaf.view(-1, *[1] * (images.ndim - 2)) for leaf in (factor, shift))
    return torch.addcmul(shift, images, factor).to(images.dtype)
