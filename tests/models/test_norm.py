"""Batch norm of one model and of a stack of them."""

from __future__ import annotations

import torch
from torch.func import functional_call, vmap

from coalface.models.norm import BatchNorm2d


def layer() -> BatchNorm2d:
    norm = BatchNorm2d(2, eps=0.0).eval()
    norm.running_mean = torch.tensor([1.0, 0.0])
    norm.running_var = torch.tensor([4.0, 1.0])
    return norm


def test_by_running_statistics_by_hand() -> None:
    images = torch.tensor([[[[5.0]], [[3.0]]]])  # one image of one pixel
    assert layer()(images).flatten().tolist() == [2.0, 3.0]  # (5 − 1) / 2, (3 − 0) / 1


def test_a_stack_of_models_is_each_of_them() -> None:
    """Maps of one pixel, whose strides do not say which axis comes last, and of several."""
    norm, generator = layer(), torch.Generator().manual_seed(0)
    for shape in ((3, 2, 1, 1), (3, 2, 4, 5)):
        images = torch.randn(2, *shape, generator=generator)
        for laid_out in (images, images.to(memory_format=torch.channels_last_3d)):
            scales = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
            stacked = vmap(lambda scale, x: functional_call(norm, {"weight": scale}, (x,)))(scales, laid_out)
            for model in range(2):
                alone = functional_call(norm, {"weight": scales[model]}, (images[model],))
                assert torch.allclose(stacked[model], alone, atol=1e-6)
                assert stacked[model].shape == images[model].shape
