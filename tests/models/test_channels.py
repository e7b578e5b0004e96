"""To reorder channels that belong together changes nothing that a network says."""

from __future__ import annotations

import torch

from coalface.models.channels import reordered, resnet18_layers
from coalface.models.net import Net, Weights

LAYERS = resnet18_layers()


def shuffled(weights: Weights, seed: int) -> Weights:
    """The same network with the channels of every layer in another order."""
    generator = torch.Generator().manual_seed(seed)
    for layer in LAYERS:
        if layer.along:
            channels = len(weights.parameters[layer.parameters[0]])
            axes = tuple((name, 0) for name in layer.parameters + layer.statistics) + layer.along
            weights = reordered(weights, axes, torch.randperm(channels, generator=generator))
    return weights


def lived_in(net: Net, seed: int) -> Weights:
    """Weights whose batch norms are not all alike."""
    generator = torch.Generator().manual_seed(seed)
    fresh = net.fresh(seed)
    parameters = {k: v + 0.1 * torch.rand(v.shape, generator=generator) for k, v in fresh.parameters.items()}
    return Weights(parameters, {k: v + torch.rand(v.shape, generator=generator) for k, v in fresh.statistics.items()})


def test_eighteen_layers_hold_every_tensor_once() -> None:
    net = Net("resnet18", outputs=1)
    assert len(LAYERS) == 18
    names = [name for layer in LAYERS for name in layer.parameters + layer.statistics]
    assert len(names) == len(set(names))
    assert set(names) == net.shapes.parameters.keys() | net.shapes.statistics.keys()


def test_a_shuffled_network_says_the_same() -> None:
    net = Net("resnet18", outputs=1, width=4)
    weights = lived_in(net, 0)
    other = shuffled(weights, 1)
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(weights.parameters["conv1.weight"], other.parameters["conv1.weight"])
    torch.testing.assert_close(net(other, images), net(weights, images), rtol=1e-5, atol=1e-5)
