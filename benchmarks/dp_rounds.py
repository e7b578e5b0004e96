"""Private rounds of very many one-identity clients at once: those called take one step, every change is clipped.

What ``Federation`` with ``privacy.dp`` computes when each client takes one plain step, by the methods' own objectives,
without a Python object for each client; a test holds the two against each other. For benchmarks only: there are no
checkpoints, no ledger and no faults here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad_and_value, vmap

from coalface.algorithms import chorus, fedavg, revealed_embedding
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedfv import FedFV, distinct, fuse
from coalface.local import Batch, mirrored
from coalface.method import Method
from coalface.models.net import Net, Weights


@dataclass(frozen=True)
class State:
    """The server's, and all clients' class embeddings, which they keep or reveal as the method says."""

    backbone: Weights
    embeddings: Tensor  # [N, d]
    known: Tensor  # bool [N]: who was called before, and so has one
    chords: Tensor  # [choirs, 1, d]; of methods other than chorus, none
    heard: Tensor  # [choirs]


@dataclass(frozen=True)
class Step:
    """One round's numbers."""

    rate: float
    clip: float = 0.0  # of each client's change of the backbone; 0 leaves it as it is
    noise: float = 0.0  # standard deviation on the sum of changes, over the clip
    group_noise: float = 0.0  # on each number of a choir's sum; voices are of length 1
    images: int = 0  # of each client, drawn anew; 0 takes all
    flip: bool = True
    together: int = 2000  # clients in one pass


def begun(method: Method, net: Net, start: Weights, clients: int) -> State:
    """Before the first round."""
    like = next(iter(start.parameters.values()))
    choirs = clients // method.choir if isinstance(method, Chorus) else 0
    if choirs and choirs * method.choir != clients:
        raise ValueError(f"{clients} clients do not make whole choirs of {method.choir}")
    empty = like.new_zeros(choirs, 1, net.embedding)
    unknown = torch.zeros(clients, dtype=torch.bool, device=like.device)
    return State(start, like.new_zeros(clients, net.embedding), unknown, empty, like.new_zeros(choirs))


def drawn(method: Method, clients: int, cohort: int, luck: torch.Generator) -> Tensor:
    """Who is called: so many of the clients, drawn without replacement; of chorus, whole choirs."""
    each = method.choir if isinstance(method, Chorus) else 1
    chosen = torch.randperm(clients // each, generator=luck, device=luck.device)[: cohort // each]
    return (each * chosen[:, None] + torch.arange(each, device=luck.device)).flatten().sort().values


def played(
    method: Method, net: Net, state: State, images: Tensor, called: Tensor, step: Step, luck: torch.Generator
) -> tuple[State, Tensor]:
    """The state after one round of the clients ``called``, and the norms of their changes before they were clipped.

    ``images`` [N, n, 3, H, W] are everybody's; ``luck`` is on their device.
    """
    start, device = state.backbone.parameters, images.device
    total = {name: torch.zeros_like(leaf) for name, leaf in start.items()}
    embeddings, norms = state.embeddings.clone(), []
    new = called[~state.known[called]]
    for mine in new.split(step.together) if len(new) else ():
        embeddings[mine] = _mean_features(net, state.backbone, images[mine])
    shared = _equivalents(method, state, called, luck)
    one = _one_client(method, net, state)
    for mine in called.split(step.together):
        order = torch.rand(len(mine), images.shape[1], generator=luck, device=device).argsort(dim=1)
        rows = order[:, : step.images] if step.images else order.sort(dim=1).values
        mirror = torch.rand(rows.shape, generator=luck, device=device) < (0.5 if step.flip else 0.0)
        fixed = _read(method, state, mine, shared)
        with convolutions_as_products():
            (changes, own), _ = vmap(one, in_dims=(None, 0, 0 if fixed else None, 0), randomness="error")(
                start, embeddings[mine], fixed, mirrored(images[mine[:, None], rows], mirror)
            )
        squares = torch.stack([leaf.flatten(1).square().sum(dim=1) for leaf in changes.values()]).sum(dim=0)
        long = step.rate * squares.sqrt()
        share = (step.clip / long).clamp(max=1) if step.clip else torch.ones_like(long)
        for name, leaf in changes.items():
            total[name] -= step.rate * torch.tensordot(share, leaf, 1)
        embeddings[mine] = F.normalize(embeddings[mine] - step.rate * own, dim=1)
        norms.append(long)
    spread = step.noise * step.clip
    moved = {
        name: leaf + (total[name] + spread * torch.randn(leaf.shape, generator=luck, device=device)) / len(called)
        for name, leaf in start.items()
    }
    known = state.known.index_fill(0, called, True)
    backbone = replace(state.backbone, parameters=moved)
    after = replace(state, backbone=backbone, embeddings=embeddings, known=known)
    return _served(method, after, called, step, luck), torch.cat(norms)


def _mean_features(net: Net, backbone: Weights, images: Tensor) -> Tensor:
    with torch.no_grad():
        features = F.normalize(net(backbone, images.flatten(0, 1)), dim=1)
    return F.normalize(features.unflatten(0, images.shape[:2]).mean(dim=1), dim=1)


@contextmanager
def convolutions_as_products() -> Iterator[None]:
    """Inside, a convolution is a product with unfolded patches.

    A gradient of weights for each client is then one batched product; a convolution in as many groups is far slower.
    """
    real = F.conv2d

    def product(x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
        if groups != 1 or isinstance(padding, str):
            raise ValueError(f"groups={groups}, padding={padding!r}: only plain convolutions become products")
        around = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
        down, across = (
            (around.shape[at] - dilation[at - 2] * (weight.shape[at] - 1) - 1) // stride[at - 2] + 1 for at in (2, 3)
        )
        # Slices, and not F.unfold: what vmap makes of that scatters its gradients number by number.
        shifted = [
            around[
                :,
                :,
                row * dilation[0] : row * dilation[0] + (down - 1) * stride[0] + 1 : stride[0],
                column * dilation[1] : column * dilation[1] + (across - 1) * stride[1] + 1 : stride[1],
            ]
            for row in range(weight.shape[2])
            for column in range(weight.shape[3])
        ]
        patches = torch.stack(shifted, dim=2).flatten(3).flatten(1, 2)  # [n, in · kernel, down · across]
        out = (weight.flatten(1) @ patches).unflatten(2, (down, across))
        return out if bias is None else out + bias[:, None, None]

    F.conv2d = product  # type: ignore[assignment]
    try:
        yield
    finally:
        F.conv2d = real


def _one_client(method: Method, net: Net, state: State) -> Callable[..., Any]:
    """Gradients of one client's mean loss: of the common parameters, and of its class embedding."""

    def loss(parameters: dict[str, Tensor], embedding: Tensor, fixed: Any, images: Tensor) -> Tensor:
        weights = replace(state.backbone, parameters=parameters)
        labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        if isinstance(method, Chorus):
            silent = torch.zeros_like(embedding)
            trained: Any = chorus.Trained(weights, embedding, silent, embedding.new_ones(1))
            read: Any = chorus.Fixed(state.chords, state.heard, fixed["own"], state.chords[:0, 0])
        elif isinstance(method, fedavg.PositiveOnly):
            trained, read = fedavg.PositiveOnly.Trained(weights, embedding), None
        else:
            trained, read = revealed_embedding.Trained(weights, embedding), fixed.get("equivalents")
        return method.objective(net, trained, read, Batch(images, labels))["loss"].mean()

    return grad_and_value(loss, argnums=(0, 1))


def _equivalents(method: Method, state: State, called: Tensor, luck: torch.Generator) -> Tensor | None:
    """FedFV: of clients that are not called, the same for all; None for other methods, or if there are too few."""
    if not isinstance(method, FedFV):
        return None
    outside = state.known.index_fill(0, called, False).nonzero().flatten()
    if len(outside) < method.fused:
        return None
    members = distinct(len(outside), method.equivalents, method.fused, _on_host(luck)).to(outside.device)
    return fuse(state.embeddings, outside[members])


def _read(method: Method, state: State, mine: Tensor, shared: Tensor | None) -> dict[str, Tensor]:
    """What these clients were sent besides, each its own: along the first axis."""
    many = len(mine)
    if isinstance(method, Chorus):
        own = F.one_hot(torch.div(mine, method.choir, rounding_mode="floor"), len(state.heard))
        return {"own": own.to(state.heard)}
    if isinstance(method, FedFV):
        none = state.embeddings.new_zeros(method.equivalents, state.embeddings.shape[1])
        return {"equivalents": (none if shared is None else shared).expand(many, -1, -1)}
    return {}


def _served(method: Method, state: State, called: Tensor, step: Step, luck: torch.Generator) -> State:
    """The server's part beside the backbone."""
    if isinstance(method, FedAwS):
        spread, _ = method.spread(state.embeddings[state.known])
        return replace(state, embeddings=state.embeddings.masked_scatter(state.known[:, None], spread))
    if isinstance(method, Chorus):
        choirs = torch.div(called[:: method.choir], method.choir, rounding_mode="floor")
        sums = state.embeddings[called].view(len(choirs), method.choir, -1).sum(dim=1)
        sums = sums + step.group_noise * torch.randn(sums.shape, generator=luck, device=sums.device)
        chords = state.chords.index_copy(0, choirs, F.normalize(sums, dim=1)[:, None])
        return replace(state, chords=chords, heard=state.heard.index_fill(0, choirs, 1.0))
    return state


def _on_host(luck: torch.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(torch.randint(1 << 62, (), generator=luck, device=luck.device)))
