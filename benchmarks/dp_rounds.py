"""Private rounds for very many one-identity clients at once: everybody takes one step, every change is clipped.

What ``Federation`` with ``privacy.dp`` computes when all clients are called and each takes one plain step, by the
methods' own objectives, without a Python object for each client; a test holds the two against each other. For
benchmarks only: there are no checkpoints, no ledger and no faults here.
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
    together: int = 1000  # clients in one pass


def begun(method: Method, net: Net, start: Weights, images: Tensor) -> State:
    """Before the first round: everybody's class embedding is the mean feature of its images [N, n, 3, H, W]."""
    with torch.no_grad():
        features = torch.cat([F.normalize(net(start, some.flatten(0, 1)), dim=1) for some in images.split(250)])
    embeddings = F.normalize(features.view(*images.shape[:2], -1).mean(dim=1), dim=1)
    choirs = len(images) // method.choir if isinstance(method, Chorus) else 0
    empty = embeddings.new_zeros(choirs, 1, embeddings.shape[1])
    return State(start, embeddings, empty, embeddings.new_zeros(choirs))


def played(
    method: Method, net: Net, state: State, images: Tensor, step: Step, first: bool, luck: torch.Generator
) -> tuple[State, Tensor]:
    """The state after one round, and the norms of all changes before they were clipped, [N].

    ``luck`` is on the device. In the ``first`` round of FedFV the server has no class embedding yet.
    """
    start, people = state.backbone.parameters, len(images)
    total = {name: torch.zeros_like(leaf) for name, leaf in start.items()}
    embeddings, norms = torch.empty_like(state.embeddings), []
    order = torch.rand(images.shape[:2], generator=luck, device=images.device).argsort(dim=1)
    taken = order[:, : step.images] if step.images else torch.arange(images.shape[1], device=images.device)[None]
    mirror = torch.rand(images.shape[:2], generator=luck, device=images.device) < (0.5 if step.flip else 0.0)
    one = _one_client(method, net, state)
    for at in range(0, people, step.together):
        mine = torch.arange(at, min(at + step.together, people), device=images.device)
        fixed = _read(method, state, mine, first, luck)
        rows = taken[mine] if step.images else taken.expand(len(mine), -1)
        seen = mirrored(images[mine[:, None], rows], mirror[mine, : rows.shape[1]])
        with convolutions_as_products():
            (changes, own), _ = vmap(one, in_dims=(None, 0, 0 if fixed else None, 0), randomness="error")(
                start, state.embeddings[mine], fixed, seen
            )
        long = torch.stack([leaf.flatten(1).square().sum(dim=1) for leaf in changes.values()]).sum(dim=0).sqrt()
        long = step.rate * long
        share = (step.clip / long).clamp(max=1) if step.clip else torch.ones_like(long)
        for name, leaf in changes.items():
            total[name] -= step.rate * torch.tensordot(share, leaf, 1)
        embeddings[mine] = F.normalize(state.embeddings[mine] - step.rate * own, dim=1)
        norms.append(long)
    spread = step.noise * step.clip
    moved = {
        name: leaf + (total[name] + spread * torch.randn(leaf.shape, generator=luck, device=leaf.device)) / people
        for name, leaf in start.items()
    }
    after = replace(state, backbone=replace(state.backbone, parameters=moved), embeddings=embeddings)
    return _served(method, after, step, luck), torch.cat(norms)


@contextmanager
def convolutions_as_products() -> Iterator[None]:
    """Inside, a convolution is a product with unfolded patches.

    A gradient of weights for each client is then one batched product; a convolution in as many groups is far slower.
    """
    real = F.conv2d

    def product(x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
        if groups != 1 or isinstance(padding, str):
            raise ValueError(f"groups={groups}, padding={padding!r}: only plain convolutions become products")
        patches = F.unfold(x, weight.shape[2:], dilation, padding, stride)
        sides = [
            (x.shape[at] + 2 * padding[at - 2] - dilation[at - 2] * (weight.shape[at] - 1) - 1) // stride[at - 2] + 1
            for at in (2, 3)
        ]
        out = (weight.flatten(1) @ patches).unflatten(2, sides)
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
            read: Any = chorus.Fixed(state.chords, state.heard, fixed["own"])
        elif isinstance(method, fedavg.PositiveOnly):
            trained, read = fedavg.PositiveOnly.Trained(weights, embedding), None
        else:
            trained, read = revealed_embedding.Trained(weights, embedding), fixed.get("equivalents")
        return method.objective(net, trained, read, Batch(images, labels))["loss"].mean()

    return grad_and_value(loss, argnums=(0, 1))


def _read(method: Method, state: State, mine: Tensor, first: bool, luck: torch.Generator) -> dict[str, Tensor]:
    """What these clients were sent besides, each its own: along the first axis."""
    many = len(mine)
    if isinstance(method, Chorus):
        choirs = len(state.heard)
        own = F.one_hot(torch.div(mine, method.choir, rounding_mode="floor").clamp(max=choirs - 1), choirs)
        return {"own": own.to(state.heard)}
    if isinstance(method, FedFV):
        if first:
            return {"equivalents": state.embeddings.new_zeros(many, method.equivalents, state.embeddings.shape[1])}
        host = torch.Generator().manual_seed(int(torch.randint(1 << 62, (), generator=luck, device=mine.device)))
        others = distinct(len(state.embeddings) - 1, many * method.equivalents, method.fused, host).to(mine.device)
        others = others.view(many, -1, method.fused)
        others = others + (others >= mine[:, None, None])  # everybody but oneself
        return {"equivalents": fuse(state.embeddings, others.flatten(0, 1)).view(many, method.equivalents, -1)}
    return {}


def _served(method: Method, state: State, step: Step, luck: torch.Generator) -> State:
    """The server's part beside the backbone."""
    if isinstance(method, FedAwS):
        return replace(state, embeddings=method.spread(state.embeddings))
    if isinstance(method, Chorus):
        choirs, width = len(state.heard), state.embeddings.shape[1]
        if choirs * method.choir != len(state.embeddings):
            raise ValueError(f"{len(state.embeddings)} clients do not make whole choirs of {method.choir}")
        sums = state.embeddings.view(choirs, method.choir, width).sum(dim=1)
        sums = sums + step.group_noise * torch.randn(sums.shape, generator=luck, device=sums.device)
        return replace(state, chords=F.normalize(sums, dim=1)[:, None], heard=torch.ones_like(state.heard))
    return state
