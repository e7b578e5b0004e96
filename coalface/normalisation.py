"""What happens to batch-norm statistics in a federation. Every method names one of three ways.

frozen    clients normalise by the statistics they were sent; nothing changes, nothing is sent back (the default:
          on a one-identity client a batch describes one face)
average   clients normalise by their batches; the change of the running statistics is averaged like a weight
local     clients normalise by their batches and keep their own running statistics
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from coalface import tree
from coalface.models.net import Weights

Normalisation = Literal["frozen", "average", "local"]
SharedNormalisation = Literal["frozen", "average"]  # of methods that keep no statistics on a client


def change(before: Weights, after: Weights, way: Normalisation) -> Weights:
    """after − before, of what travels: the parameters, and the statistics only where they are averaged."""
    moved = tree.transform(lambda a, b: a - b, after, before)
    return moved if way == "average" else Weights(moved.parameters, {})


def travelling(weights: Weights, way: Normalisation) -> Weights:
    """The part of the weights whose change travels: the shape of every upload."""
    return weights if way == "average" else Weights(weights.parameters, {})


def moved(weights: Weights, by: Weights) -> Weights:
    """Weights plus a change; statistics that did not travel stay."""
    parameters = {name: value + by.parameters[name] for name, value in weights.parameters.items()}
    statistics = {
        name: value + by.statistics[name] if name in by.statistics else value
        for name, value in weights.statistics.items()
    }
    return Weights(parameters, statistics)


def at_client(weights: Weights, own: dict[str, Tensor] | None) -> Weights:
    """The weights a client starts from: those it was sent, with its own statistics where it keeps some."""
    return Weights(weights.parameters, own) if own else weights
