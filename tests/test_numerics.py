from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.func import vmap

from coalface.models.net import Net
from coalface.models.prelu import PReLU
from coalface.numerics import Numerics, channels_last


def test_a_cpu_computes_the_same_whatever_a_gpu_would() -> None:
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    nets = [Net("feduv_cnn_small", Numerics(precision, last)) for precision, last in (("fp32", False), ("bf16", True))]  # type: ignore[arg-type]
    one, two = (net(net.fresh(0), images) for net in nets)
    assert torch.equal(one, two)


def test_convolutions_are_laid_out_channels_last_and_nothing_else_is() -> None:
    weights = {"conv": torch.rand(4, 3, 5, 5), "fc": torch.rand(2, 3)}
    laid = channels_last(weights)
    assert laid["conv"].stride() == (75, 1, 15, 3) and torch.equal(laid["conv"], weights["conv"])
    assert laid["fc"] is weights["fc"]


def test_channels_last_is_a_setting_on_a_gpu_and_the_networks_own_on_a_cpu() -> None:
    for name, on_cpu in (("feduv_cnn_small", True), ("sphere20", False)):
        for setting in (True, False):
            net = Net(name, Numerics(channels_last=setting))
            assert (net.channels_last_on("cuda"), net.channels_last_on("cpu")) == (setting, on_cpu)


def test_a_stack_of_models_keeps_its_layout() -> None:
    stack = torch.rand(6, 4, 3, 5, 5)
    assert torch.equal(vmap(lambda w: channels_last({"conv": w})["conv"])(stack), stack)


@pytest.fixture
def put_back() -> Iterator[None]:
    """What a test tells torch is forgotten after it."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, cudnn.benchmark, matmul.allow_tf32
    yield
    cudnn.allow_tf32, cudnn.benchmark, matmul.allow_tf32 = before


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True), ("bf16", True)])
def test_torch_is_told(precision: str, allowed: bool) -> None:
    Numerics(precision, autotune=False).switch_on()  # type: ignore[arg-type]
    assert torch.backends.cudnn.allow_tf32 is allowed and torch.backends.cuda.matmul.allow_tf32 is allowed
    assert not torch.backends.cudnn.benchmark


def test_prelu_takes_images_of_another_precision() -> None:
    x = torch.tensor([[-4.0, 2.0]], dtype=torch.bfloat16)
    assert PReLU(2)(x).tolist() == [[-1.0, 2.0]]  # its weight starts at a quarter
