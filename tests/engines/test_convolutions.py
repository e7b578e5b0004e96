"""Every way to a stack's convolutions gives what one model after another does, forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from coalface.engines import convolutions
from coalface.engines.convolutions import ConvolutionsOfMany, forward_ways, ways_by_images, ways_by_weight
from coalface.engines.quickest import Quickest
from coalface.engines.rearranged import Windows, neighbourhoods, turned

MODELS, IMAGES = 3, 2
SHAPES = {  # inputs, outputs, side, stride, padding, height, width
    "as large as before": (3, 4, 3, 1, 1, 6, 5),
    "halved": (3, 4, 3, 2, 1, 8, 8),
    "halved, an odd size": (4, 2, 3, 2, 1, 7, 7),
    "one pixel": (5, 2, 1, 1, 0, 4, 4),
    "one pixel of four": (5, 2, 1, 2, 0, 4, 4),
    "no border": (2, 3, 3, 1, 0, 5, 5),
    "wide": (2, 2, 5, 1, 2, 6, 6),
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return SHAPES[request.param]


def stacks(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Windows]:
    inputs, outputs, side, stride, padding, height, width = shape
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(MODELS, IMAGES, inputs, height, width, dtype=torch.float64, generator=generator)
    weight = torch.randn(MODELS, outputs, inputs, side, side, dtype=torch.float64, generator=generator)
    return images, weight, Windows(MODELS, side, stride, padding)


def one_after_another(images: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    pairs = zip(images, weight, strict=True)
    return torch.stack([F.conv2d(x, w, stride=windows.stride, padding=windows.padding) for x, w in pairs])


def abreast(images: Tensor) -> Tensor:
    return images.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)


def test_all_ways_are_one_model_after_another(shape: tuple[int, ...]) -> None:
    images, weight, windows = stacks(shape)
    images.requires_grad_()
    weight.requires_grad_()
    expected = one_after_another(images, weight, windows)
    gradient = torch.randn_like(expected)
    by_images, by_weight = torch.autograd.grad(expected, [images, weight], gradient)
    x, w, g = abreast(images.detach()), weight.detach(), abreast(gradient)
    for wanted, ways in (
        (abreast(expected.detach()), forward_ways(x, w, windows)),
        (abreast(by_images), ways_by_images(g, x, w, windows)),
        (by_weight, ways_by_weight(g, x, w, windows)),
    ):
        for name, way in ways.items():
            torch.testing.assert_close(way(), wanted, rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def test_under_vmap_with_a_bias(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    images, weight, windows = stacks(shape)
    bias = torch.randn(MODELS, weight.shape[1], dtype=torch.float64)
    taken: list[tuple[int, ...]] = []
    real = convolutions.convolution
    monkeypatch.setattr(convolutions, "convolution", lambda *given: taken.append(given[1].shape) or real(*given))  # type: ignore[func-returns-value]

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.conv2d(x, w, b, (windows.stride,) * 2, (windows.padding,) * 2, (1, 1), 1)

    held = [tensor.clone().requires_grad_() for tensor in (images, weight, bias)]
    with ConvolutionsOfMany(Quickest("cpu")):
        out = vmap(layer)(*held)
    assert taken == [weight.shape]
    expected = one_after_another(images, weight, windows) + bias[:, None, :, None, None]
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    gradient = torch.randn_like(out)
    found = torch.autograd.grad(out, held, gradient)
    plain = [tensor.clone().requires_grad_() for tensor in (images, weight, bias)]
    wanted = torch.autograd.grad(vmap(layer)(*plain), plain, gradient)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_others_are_left_to_vmap() -> None:
    """Weights that all models share, groups, and calls without a layer's arguments."""
    images, weight, _ = stacks(SHAPES["as large as before"])
    grouped = weight[:, :, :1]
    channels = images.shape[2]
    with ConvolutionsOfMany(Quickest("cpu")):
        torch.testing.assert_close(vmap(F.conv2d, (0, None))(images, weight[0])[0], F.conv2d(images[0], weight[0]))
        torch.testing.assert_close(vmap(F.conv2d)(images, weight)[1], F.conv2d(images[1], weight[1]))
        each = vmap(lambda x, w: F.conv2d(x, w.repeat(channels, 1, 1, 1), None, (1, 1), (0, 0), (1, 1), channels))
        torch.testing.assert_close(
            each(images, grouped)[2], F.conv2d(images[2], grouped[2].repeat(channels, 1, 1, 1), groups=channels)
        )


def test_what_a_pixel_looks_at() -> None:
    """An image of two models, one channel each: 3 × 3 windows over 2 × 2 pixels; outside there are zeros."""
    images = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])[None]
    rows = neighbourhoods(images.contiguous(memory_format=torch.channels_last), Windows(2, 3, 1, 1))
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
