"""What happens to batch-norm statistics in a federation. Every method names one of three ways.

frozen    clients normalise by the statistics they were sent; nothing changes, nothing is sent back (the default:
          on a one-identity client a batch describes one face)
average   clients normalise by their batches; the change of the running statistics is averaged like a weight
local     clients normalise by their batches and keep their own running statistics
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from coalface.models.net import Weights

Normalisation = Literal["frozen", "average", "local"]
SharedNormalisation = Literal["frozen", "average"]  # of methods that keep no statistics on a client


def by_batch(way: Normalisation, images: Tensor) -> bool:
    """Whether these images are normalised by statistics of their own. A single one, left over in an epoch, has none."""
    return way != "frozen" and len(images) > 1


def change(before: Weights, after: Weights, way: Normalisation) -> Weights:
    """after − before, of what travels: the parameters, and the statistics only where they are averaged."""
    statistics = _differences(after.statistics, before.statistics) if way == "average" else {}
    return Weights(_differences(after.parameters, before.parameters), statistics)


def travelling(weights: Weights, way: Normalisation) -> Weights:
    """The part of the weights whose change travels: the shape of every upload."""
    return weights if way == "average" else Weights(weights.parameters, {})


def moved(weights: Weights, by: Weights) -> Weights:
    """Weights plus a change, laid out in memory as this is; statistics that did not travel stay."""
    statistics = _sums(by.statistics, weights.statistics) if by.statistics else weights.statistics
    return Weights(_sums(by.parameters, weights.parameters), statistics)


def next_step(mean: Weights, last: Weights | None, momentum: float) -> Weights:
    """The server's step: the mean change, and a share of its last step (FedAvgM; Hsu et al. 2019).

    Where a client's round is one plain step, this is SGD with momentum on the cohort's mean loss.
    """
    if last is None or not momentum:
        return mean
    kept = torch._foreach_mul(list(last.parameters.values()), momentum)
    return Weights(_sums(mean.parameters, dict(zip(last.parameters, kept, strict=True))), mean.statistics)


def at_client(weights: Weights, own: dict[str, Tensor] | None) -> Weights:
    """The weights a client starts from: those it was sent, with its own statistics where it keeps some."""
    return Weights(weights.parameters, own) if own else weights


def _differences(some: dict[str, Tensor], others: dict[str, Tensor]) -> dict[str, Tensor]:
    return _at_once(torch._foreach_sub, some, others)


def _sums(some: dict[str, Tensor], others: dict[str, Tensor]) -> dict[str, Tensor]:
    return _at_once(torch._foreach_add, some, others)


def _at_once(combine: Callable[..., Any], some: dict[str, Tensor], others: dict[str, Tensor]) -> dict[str, Tensor]:
    """One launch for all tensors of a network, not one for each."""
    if not some:
        return {}
    return dict(zip(some, combine(list(some.values()), [others[name] for name in some]), strict=True))
