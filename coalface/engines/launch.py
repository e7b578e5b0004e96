"""Clients that go through the network together: who fits beside whom, and how their tensors are laid side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coalface import seeding, tree, wire
from coalface.data.population import ClientFaces
from coalface.engines.engine import Task
from coalface.engines.sequential import PrivateStates
from coalface.local import Batch, batches

Leaves = dict[str, Tensor]
IMAGES_PER_LAUNCH = {"cuda": 2048, "cpu": 128}  # enough to fill the device, little enough to fit beside the weights
BYTES_PER_LAUNCH = {"cuda": 2 << 30, "cpu": 256 << 20}  # of stacked weights; gradients and momentum take as much each


@dataclass(frozen=True)
class Member:
    """One client of a launch, before its first step."""

    client: int
    broadcast: wire.Broadcast
    faces: ClientFaces
    batches: Iterator[Batch]  # of this round, drawn from the client's own generator when they are asked for
    width: int  # images of its widest step
    trained: Any
    fixed: Any
    own: Leaves  # of what is trained: the part that this client does not share with the launch
    read: Leaves  # of what is fixed


def prepare(task: Task, client: int, faces: ClientFaces, private: PrivateStates, shared: Sequence[str]) -> Member:
    """A client ready to be launched; ``shared`` names the trained fields that the whole launch has one copy of."""
    broadcast, training = task.broadcast(client), task.training
    luck = seeding.generator(task.seed, "start", task.round, client)
    local = task.method.start(task.net, broadcast, private.load(client, task.round), faces, luck)
    trained_on = faces if local.faces is None else local.faces
    drawn = batches(trained_on, training, seeding.generator(task.seed, "batches", task.round, client))
    images = min(len(trained_on), training.images_per_round or len(trained_on))
    own = {name: leaf for name, leaf in tree.leaves(local.trained).items() if name.split("/")[0] not in shared}
    return Member(
        client=client,
        broadcast=broadcast,
        faces=faces,
        batches=drawn,
        width=min(images, training.batch or images),
        trained=local.trained,
        fixed=local.fixed,
        own=own,
        read=tree.leaves(local.fixed),
    )


def fits(launch: list[Member], member: Member) -> bool:
    """Whether one more client can go along: the same shapes, and not too many images or weights."""
    if not launch:
        return True
    if _shapes(launch[0]) != _shapes(member):
        return False  # clients with another number of identities, say
    device, many = member.faces.labels.device.type, len(launch) + 1
    images = many * max(other.width for other in [*launch, member])
    size = many * sum(leaf.nbytes for leaf in member.own.values())
    return images <= IMAGES_PER_LAUNCH[device] and size <= BYTES_PER_LAUNCH[device]


def stacked(members: Sequence[Leaves], but: Leaves | None = None) -> Leaves:
    """Leaves of the members along a new first axis, but for those that all share."""
    return {name: torch.stack([m[name].detach() for m in members]) for name in members[0] if name not in (but or {})}


def alike(members: Sequence[Leaves]) -> Leaves:
    """The leaves that are one and the same tensor for all members: the anchor that all were sent, say."""
    return {name: leaf for name, leaf in members[0].items() if all(m[name] is leaf for m in members)}


def padded(several: Sequence[Batch | None]) -> tuple[Tensor, Tensor, Tensor]:
    """Images [C, n, …], labels [C, n] and each image's share [C, n] of its client's mean.

    Padding has share 0; a client without a batch is all padding. One batch at least must be there.
    """
    real = [batch for batch in several if batch is not None]
    counts = torch.tensor([0 if batch is None else len(batch.labels) for batch in several])
    there = torch.arange(int(counts.max())) < counts[:, None]
    # Places are worked out on the host, so that a GPU copies all images at once and is not waited for.
    device = real[0].labels.device
    places = there.flatten().nonzero().flatten().to(device)
    share = there / counts.clamp(min=1)[:, None]
    images, labels = (
        torch.cat(parts).new_zeros(there.numel(), *parts[0].shape[1:]).index_copy_(0, places, torch.cat(parts))
        for parts in ([batch.images for batch in real], [batch.labels for batch in real])
    )
    return images.unflatten(0, there.shape), labels.unflatten(0, there.shape), share.to(device)


def _shapes(member: Member) -> dict[str, tuple[torch.Size, torch.dtype]]:
    flat = member.own | {f"fixed/{name}": leaf for name, leaf in member.read.items()}
    return {name: (leaf.shape, leaf.dtype) for name, leaf in flat.items()}
