"""Many clients per kernel launch.

When a client's round is one plain SGD step, the weighted mean of the clients' new models is the step of the weighted
mean of their losses: one backward pass through one backbone serves a whole cohort, exactly, at the speed of central
training. What a client trains beside the common part (its class embedding, say) still moves on its own.

The method's own objective runs under ``torch.func.vmap`` with the common tensors shared and the others stacked.
Clients with fewer images are padded; padded images have no share in the loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from coalface import seeding, tree, wire
from coalface.data.population import ClientFaces, Population
from coalface.engines.engine import Reply, Task
from coalface.engines.sequential import PrivateStates
from coalface.local import Batch, Losses, Training, batches, is_statistic, mean_losses
from coalface.method import Method
from coalface.models.net import Weights

Leaves = dict[str, Tensor]
IMAGES_PER_LAUNCH = {"cuda": 2048, "cpu": 128}  # enough to fill the device, little enough to fit beside the weights


def why_not(method: Method, training: Training, max_images: int, max_norm: float) -> str | None:
    """Why a run cannot be stacked, in words; None if it can."""
    if method.common is None:
        return "its clients start a round with models of their own"
    if getattr(method, "normalisation", "frozen") != "frozen":
        return "its batch-norm statistics come from each client's own batch"
    if training.optimiser != "sgd":
        return f"a step of {training.optimiser} is not linear in the gradient"
    images = min(max_images, training.images_per_round or max_images)
    if training.epochs > 1 or 0 < training.batch < images:
        return "a local round is more than one step"
    if max_norm:
        return "a norm bound needs each client's own update"
    return None


@dataclass(frozen=True)
class Member:
    """One client of a launch, before its step."""

    client: int
    broadcast: wire.Broadcast
    faces: ClientFaces
    batch: Batch
    trained: Any
    fixed: Any
    weight: float


class Stacked:
    """The one-step form. ``why_not`` says when it applies; the caller asks before."""

    name = "stacked"

    def __init__(self, population: Population, private: PrivateStates) -> None:
        self.population = population
        self.private = private

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        launch: list[Member] = []
        for client in cohort:
            faces = self.population[client]
            if not len(faces):
                yield Reply(client, trouble="no images")
                continue
            member = self._prepare(task, client, faces)
            limit = IMAGES_PER_LAUNCH[member.batch.images.device.type]
            widest = max(len(m.batch.labels) for m in [*launch, member])
            if launch and widest * (len(launch) + 1) > limit:
                yield from self._step(task, launch)
                launch = []
            launch.append(member)
        if launch:
            yield from self._step(task, launch)

    def _prepare(self, task: Task, client: int, faces: ClientFaces) -> Member:
        method, broadcast = task.method, task.broadcast(client)
        luck = seeding.generator(task.seed, "start", task.round, client)
        local = method.start(task.net, broadcast, self.private.load(client, task.round), faces, luck)
        (batch,) = batches(faces, task.training, seeding.generator(task.seed, "batches", task.round, client))
        weight = 1.0
        if method.types.upload.weight is not None:
            upload = method.upload(_bare(broadcast, method), _bare(local.trained, method), faces)
            weight = float(getattr(upload, method.types.upload.weight))
        return Member(client, broadcast, faces, batch, local.trained, local.fixed, weight)

    def _step(self, task: Task, launch: list[Member]) -> Iterator[Reply]:
        """One forward and one backward pass for all members."""
        began = time.perf_counter()
        method, first = task.method, launch[0]
        assert method.common is not None  # why_not refuses the others
        common = {n: x.detach() for n, x in tree.leaves(first.trained).items() if n.split("/")[0] in method.common}
        own = _stacked([tree.leaves(member.trained) for member in launch], but=common)
        fixed_leaves = [tree.leaves(member.fixed) for member in launch]
        alike = {n: x for n, x in fixed_leaves[0].items() if all(leaves[n] is x for leaves in fixed_leaves)}
        images, labels, share = _padded([member.batch for member in launch])

        def client_losses(own: Leaves, fixed: Leaves, images: Tensor, labels: Tensor, share: Tensor) -> Losses:
            trained = tree.refill(first.trained, {**common, **own})
            rest = tree.refill(first.fixed, {**alike, **fixed})
            return mean_losses(method.objective(task.net, trained, rest, Batch(images, labels)), share)

        learnt = {name: leaf.requires_grad_() for name, leaf in (common | own).items() if not is_statistic(name)}
        losses = vmap(client_losses)(own, _stacked(fixed_leaves, but=alike), images, labels, share)
        weights = torch.tensor([member.weight for member in launch], device=share.device)
        weights = weights / weights.sum()
        gradients = torch.autograd.grad((weights * losses["loss"]).sum(), list(learnt.values()), allow_unused=True)
        moved = {name: leaf.detach() for name, leaf in (common | own).items()}
        rate = task.training.rate_at(task.round)
        for (name, leaf), gradient in zip(learnt.items(), gradients, strict=True):
            if gradient is None:
                continue
            # A member's own tensor is in its own loss only: undo the weight that this loss has in the mean.
            weight = weights.reshape(-1, *[1] * (gradient.ndim - 1)) if name in own else 1.0
            moved[name] = leaf.detach() - rate * (gradient / weight + task.training.weight_decay * leaf.detach())
        parts = {part: values.tolist() for part, values in losses.items()}
        seconds = (time.perf_counter() - began) / len(launch)
        yield from _replies(method, launch, moved, set(own), parts, seconds)


def _replies(
    method: Method,
    launch: list[Member],
    moved: Leaves,
    own: set[str],
    parts: dict[str, list[float]],
    seconds: float,
) -> Iterator[Reply]:
    """Each member's upload. The common fields are the launch's mean, one object for all: their sum is the same."""
    assert method.common is not None
    shared: dict[str, Any] = {}
    for position, member in enumerate(launch):
        leaves = {name: leaf[position] if name in own else leaf for name, leaf in moved.items()}
        trained = tree.refill(member.trained, leaves)
        if not shared:
            upload = method.upload(member.broadcast, trained, member.faces)
            shared = {field: getattr(upload, field) for field in method.common}
            bytes_down, bytes_up = wire.encoded_size(member.broadcast), wire.encoded_size(upload)
        else:
            bare = method.upload(_bare(member.broadcast, method), _bare(trained, method), member.faces)
            upload = replace(bare, **shared)
        yield Reply(
            member.client,
            upload,
            method.keep(trained),
            images=len(member.batch.labels),
            seconds=seconds,
            bytes_down=bytes_down,
            bytes_up=bytes_up,
            losses={part: values[position] for part, values in parts.items()},
        )


def _bare(holder: Any, method: Method) -> Any:
    """A broadcast or what is trained, without the common weights: cheap to subtract, where only the rest is wanted."""
    common = {field: Weights({}, {}) for field in method.common or () if isinstance(getattr(holder, field), Weights)}
    return replace(holder, **common)


def _stacked(members: list[Leaves], but: Leaves) -> Leaves:
    """Leaves of the members along a new first axis, but for those that all share."""
    return {name: torch.stack([m[name].detach() for m in members]) for name in members[0] if name not in but}


def _padded(several: list[Batch]) -> tuple[Tensor, Tensor, Tensor]:
    """Images [C, n, …], labels [C, n] and each image's share [C, n] of its client's mean; padding has share 0."""
    widest = max(len(batch.labels) for batch in several)
    first = several[0]
    images = first.images.new_zeros(len(several), widest, *first.images.shape[1:])
    labels = first.labels.new_zeros(len(several), widest)
    share = torch.zeros(len(several), widest, device=first.labels.device)
    for position, batch in enumerate(several):
        count = len(batch.labels)
        images[position, :count], labels[position, :count], share[position, :count] = (
            batch.images,
            batch.labels,
            1 / count,
        )
    return images, labels, share
