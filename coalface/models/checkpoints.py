"""Weights in files: ours as safetensors, the public ones as they are published."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from coalface.models.net import Net, Weights

_WRAPPERS = ("module.", "backbone.")  # left on the names by data-parallel training and by training scripts
_CONTAINERS = ("state_dict", "model", "backbone")  # entries under which training scripts file the tensors
_SHOWN = 4  # names per line of an error


def save_weights(path: str | Path, weights: Weights) -> None:
    """Writes a safetensors file, or leaves what was there: the file appears whole or not at all."""
    path = Path(path)
    tensors = {**weights.parameters, **weights.statistics}
    aside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        # A clone, because safetensors refuses views that share memory.
        save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def load_weights(path: str | Path, net: Net) -> Weights:
    """The weights of `net` from a safetensors file or a PyTorch checkpoint (.pth, .pt), on the CPU, as float32.

    Takes our names, the public insightface and torchvision ones (the same), and SphereFace's (`conv1_1.weight`).
    Raises ValueError where the file is damaged, names or shapes do not fit the net, or a value is not finite.
    """
    path = Path(path)
    tensors = _own_names(_read(path), net)
    wanted = {**net.shapes.parameters, **net.shapes.statistics}
    _check_fit(tensors, wanted, f"{path.name} does not fit {net}")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{path.name}: {name} holds NaN or infinite values; the training that wrote it diverged")
    return Weights(
        {name: tensors[name].to(torch.float32) for name in net.shapes.parameters},
        {name: tensors[name].to(torch.float32) for name in net.shapes.statistics},
    )


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise _damaged(path, error) from error
    if path.suffix not in (".pth", ".pt"):
        raise ValueError(f"{path.name}: expected .safetensors, .pth or .pt")
    with path.open("rb") as file:  # a file that is not there, or closed to us, is not damaged
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"{path} holds more than tensors, and may run code when opened, or it is damaged; "
                "where you trust it, save its state_dict() alone and load that, or copy it again"
            ) from error
        except Exception as error:  # torch promises none: RuntimeError, EOFError, IndexError, OSError and others occur
            raise _damaged(path, error) from error
    for container in _CONTAINERS:
        if isinstance(content, Mapping) and isinstance(content.get(container), Mapping):
            content = content[container]
    named = isinstance(content, Mapping) and all(isinstance(name, str) for name in content)
    if not named or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise ValueError(f"{path.name} is not a state dict (a mapping of names to tensors)")
    return dict(content)


def _damaged(path: Path, error: Exception) -> ValueError:
    said = str(error) or type(error).__name__
    return ValueError(
        f"{path} cannot be read as weights: {said.splitlines()[0]}. Is it whole? Copy or download it again"
    )


def _own_names(tensors: Mapping[str, Tensor], net: Net) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        while name.startswith(_WRAPPERS):
            name = name.split(".", 1)[1]  # noqa: PLW2901
        if name.endswith("num_batches_tracked"):
            continue
        if name in named:
            raise ValueError(f"{name} occurs twice once {' and '.join(_WRAPPERS)} are taken off the names")
        named[name] = tensor
    if net.name.startswith("sphere") and "conv1_1.weight" in named:
        return _from_sphereface(named)
    return named


def _from_sphereface(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """conv2_1 halves stage 2, (conv2_2, conv2_3) are its first residual block, (conv2_4, conv2_5) its second …

    The embedding layer is fc5 where the file also holds the classifier, which is then fc6 and not ours; else it is fc6.
    """
    embed, classifier = ("fc5", "fc6") if "fc5.weight" in tensors else ("fc6", None)
    renamed = {}
    for name, tensor in tensors.items():
        layer, _, leaf = name.partition(".")
        if layer == classifier:
            continue
        match = re.fullmatch(r"(conv|relu)([1-4])_(\d+)", layer)
        if match:
            kind, stage, number = match[1], match[2], int(match[3])
            block, second = divmod(number - 2, 2)
            if number == 1:
                layer = f"layer{stage}.{0 if kind == 'conv' else 1}"
            else:
                layer = f"layer{stage}.{block + 2}.{'conv' if kind == 'conv' else 'prelu'}{second + 1}"
        renamed[f"{'fc' if layer == embed else layer}.{leaf}"] = tensor
    return renamed


def _check_fit(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], complaint: str) -> None:
    missing = sorted(wanted.keys() - given.keys())
    unexpected = sorted(given.keys() - wanted.keys())
    reshaped = [
        f"{name} is {tuple(given[name].shape)}, wanted {tuple(wanted[name].shape)}"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    lines = [
        f"{len(names)} {what}: {'; '.join(names[:_SHOWN])}{' …' if len(names) > _SHOWN else ''}"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
        if names
    ]
    if lines:
        raise ValueError("\n  ".join([f"{complaint}:", *lines]))
