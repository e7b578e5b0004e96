from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from coalface.models.checkpoints import load_weights, save_weights
from coalface.models.net import Net, Weights


def same(one: Weights, two: Weights) -> bool:
    pairs = ((one.parameters, two.parameters), (one.statistics, two.statistics))
    return all(a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a) for a, b in pairs)


def test_round_trip_is_exact_and_leaves_one_file(tmp_path: Path) -> None:
    net = Net("mobilefacenet", size=32)
    weights = net.fresh(0)
    net(weights, torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)), batch_statistics=True)
    save_weights(tmp_path / "a.safetensors", weights)
    assert same(load_weights(tmp_path / "a.safetensors", net), weights)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, path = Net("feduv_cnn", size=32), tmp_path / "a.safetensors"
    save_weights(path, net.fresh(0))

    def half_written(tensors: object, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("coalface.models.checkpoints.save_file", half_written)
    with pytest.raises(OSError, match="disk full"):
        save_weights(path, net.fresh(1))
    assert same(load_weights(path, net), net.fresh(0))
    assert list(tmp_path.iterdir()) == [path]


def test_views_of_one_vector_can_be_saved(tmp_path: Path) -> None:
    flat = torch.arange(4.0)
    save_weights(tmp_path / "a.safetensors", Weights({"a": flat[:2], "b": flat[1:]}, {}))
    assert load_file(tmp_path / "a.safetensors")["b"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: {"state_dict": d, "epoch": 3}, lambda d: {"model": d}])
def test_public_arcface_checkpoint(tmp_path: Path, wrap: object) -> None:
    assert callable(wrap)
    net = Net("iresnet18", size=32)
    weights = net.fresh(0)
    public = {f"module.backbone.{name}": tensor for name, tensor in (weights.parameters | weights.statistics).items()}
    public["module.backbone.bn1.num_batches_tracked"] = torch.tensor(7)
    torch.save(wrap(public), tmp_path / "a.pth")
    assert same(load_weights(tmp_path / "a.pth", net), weights)


def sphereface_names(net: Net, weights: Weights, embed: str) -> dict[str, torch.Tensor]:
    """Our weights under SphereFace's names, written out independently of the loader: convolution by convolution."""
    public = {}
    for stage, blocks in enumerate(net.settings["blocks"], start=1):
        layers = [("0", "1")]
        for block in range(blocks):
            layers += [(f"{block + 2}.conv1", f"{block + 2}.prelu1"), (f"{block + 2}.conv2", f"{block + 2}.prelu2")]
        for number, (conv, prelu) in enumerate(layers, start=1):
            for leaf in ("weight", "bias"):
                own = f"layer{stage}.{conv}.{leaf}"
                if own in weights.parameters:
                    public[f"conv{stage}_{number}.{leaf}"] = weights.parameters[own]
            public[f"relu{stage}_{number}.weight"] = weights.parameters[f"layer{stage}.{prelu}.weight"]
    return public | {f"{embed}.{leaf}": weights.parameters[f"fc.{leaf}"] for leaf in ("weight", "bias")}


@pytest.mark.parametrize("residual_bias", [True, False])
def test_sphereface_names(tmp_path: Path, residual_bias: bool) -> None:
    net = Net("sphere20", size=(32, 16), residual_bias=residual_bias)
    weights = net.fresh(0)
    public = sphereface_names(net, weights, "fc6")
    assert {"conv1_3.weight", "conv2_5.weight", "conv3_9.weight", "relu4_3.weight"} <= public.keys()
    torch.save(public, tmp_path / "a.pth")
    assert same(load_weights(tmp_path / "a.pth", net), weights)
    # Where the embedding is fc5, fc6 is the classifier of the training set.
    torch.save(sphereface_names(net, weights, "fc5") | {"fc6.weight": torch.zeros(512, 10574)}, tmp_path / "b.pth")
    assert same(load_weights(tmp_path / "b.pth", net), weights)


def test_a_misfit_is_described_once(tmp_path: Path) -> None:
    small, large = Net("iresnet18", size=32), Net("iresnet18", size=64)
    weights = small.fresh(0)
    parameters = {name: tensor for name, tensor in weights.parameters.items() if not name.startswith("layer4.1.")}
    parameters["head.weight"] = torch.zeros(2)
    save_weights(tmp_path / "a.safetensors", Weights(parameters, weights.statistics))
    with pytest.raises(ValueError) as caught:
        load_weights(tmp_path / "a.safetensors", large)
    assert str(caught.value).splitlines() == [
        "a.safetensors does not fit iresnet18(embedding=512, size=64):",
        "  9 missing: layer4.1.bn1.bias; layer4.1.bn1.weight; layer4.1.bn2.bias; layer4.1.bn2.weight …",
        "  1 unexpected: head.weight",
        "  1 of another shape: fc.weight is (512, 2048), wanted (512, 8192)",
    ]


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    net = Net("feduv_cnn", size=32)
    weights = net.fresh(0)
    weights.parameters["fc.bias"][3] = float("nan")
    save_weights(tmp_path / "a.safetensors", weights)
    with pytest.raises(ValueError, match=r"a.safetensors: fc.bias holds NaN"):
        load_weights(tmp_path / "a.safetensors", net)


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    net = Net("feduv_cnn", size=32)
    weights = net.fresh(0).map(torch.Tensor.half)
    save_weights(tmp_path / "a.safetensors", weights)
    assert same(load_weights(tmp_path / "a.safetensors", net), weights.map(torch.Tensor.float))


def test_files_that_are_not_weights_are_refused(tmp_path: Path) -> None:
    net = Net("feduv_cnn", size=32)
    torch.save({"state_dict": {"fc.weight": 3}}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a.pth is not a state dict"):
        load_weights(tmp_path / "a.pth", net)
    torch.save(Path, tmp_path / "b.pt")
    with pytest.raises(ValueError, match=r"b.pt holds more than tensors"):
        load_weights(tmp_path / "b.pt", net)
    with pytest.raises(ValueError, match=r"c.bin: expected .safetensors, .pth or .pt"):
        load_weights(tmp_path / "c.bin", net)


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, suffix: str) -> None:
    """Cut anywhere; torch and safetensors raise half a dozen kinds of errors by where."""
    net, path = Net("feduv_cnn_small", size=32), tmp_path / f"a.{suffix}"
    weights = net.fresh(0)
    if suffix == "pth":
        torch.save(weights.parameters | weights.statistics, path)
    else:
        save_weights(path, weights)
    whole = path.read_bytes()
    for length in (0, 1, 7, 20, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"{path}.*again"):
            load_weights(path, net)
    path.write_bytes(b"\x80\x02." + whole[3:])  # a pickle that ends at once: an IndexError inside torch
    with pytest.raises(ValueError, match=rf"{path}.*again"):
        load_weights(path, net)


def test_a_file_that_is_not_there_is_not_damaged(tmp_path: Path) -> None:
    for suffix in ("pth", "safetensors"):
        with pytest.raises(FileNotFoundError):
            load_weights(tmp_path / f"none.{suffix}", Net("feduv_cnn_small", size=32))


def test_tensors_without_names_are_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a.pth is not a state dict"):
        load_weights(tmp_path / "a.pth", Net("feduv_cnn_small", size=32))
