from __future__ import annotations

import pickle

import pytest
import torch
from torch.func import functional_call, grad, vmap

from coalface.models.net import Net, Weights, scaled


def pictures(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def stacked(one: Weights, two: Weights) -> Weights:
    return Weights(
        {name: torch.stack([one.parameters[name], two.parameters[name]]) for name in one.parameters},
        {name: torch.stack([one.statistics[name], two.statistics[name]]) for name in one.statistics},
    )


def close(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal up to rounding: measured by the largest entry, since kernels that sum in another order round all alike."""
    return bool((one - two).abs().max() <= 1e-4 * two.abs().max())


def test_pixels_are_scaled_once() -> None:
    assert scaled(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-127.5 / 128, 127.5 / 128]
    net = Net("feduv_cnn", size=32)
    weights, images = net.fresh(0), pictures(2, 3, 32, 32)
    assert torch.equal(net(weights, images), net(weights, (images.float() - 127.5) / 128))


def test_weights_may_have_another_precision() -> None:
    net = Net("feduv_cnn", size=32)
    weights, images = net.fresh(0), pictures(2, 3, 32, 32)
    double = net(weights.map(torch.Tensor.double), images)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), net(weights, images))


@pytest.mark.parametrize("name", ["feduv_cnn", "sphere20", "mobilefacenet"])
def test_stacked_weights_give_what_each_gives(name: str) -> None:
    net = Net(name, size=32)
    one, two = net.fresh(1), net.fresh(2)
    images = pictures(2, 3, 3, 32, 32)
    together = vmap(net)(stacked(one, two), images)
    assert close(together[0], net(one, images[0]))
    assert close(together[1], net(two, images[1]))
    assert not close(together[0], together[1])


@pytest.mark.parametrize("name", ["feduv_cnn", "sphere20"])
def test_stacked_gradients_are_those_of_each(name: str) -> None:
    net = Net(name, size=32)
    one, two = (net.fresh(seed).map(torch.Tensor.double) for seed in (1, 2))  # a stack has another layout in memory
    images = pictures(2, 2, 3, 32, 32)

    def slope(weights: Weights, images: torch.Tensor) -> Weights:
        result: Weights = grad(lambda w: net(w, images).square().mean())(weights)
        return result

    together = vmap(slope)(stacked(one, two), images)
    trained = {name: tensor.clone().requires_grad_() for name, tensor in two.parameters.items()}
    net(Weights(trained, {}), images[1]).square().mean().backward()
    for key, tensor in trained.items():
        assert tensor.grad is not None and close(together.parameters[key][1], tensor.grad), key


def test_batch_statistics_move_the_running_ones_by_a_tenth() -> None:
    net = Net("resnet18")
    weights, images = net.fresh(0), pictures(4, 3, 32, 32)
    mean = weights.statistics["bn1.running_mean"]
    first = torch.nn.functional.conv2d(scaled(images), weights.parameters["conv1.weight"], stride=2, padding=3)
    net(weights, images, batch_statistics=True)
    assert weights.statistics["bn1.running_mean"] is mean  # in place
    torch.testing.assert_close(mean, 0.1 * first.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(
        weights.statistics["bn1.running_var"], 0.9 + 0.1 * first.transpose(0, 1).flatten(1).var(dim=1)
    )


def test_running_statistics_are_used_and_left_alone() -> None:
    net = Net("resnet18")
    weights, images = net.fresh(0), pictures(4, 3, 32, 32)
    before = weights.map(torch.clone)
    embeddings = net(weights, images)
    assert all(torch.equal(tensor, before.statistics[name]) for name, tensor in weights.statistics.items())
    # One image gives the same alone as among others, only because the batch does not enter.
    torch.testing.assert_close(net(weights, images[:1]), embeddings[:1])
    other = net(before, images, batch_statistics=True)
    assert not torch.allclose(other, embeddings)
    assert torch.equal(net(weights, images), embeddings)  # no trace of the training call


def test_matches_the_module_itself() -> None:
    net = Net("mobilefacenet", size=32)
    weights, images = net.fresh(0), pictures(4, 3, 32, 32)
    module = net.module(weights)
    assert module.get_parameter("embed.0.weight").data_ptr() == weights.parameters["embed.0.weight"].data_ptr()
    module.to(memory_format=torch.channels_last)  # as a CPU is fastest with it
    assert torch.equal(net(weights, images), module(scaled(images)))
    trained = weights.map(torch.clone)
    assert torch.equal(net(trained, images, batch_statistics=True), module.train()(scaled(images)))
    for name, tensor in module.named_buffers():
        assert torch.equal(tensor, trained.statistics[name]), name


@pytest.mark.parametrize("name", ["feduv_cnn_small", "mobilefacenet", "sphere20"])
def test_the_layout_in_memory_changes_nothing_but_the_order_of_sums(name: str) -> None:
    """A CPU has channels last for the first two; their weights and gradients stay as everybody else knows them."""
    net = Net(name, size=32)
    weights, images = net.fresh(0).map(torch.Tensor.double), pictures(3, 3, 32, 32)
    learnt = {key: leaf.requires_grad_() for key, leaf in weights.parameters.items()}
    plain = functional_call(net.module(weights), (learnt, weights.statistics), (scaled(images, torch.float64),))
    ours = net(Weights(learnt, weights.statistics), images)
    assert close(ours, plain)
    slopes = (torch.autograd.grad(out.square().sum(), list(learnt.values())) for out in (ours, plain))
    assert all(close(one, two) for one, two in zip(*slopes, strict=True))
    assert all(leaf.is_contiguous() for leaf in weights.parameters.values())


def test_clients_that_share_weights_are_one_batch_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net("feduv_cnn", size=32)
    weights, images = net.fresh(0).map(lambda leaf: leaf.requires_grad_()), pictures(3, 2, 3, 32, 32)
    batches: list[torch.Size] = []
    run = net._run
    monkeypatch.setattr(net, "_run", lambda module, w, flat: (batches.append(flat.shape), run(module, w, flat))[1])
    together = vmap(lambda mine: net(weights, mine))(images)
    apart = torch.stack([net(weights, mine) for mine in images])
    assert batches == [torch.Size([6, 3, 32, 32]), *[torch.Size([2, 3, 32, 32])] * 3]
    assert close(together, apart)
    leaves = list(weights.parameters.values())
    slopes = (torch.autograd.grad(out.square().sum(), leaves) for out in (together, apart))
    assert all(close(one, two) for one, two in zip(*slopes, strict=True))


def test_gradients_of_each_client_at_shared_weights() -> None:
    net = Net("feduv_cnn", size=32)
    weights, images = net.fresh(0), pictures(2, 2, 3, 32, 32)
    slope = grad(lambda w, mine: net(w, mine).square().sum())
    together, apart = vmap(slope, in_dims=(None, 0))(weights, images), slope(weights, images[1])
    assert all(close(together.parameters[name][1], leaf) for name, leaf in apart.parameters.items())


def test_batch_statistics_under_grad_and_vmap() -> None:
    net = Net("mobilefacenet", size=32)
    one, two = (net.fresh(seed).map(torch.Tensor.double) for seed in (1, 2))
    images = pictures(2, 3, 3, 32, 32)
    both = stacked(one, two)
    together = vmap(lambda w, x: net(w, x, batch_statistics=True))(both, images)
    assert close(together[1], net(two, images[1], batch_statistics=True))
    for name, tensor in two.statistics.items():
        # Some of these means are zero but for rounding, so they are compared by an absolute measure.
        torch.testing.assert_close(both.statistics[name][1], tensor, rtol=1e-4, atol=1e-5, msg=name)
    before = one.map(torch.clone)
    grad(lambda p: net(Weights(p, one.statistics), images[0], batch_statistics=True).mean())(one.parameters)
    name = "stem.0.1.running_mean"
    assert not torch.equal(one.statistics[name], before.statistics[name])


def test_one_image_has_no_batch_statistics() -> None:
    net = Net("resnet18")
    with pytest.raises(ValueError, match=r"resnet18 cannot take batch statistics from 1 image"):
        net(net.fresh(0), pictures(1, 3, 32, 32), batch_statistics=True)
    plain = Net("feduv_cnn", size=32)  # has none to take
    assert plain(plain.fresh(0), pictures(1, 3, 32, 32), batch_statistics=True).shape == (1, 512)


def test_nothing_but_floats_and_no_second_copy() -> None:
    net = Net("resnet18")
    weights = net.fresh(0)
    assert all(tensor.is_floating_point() for tensor in (*weights.parameters.values(), *weights.statistics.values()))
    assert not any("num_batches_tracked" in name for name in weights.statistics)
    assert not any(tensor.requires_grad for tensor in weights.parameters.values())
    assert len(pickle.dumps(net)) < 100_000  # 11 million weights would be 44 MB
    again = pickle.loads(pickle.dumps(net))  # noqa: S301
    images = pictures(2, 3, 32, 32)
    assert torch.equal(again(weights, images), net(weights, images))


def test_foreign_weights_and_images_are_refused() -> None:
    net, other = Net("feduv_cnn", size=32), Net("sphere20", size=32)
    weights = net.fresh(0)
    with pytest.raises(ValueError, match=r"not the weights of sphere20\(embedding=512, size=32.*names differ"):
        other(weights, pictures(2, 3, 32, 32))
    with pytest.raises(
        ValueError, match=r"images are \(2, 3, 64, 64\), but feduv_cnn.* takes height and width \(32, 32\)"
    ):
        net(weights, pictures(2, 3, 64, 64))
