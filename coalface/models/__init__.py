"""The networks. Each is a function that returns a module; its name in the table is the function's name.

A network takes float images [n, 3, height, width], roughly in [-1, 1], and returns raw embeddings [n, embedding]:
whoever compares them normalises them. A detector of attacks returns one number, the logit of "live".
Training and evaluation go through `net.Net`, which keeps no weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from coalface.models.fedgpad import fedgpad, fedgpad_relief, fedgpad_specific
from coalface.models.feduv_cnn import feduv_cnn, feduv_cnn_small
from coalface.models.ghostfacenet import ghostfacenet
from coalface.models.iresnet import iresnet18, iresnet50
from coalface.models.mobilefacenet import mobilefacenet
from coalface.models.mobilenetv2 import mobilenetv2
from coalface.models.pocketnet import pocketnet
from coalface.models.resnet import resnet18
from coalface.models.sphere import sphere20, sphere64

MODELS: dict[str, Callable[..., nn.Module]] = {
    "feduv_cnn": feduv_cnn,
    "feduv_cnn_small": feduv_cnn_small,
    "sphere20": sphere20,
    "sphere64": sphere64,
    "mobilefacenet": mobilefacenet,
    "mobilenetv2": mobilenetv2,
    "pocketnet": pocketnet,
    "ghostfacenet": ghostfacenet,
    "iresnet18": iresnet18,
    "iresnet50": iresnet50,
    "resnet18": resnet18,
    "fedgpad": fedgpad,
    "fedgpad_specific": fedgpad_specific,
    "fedgpad_relief": fedgpad_relief,
}

DETECTORS = ("resnet18", "fedgpad", "fedgpad_relief")  # fedgpad_specific is no detector, but a part that stays

# On a CPU these are faster with an image's channels side by side in memory: they take maxima over windows, or go
# channel by channel. Plain residual networks are slower so (benchmarks/layouts.py). FedGPAD's would gain as well, but
# batch statistics and Adam make so much of a rounding error that what is recorded of them would not be met any more.
CHANNELS_LAST_ON_CPU = frozenset(
    {"feduv_cnn", "feduv_cnn_small", "mobilefacenet", "mobilenetv2", "pocketnet", "ghostfacenet"}
)


def networks(world: str) -> list[str]:
    """The networks for "faces", of which each has an embedding, or for "recordings", which end in one number."""
    if world == "recordings":
        return list(DETECTORS)
    return [name for name, network in MODELS.items() if "embedding" in inspect.signature(network).parameters]


def complete_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a model, the defaults included; ValueError for a model or a setting that does not exist."""
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; the models are {', '.join(MODELS)}")
    known = {key: parameter.default for key, parameter in inspect.signature(MODELS[name]).parameters.items()}
    unknown = sorted(settings.keys() - known.keys())
    if unknown:
        raise ValueError(f"{name} has no setting {', '.join(unknown)}; its settings are {', '.join(known)}")
    return {**known, **settings}


def build(name: str, **settings: Any) -> nn.Module:
    """A network with fresh weights, drawn from torch's default generator (`Net.fresh` takes a seed instead)."""
    settings = complete_settings(name, settings)
    module = MODELS[name](**settings)
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            # Batch norm's count of batches matters only to a momentum of None, which nobody uses here. Without it,
            # everything a network holds is floating point and can be averaged.
            layer.register_buffer("num_batches_tracked", None)
    return module
