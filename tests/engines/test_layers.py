"""Layers of many models are what each has on its own, forward and backward. Convolutions: their own tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from coalface.engines.convolutions import models_beside
from coalface.engines.layers import LayersOfMany
from coalface.engines.quickest import first_way
from coalface.engines.streams import in_turn
from coalface.models import MODELS
from coalface.models.net import Net, Weights

MODELS_OF, CHANNELS = 3, 4


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, CHANNELS, 5, 5), (2, CHANNELS)], ids=["images", "features"])
def test_frozen_norm(shape: tuple[int, ...], affine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)

    def noise(*sides: int) -> Tensor:
        return torch.randn(MODELS_OF, *sides, generator=generator, dtype=torch.float64)

    given = [noise(*shape), noise(CHANNELS), noise(CHANNELS).exp()]
    given += [noise(CHANNELS), noise(CHANNELS)] if affine else []

    def norm(*one: Tensor) -> Tensor:
        return F.batch_norm(*one, training=False, eps=1e-3)

    learnt = [number for number in range(len(given)) if number not in (1, 2)]  # not the running statistics
    held = [tensor.clone().requires_grad_(number in learnt) for number, tensor in enumerate(given)]
    plain = [tensor.clone().requires_grad_(number in learnt) for number, tensor in enumerate(given)]
    wanted = torch.stack([norm(*one) for one in zip(*plain, strict=True)])

    def never(*given: Any) -> Tensor:
        raise AssertionError("the library's")

    with LayersOfMany(in_turn, first_way), monkeypatch.context() as patched:
        patched.setattr(torch, "batch_norm", never)
        found = vmap(norm)(*held)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    gradient = torch.randn_like(wanted)
    ours = torch.autograd.grad(found, [held[number] for number in learnt], gradient)
    theirs = torch.autograd.grad(wanted, [plain[number] for number in learnt], gradient)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


LAYERS = {
    "group norm": nn.GroupNorm(2, CHANNELS),
    "pool": nn.MaxPool2d(2, ceil_mode=True),
    "pool, wide": nn.MaxPool2d(3, 1, 1),
}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_as_of_one_network(name: str, beside: bool, number: int) -> None:
    """However the images lie in memory; a pool makes them lie as convolutions want them."""
    generator = torch.Generator().manual_seed(0)
    layer = LAYERS[name]
    images = torch.randn(MODELS_OF, number, CHANNELS, 5, 5, generator=generator, dtype=torch.float64)
    given = {"images": models_beside(images) if beside else images}
    for leaf, parameter in layer.named_parameters():
        given[leaf] = torch.randn(MODELS_OF, *parameter.shape, generator=generator, dtype=torch.float64)

    def one(images: Tensor, own: dict[str, Tensor]) -> Tensor:
        out: Tensor = functional_call(layer, own, (images,))
        return out

    plain = {leaf: tensor.clone().requires_grad_() for leaf, tensor in given.items()}
    apart = ({leaf: tensor[model] for leaf, tensor in plain.items()} for model in range(MODELS_OF))
    wanted = torch.stack([one(own.pop("images"), own) for own in apart])
    held = {leaf: tensor.requires_grad_() for leaf, tensor in given.items()}
    own = {leaf: tensor for leaf, tensor in held.items() if leaf != "images"}
    with LayersOfMany(in_turn, first_way):
        found = vmap(one)(held["images"], own)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    if not own:
        assert models_beside(found).data_ptr() == found.data_ptr()
    gradient = torch.randn_like(wanted)
    ours = torch.autograd.grad(found, list(held.values()), gradient)
    theirs = torch.autograd.grad(wanted, list(plain.values()), gradient)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_in_bfloat16() -> None:
    """Weights stay float32, and so do their gradients."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU(4), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 2)
    ).eval()
    images = torch.randn(MODELS_OF, 2, 3, 5, 5)
    weights = {name: torch.stack([leaf] * MODELS_OF).requires_grad_() for name, leaf in net.named_parameters()}

    def pass_(own: dict[str, Tensor], images: Tensor) -> Tensor:
        out: Tensor = functional_call(net, own, (images,))
        return out

    with torch.autocast("cpu", torch.bfloat16):
        wanted = net(images[1])
        with LayersOfMany(in_turn, first_way):
            found = vmap(pass_)(weights, images)
    torch.testing.assert_close(found[1].float(), wanted.float(), rtol=0, atol=2e-2)
    gradients = torch.autograd.grad(found.float().sum(), list(weights.values()))
    assert all(leaf.dtype == torch.float32 and leaf.isfinite().all() for leaf in gradients)


@pytest.mark.parametrize("way", ["apart", "product"])
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"fedgpad_specific"}))  # which takes more than images
def test_vmap_takes_every_network_as_a_gpu_would(name: str, way: str) -> None:
    """Without a number: a tensor without content goes the way of a GPU's, where a CPU's has kernels of its own."""
    net = Net(name)
    size = net.size or (64, 64)
    flat = {n: leaf.new_empty(MODELS_OF, *leaf.shape).requires_grad_() for n, leaf in net.shapes.parameters.items()}
    fixed = {n: leaf.new_empty(MODELS_OF, *leaf.shape) for n, leaf in net.shapes.statistics.items()}
    images = torch.empty(MODELS_OF, 2, 3, *size, device="meta")
    with LayersOfMany(in_turn, lambda work, ways: ways.get(way, ways["apart"])()):
        out = vmap(lambda own, still, x: net(Weights(own, still), x))(flat, fixed, images)
    assert out.shape == (MODELS_OF, 2, net.embedding)
    found = torch.autograd.grad(out.sum(), list(flat.values()), allow_unused=True)
    assert all(one is None or one.shape == leaf.shape for one, leaf in zip(found, flat.values(), strict=True))
