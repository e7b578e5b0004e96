"""Every way to a stack's convolutions gives what one model after another does, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from coalface.engines.convolutions import (
    How,
    forward_ways,
    models_beside,
    ways_by_images,
    ways_by_weight,
)
from coalface.engines.layers import LayersOfMany
from coalface.engines.quickest import Quickest, Way
from coalface.engines.rearranged import Windows, neighbourhoods, turned
from coalface.engines.streams import in_turn

MODELS = 3
SHAPES = {  # inputs, outputs, side, stride, padding, height, width, groups
    "as large as before": (3, 4, 3, 1, 1, 6, 5, 1),
    "halved": (3, 4, 3, 2, 1, 8, 8, 1),
    "halved, an odd size": (4, 2, 3, 2, 1, 7, 7, 1),
    "one pixel": (5, 2, 1, 1, 0, 4, 4, 1),
    "one pixel of four": (5, 2, 1, 2, 0, 4, 4, 1),
    "no border": (2, 3, 3, 1, 0, 5, 5, 1),
    "wide": (2, 2, 5, 1, 2, 6, 6, 1),
    "channel by channel": (4, 4, 3, 2, 1, 6, 6, 4),
    "in groups": (4, 6, 3, 1, 1, 5, 5, 2),
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return SHAPES[request.param]


def stacks(shape: tuple[int, ...], number: int = 2) -> tuple[Tensor, Tensor, How]:
    inputs, outputs, side, stride, padding, height, width, groups = shape
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(MODELS, number, inputs, height, width, dtype=torch.float64, generator=generator)
    weight = torch.randn(MODELS, outputs, inputs // groups, side, side, dtype=torch.float64, generator=generator)
    return images, weight, How(Windows(side, stride, padding), groups, in_turn)


def one_after_another(images: Tensor, weight: Tensor, how: How) -> Tensor:
    about = None, how.windows.stride, how.windows.padding, 1, how.groups
    return torch.stack([F.conv2d(x, w, *about) for x, w in zip(images, weight, strict=True)])


@pytest.mark.parametrize("number", [1, 2])
def test_all_ways_are_one_model_after_another(shape: tuple[int, ...], number: int) -> None:
    images, weight, how = stacks(shape, number)
    images.requires_grad_()
    weight.requires_grad_()
    expected = one_after_another(images, weight, how)
    gradient = torch.randn_like(expected)
    by_images, by_weight = torch.autograd.grad(expected, [images, weight], gradient)
    x, w, g = models_beside(images.detach()), weight.detach(), models_beside(gradient)
    for wanted, ways in (
        (expected.detach(), forward_ways(x, w, how)),
        (by_images, ways_by_images(g, x, w, how)),
        (by_weight, ways_by_weight(g, x, w, how)),
    ):
        for name, way in ways.items():
            found = way()
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
            if wanted is not by_weight:
                assert models_beside(found).data_ptr() == found.data_ptr(), f"{name}: the next layer copies it"


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("way", ["apart", "grouped", "turned", "product"])
def test_under_vmap_with_a_bias(way: str, shape: tuple[int, ...], number: int) -> None:
    images, weight, how = stacks(shape, number)
    bias = torch.randn(MODELS, weight.shape[1], dtype=torch.float64)
    taken: list[Any] = []

    def choose(work: Any, ways: Mapping[str, Way]) -> Tensor:
        taken.append(work[0])
        return ways.get(way, ways["grouped"])()

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.conv2d(x, w, b, (how.windows.stride,) * 2, (how.windows.padding,) * 2, (1, 1), how.groups)

    held = [tensor.clone().requires_grad_() for tensor in (images, weight, bias)]
    with LayersOfMany(in_turn, choose):
        out = vmap(layer)(*held)
    expected = one_after_another(images, weight, how) + bias[:, None, :, None, None]
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    gradient = torch.randn_like(out)
    found = torch.autograd.grad(out, held, gradient)
    assert taken == ["forward", "by images", "by weight"]
    plain = [tensor.clone().requires_grad_() for tensor in (images, weight, bias)]
    wanted = torch.autograd.grad(vmap(layer)(*plain), plain, gradient)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_others_are_left_to_vmap() -> None:
    """Weights that all models share, and calls without a layer's arguments."""
    images, weight, _ = stacks(SHAPES["as large as before"])

    def never(*given: Any) -> Tensor:
        raise AssertionError("not a convolution of many models")

    with LayersOfMany(in_turn, never):
        torch.testing.assert_close(vmap(F.conv2d, (0, None))(images, weight[0])[0], F.conv2d(images[0], weight[0]))
        torch.testing.assert_close(vmap(F.conv2d)(images, weight)[1], F.conv2d(images[1], weight[1]))


def test_what_a_pixel_looks_at() -> None:
    """An image of each of two models, one channel each: 3 × 3 windows over 2 × 2 pixels; outside there are zeros."""
    images = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])[:, None, None]
    rows = neighbourhoods(models_beside(images), Windows(3, 1, 1))
    assert rows.shape == (2, 4, 9)
    assert rows[0, 0].tolist() == [0, 0, 0, 0, 1, 2, 0, 3, 4]
    assert rows[0, 3].tolist() == [1, 2, 0, 3, 4, 0, 0, 0, 0]
    assert rows[1, 0].tolist() == [0, 0, 0, 0, 5, 6, 0, 7, 8]


def test_turned_by_half_a_circle() -> None:
    weight = torch.arange(18.0).reshape(1, 1, 2, 3, 3)  # one output, two inputs
    out = turned(weight)
    assert out.shape == (1, 2, 1, 3, 3)
    assert out[0, 0, 0].flatten().tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert out[0, 1, 0].flatten().tolist() == [17, 16, 15, 14, 13, 12, 11, 10, 9]
    assert torch.equal(turned(out), weight)


def test_a_cpu_takes_the_first_way() -> None:
    calls: list[str] = []
    ways = {name: lambda n=name: calls.append(n) or torch.zeros(1) for name in ("first", "second")}  # type: ignore[misc, func-returns-value]
    Quickest("cpu")("work", ways)
    assert calls == ["first"]
