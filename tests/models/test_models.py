from __future__ import annotations

import pytest
import torch
from torch import nn

from coalface.models import MODELS, build
from coalface.models.net import Net, Weights

# fedgpad_specific takes features beside images, and fedgpad gives more than a logit: tests/models/test_fedgpad.py
EMBEDDERS = [name for name in MODELS if not name.startswith("fedgpad")]


def net_at(name: str, size: int) -> Net:
    return Net(name) if name == "resnet18" else Net(name, size=size)


def count(name: str, **settings: object) -> int:
    return sum(tensor.numel() for tensor in Net(name, **settings).shapes.parameters.values())


def convolutions(name: str, **settings: object) -> int:
    with torch.device("meta"):
        return sum(isinstance(layer, nn.Conv2d) for layer in build(name, **settings).modules())


@pytest.mark.parametrize("name", MODELS)
def test_the_name_of_a_model_is_its_function(name: str) -> None:
    assert MODELS[name].__name__ == name


@pytest.mark.parametrize("name", EMBEDDERS)
def test_gradients_reach_every_parameter(name: str) -> None:
    net = net_at(name, 64)
    weights = net.fresh(seed=3)
    trained = {key: tensor.clone().requires_grad_() for key, tensor in weights.parameters.items()}
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    embeddings = net(Weights(trained, weights.statistics), images, batch_statistics=True)
    assert embeddings.shape == (2, net.embedding)
    assert embeddings.isfinite().all()
    # Weighed by position: the plain sum of a batch-normalised output does not depend on its input.
    (embeddings * torch.randn(2, net.embedding, generator=torch.Generator().manual_seed(1))).sum().backward()
    for key, tensor in trained.items():
        assert tensor.grad is not None and tensor.grad.isfinite().all(), key
        assert tensor.grad.abs().max() > 0, key


@pytest.mark.parametrize("size", [64, 112])
@pytest.mark.parametrize("name", EMBEDDERS)
def test_shapes_follow_the_image_size(name: str, size: int) -> None:
    net = net_at(name, size)
    assert net(net.shapes, torch.empty(3, 3, size, size, device="meta")).shape == (3, net.embedding)


@pytest.mark.parametrize("name", [name for name in EMBEDDERS if name != "resnet18"])
def test_embeddings_of_another_width_from_rectangular_images(name: str) -> None:
    net = Net(name, embedding=128, size=(112, 96))
    assert (net.embedding, net.size) == (128, (112, 96))
    assert net(net.shapes, torch.empty(2, 3, 112, 96, device="meta")).shape == (2, 128)


@pytest.mark.parametrize("name", ["feduv_cnn", "sphere20", "mobilefacenet"])
def test_fresh_weights_are_a_function_of_the_seed_alone(name: str) -> None:
    net = Net(name, size=32)
    before = torch.get_rng_state()
    one, same, other = net.fresh(1), net.fresh(1), net.fresh(2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(tensor, same.parameters[key]) for key, tensor in one.parameters.items())
    drawn = [key for key, tensor in one.parameters.items() if tensor.dim() >= 2]  # convolutions and linear layers
    assert len(drawn) > 5
    assert all(not torch.equal(one.parameters[key], other.parameters[key]) for key in drawn)


def test_feduv_cnn_counted_by_hand() -> None:
    convs = 9 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512 + 512 * 512) + (64 + 128 + 256 + 512 + 512)
    norms = 2 * (64 + 128 + 256 + 512 + 512)
    assert count("feduv_cnn", size=64) == convs + norms + (512 * 512 + 512)
    assert count("feduv_cnn", size=32) == convs + norms + (512 * 512 + 512)
    assert count("feduv_cnn", size=112) == convs + norms + (2 * 2 * 512 * 512 + 512)  # 112 → 56 → 28 → 14 → 7 → 2
    assert count("feduv_cnn", size=64, pools=(2, 2, 2, 2, 2)) == convs + norms + (2 * 2 * 512 * 512 + 512)


def test_feduv_cnn_looks_at_every_pixel_of_a_112_image() -> None:
    net = Net("feduv_cnn", size=112)
    images = torch.rand(1, 3, 112, 112, generator=torch.Generator().manual_seed(0)).requires_grad_()
    net(net.fresh(0), images).square().sum().backward()
    assert images.grad is not None
    assert images.grad[..., -8:, -8:].abs().max() > 0


@pytest.mark.parametrize(("settings", "words"), [({"size": 16}, "16 does not fit"), ({"pools": (2, 2)}, "5 pools")])
def test_feduv_cnn_refuses_what_does_not_fit(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build("feduv_cnn", **settings)


def test_sphere_networks_have_the_layers_in_their_names() -> None:
    assert convolutions("sphere20") == 20
    assert convolutions("sphere64") == 64
    assert convolutions("sphere64", blocks=(3, 7, 16, 3)) == 62  # FedFR's release
    assert count("sphere64") - count("sphere64", fc_bias=False) == 512


def test_sphere20_counted_by_hand() -> None:
    halvings = 9 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512) + (64 + 128 + 256 + 512)
    residual = 9 * 2 * (1 * 64**2 + 2 * 128**2 + 4 * 256**2 + 1 * 512**2)
    slopes = 3 * 64 + 5 * 128 + 9 * 256 + 3 * 512
    assert count("sphere20", size=(112, 96)) == halvings + residual + slopes + (512 * 7 * 6 * 512 + 512)


def test_sphere64_starts_with_a_signal_at_its_end() -> None:
    net = Net("sphere64", size=32)
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) / 2
    embeddings = net(net.fresh(0), images)
    assert 0.05 < embeddings.norm(dim=1).mean() < 50
    cosines = nn.functional.cosine_similarity(embeddings[:1], embeddings[1:])
    assert cosines.max() < 0.95  # different images stay different through 64 layers without normalisation


def test_published_parameter_counts() -> None:
    assert count("iresnet18") == 24_025_600
    assert round(count("iresnet50") / 1e6, 2) == 43.59
    assert count("resnet18", outputs=1000) == 11_689_512
    assert 0.98e6 < count("mobilefacenet", embedding=128) < 1.01e6  # the paper says 0.99 million
    assert count("mobilefacenet", embedding=512) - count("mobilefacenet", embedding=128) == 384 * (512 + 2)


def test_published_sizes_of_the_networks_of_fedfs() -> None:
    assert count("pocketnet", embedding=128) == 925_632  # PocketNetS-128; the abstract says 0.92 million
    assert count("pocketnet", embedding=128, channels=32, cells=9) == 1_686_656  # PocketNetM-128
    assert count("mobilenetv2", embedding=1000) == 3_504_872  # the ImageNet network, 3.5 million
    # Keras counts batch norm's statistics too: 4.07 million with a stem of stride 2, 4.09 with 1.
    for stride, millions in ((2, 4.07), (1, 4.09)):
        shapes = Net("ghostfacenet", stem_stride=stride).shapes
        numbers = [*shapes.parameters.values(), *shapes.statistics.values()]
        assert round(sum(tensor.numel() for tensor in numbers) / 1e6, 2) == millions


def test_pocketnet_counted_by_hand() -> None:
    """The tail alone: PReLU, widening, PReLU, a 7×7 weight per channel, the embedding, and three batch norms."""
    tail = 512 + 512 * 512 + 512 + 512 * 49 + 512 * 128 + 2 * (512 + 512 + 128)
    with torch.device("meta"):
        built = build("pocketnet")
    assert sum(p.numel() for name, p in built.named_parameters() if name.startswith("tail")) == tail
    assert count("pocketnet", embedding=256) - count("pocketnet", embedding=128) == 128 * (512 + 2)


def test_pocketnet_refuses_sizes_that_do_not_halve() -> None:
    with pytest.raises(ValueError, match="multiples of 16"):
        build("pocketnet", size=100)


def test_public_names_of_the_weights() -> None:
    arcface = Net("iresnet18").shapes
    assert {"conv1.weight", "prelu.weight", "layer1.0.downsample.1.bias", "layer4.1.bn3.weight", "fc.bias"} <= (
        arcface.parameters.keys()
    )
    assert {"bn1.running_mean", "layer2.0.bn2.running_var", "features.running_var"} <= arcface.statistics.keys()
    imagenet = Net("resnet18").shapes.parameters
    assert {"conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias", "fc.weight"} <= imagenet.keys()
    assert "layer1.0.downsample.0.weight" not in imagenet
    mobile = Net("mobilenetv2").shapes.parameters
    assert {"features.0.0.weight", "features.1.conv.1.weight", "features.2.conv.3.bias", "features.18.1.weight"} <= (
        mobile.keys()
    )
    assert "classifier.1.weight" in mobile


def test_resnet18_takes_any_channels_and_size() -> None:
    net = Net("resnet18", outputs=1, channels=6)
    assert (net.embedding, net.size) == (1, None)
    assert net(net.shapes, torch.empty(2, 6, 80, 48, device="meta")).shape == (2, 1)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no model 'resnet19'; the models are feduv_cnn, .*resnet18"):
        build("resnet19")
    with pytest.raises(ValueError, match="iresnet18 has no setting sise; its settings are embedding, size"):
        Net("iresnet18", sise=64)
    with pytest.raises(ValueError, match="size is 0"):
        build("sphere20", size=0)
