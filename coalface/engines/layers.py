"""Layers of many models at once, where ``vmap`` itself would go a long way round."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from coalface.engines.convolutions import How, as_one, convolution, stack_of
from coalface.engines.quickest import Choose
from coalface.engines.rearranged import Windows
from coalface.engines.streams import Each


class LayersOfMany(TorchFunctionMode):
    """While it is on, ``vmap`` takes these layers for all models at once."""

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
        if function is F.group_norm and _of_many(arguments[0], named["weight"], named["bias"]):
            images, groups = arguments
            run = partial(_group_norm, groups=groups, eps=named["eps"])
            return _AsOne.apply(run, images, named["weight"], named["bias"])  # type: ignore[no-untyped-call]
        if function is F.max_pool2d and not named["return_indices"] and _of_many(arguments[0]):
            images, window = arguments
            return _AsOne.apply(partial(_max_pool, window=window, named=named), images)  # type: ignore[no-untyped-call]
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
        run = partial(convolution, how=how, choose=self._choose)
        out: Tensor = _AsOne.apply(run, images, weight)  # type: ignore[no-untyped-call]
        return out if bias is None else out + bias.to(out.dtype)[:, None, None]


def _of_many(*tensors: Tensor | None) -> bool:
    return all(tensor is not None and torch._C._functorch.is_batchedtensor(tensor) for tensor in tensors)


def _is_plain(images: Tensor, weight: Tensor, *how: Any) -> bool:
    """A convolution as a layer calls it, of a stack's own weights, as square as most are."""
    if len(how) != 5 or not _of_many(images, weight):
        return False
    _, stride, padding, dilation, _ = how
    square = all(isinstance(pair, tuple) and len(set(pair)) == 1 for pair in (stride, padding, weight.shape[2:]))
    return square and dilation == (1, 1)


class _AsOne(torch.autograd.Function):
    """How ``vmap`` takes a layer: a function of the stacks, models first."""

    @staticmethod
    def forward(run: Callable[..., Tensor], *stacks: Tensor) -> Any:
        """Never called: there is a stack, or it would not have come to this."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Part of an autograd function; what runs remembers for itself what it needs."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, run: Callable[..., Tensor], *stacks: Tensor) -> tuple[Tensor, int]:
        """Part of an autograd function."""
        return run(*(stack.movedim(place, 0) for stack, place in zip(stacks, in_dims[1:], strict=True))), 0


def _group_norm(images: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    """Of [M, n, C, H, W]: all models' groups are groups of the channels of one."""
    models = len(images)
    channels = images.to(weight.dtype).transpose(0, 1).flatten(1, 2)  # under autocast as without
    return stack_of(F.group_norm(channels, models * groups, weight.flatten(), bias.flatten(), eps), models)


def _max_pool(images: Tensor, window: Any, named: dict[str, Any]) -> Tensor:
    """Of [M, n, C, H, W], which lie as convolutions leave them: `vmap` would copy them."""
    return stack_of(F.max_pool2d(as_one(images), window, **named), len(images))


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
