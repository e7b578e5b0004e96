"""Which channel of one network does the work of which channel of another: FedMA's matching, for equal widths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coalface.models.net import Weights


def match(atoms: Sequence[Tensor], passes: int) -> list[Tensor]:
    """For each client an order [n] of its channels, such that channels at the same place are alike.

    ``atoms[j]`` [n, d] describes client j's channels. The first client's order is where the search begins; then each
    client in turn is taken out and matched to the sum of the others, until nobody moves, or ``passes`` times.

    A channel's gain at a place is that of FedMA's Gaussian model, in which each place has as many channels as there
    are clients; everything in it but the scalar product with the sum of the others is then the same for every order.
    """
    rows = [atom.detach().to("cpu", torch.float64) for atom in atoms]
    orders, total = [torch.arange(len(rows[0]))], rows[0].clone()
    for mine in rows[1:]:
        orders.append(_assigned(total @ mine.T))
        total += mine[orders[-1]]
    for _ in range(passes if len(rows) > 1 else 0):
        before = list(orders)
        for client, mine in enumerate(rows):
            total -= mine[orders[client]]
            orders[client] = _assigned(total @ mine.T)
            total += mine[orders[client]]
        if all(map(torch.equal, before, orders)):
            break
    return orders


def channel_atoms(layer: Weights) -> Tensor:
    """What a layer's channels are described by [n, d]: all their weights, and the scale and shift of their norm."""
    return torch.cat([leaf.flatten(1) if leaf.ndim > 1 else leaf[:, None] for leaf in layer.parameters.values()], dim=1)


def _assigned(gain_PC: Tensor) -> Tensor:
    """The channel for each place that makes the sum of gains largest."""
    try:
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise ImportError("FedMA matches channels by scipy, which is not installed here: pip install scipy") from error
    _, chosen = linear_sum_assignment(gain_PC.numpy(), maximize=True)
    return torch.from_numpy(chosen).to(torch.int64)
