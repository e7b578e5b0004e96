"""Table II of the FedGPAD paper, and the six channels."""

from __future__ import annotations

import colorsys

import pytest
import torch

from coalface.models.colour import hsv, rgb_hsv
from coalface.models.net import Net, Weights, scaled


def weights_of(conv: int, channels_in: int, channels_out: int) -> int:
    return conv * channels_in * channels_out + 2 * channels_out  # and a batch norm's scale and shift


def extractor() -> int:
    block = [(128, 196), (196, 128)]
    pairs = [(6, 64), (64, 128), *block, (128, 128), *block, (128, 128), *block, (128, 128), (128, 256), (256, 512)]
    return sum(weights_of(9, *pair) for pair in pairs)


def counted(name: str, part: str) -> int:
    net = Net(name)
    return sum(leaf.numel() for key, leaf in net.shapes.parameters.items() if key.startswith(part + "."))


def test_the_parts_have_the_sizes_of_table_2() -> None:
    assert counted("fedgpad", "invariant") == counted("fedgpad_specific", "specific") == extractor()
    assert counted("fedgpad", "depth") == weights_of(9, 384, 128) + weights_of(9, 128, 64) + weights_of(9, 64, 1)
    assert counted("fedgpad", "classifier") == 512 * 512 + 512 + 512 + 1
    assert counted("fedgpad_specific", "fill") == 512 * 512 * 4 * 4
    steps = [(512, 512), (512, 256), (256, 128), (128, 64), (64, 32)]
    assert counted("fedgpad_specific", "decoder") == sum(weights_of(16, *s) for s in steps) + 16 * 32 * 6 + 6


@pytest.mark.parametrize("size", [32, 64, 256])
def test_shapes(size: int) -> None:
    net, specific = Net("fedgpad", size=size), Net("fedgpad_specific", size=size)
    images = torch.empty(2, 3, size, size, device="meta")
    logits, features, depth = net.all_outputs(net.shapes, images)
    assert (logits.shape, features.shape, depth.shape) == ((2, 1), (2, 512), (2, 32, 32))
    assert net(net.shapes, images).shape == (2, net.embedding) == (2, 1)
    own, decoded = specific.all_outputs(specific.shapes, images, features)
    assert own.shape == features.shape and decoded.shape == (2, 6, size, size)


def test_gradients_reach_every_parameter() -> None:
    net, specific = Net("fedgpad", size=32, width=4), Net("fedgpad_specific", size=32, width=4)
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    held = [
        Weights({k: v.clone().requires_grad_() for k, v in fresh.parameters.items()}, fresh.statistics)
        for fresh in (net.fresh(0), specific.fresh(1))
    ]
    logits, features, depth = net.all_outputs(held[0], images, batch_statistics=True)
    _, decoded = specific.all_outputs(held[1], images, features, batch_statistics=True)
    spread = torch.linspace(0, 1, 4)[:, None]  # the plain sum of a batch-normalised output does not depend on its input
    ((logits * spread).sum() + (depth.flatten(1) * spread).sum() + (decoded.flatten(1) * spread).sum()).backward()
    for weights in held:
        assert all(leaf.grad is not None and leaf.grad.abs().max() > 0 for leaf in weights.parameters.values())


def test_a_size_that_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(ValueError, match="32, 64, 128 or 256 pixels, not 112×112"):
        Net("fedgpad", size=112)


def test_hsv_is_that_of_the_standard_library() -> None:
    colours = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    colours = torch.cat([colours, torch.eye(3), torch.zeros(1, 3), torch.full((1, 3), 0.5)])
    expected = torch.tensor([colorsys.rgb_to_hsv(*colour) for colour in colours.tolist()])
    torch.testing.assert_close(hsv(colours[:, :, None, None])[:, :, 0, 0], expected, rtol=0, atol=1e-5)


def test_six_channels_from_zero_to_one() -> None:
    images = torch.tensor([255, 0, 0], dtype=torch.uint8).reshape(1, 3, 1, 1)
    six = rgb_hsv(scaled(images)).flatten()
    torch.testing.assert_close(six, torch.tensor([1.0, 0, 0, 0, 1, 1]), rtol=0, atol=1e-6)
