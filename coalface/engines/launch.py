"""Clients that go through the network together: who fits beside whom, and how their tensors are laid side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coalface import seeding, tree, wire
from coalface.data.population import ClientFaces, Population
from coalface.data.public import Faces
from coalface.engines.engine import Task, at_client
from coalface.engines.room import Room
from coalface.engines.sequential import PrivateStates
from coalface.local import Batch, Draw, Losses, Training, draws, mean_losses, mirrored
from coalface.transfer import sent_together

NOTHING = Draw(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.bool))  # of a member that has done
PADDED = 8  # clients are padded by up to one image in so many, so that few shapes are recorded

Leaves = dict[str, Tensor]
ClientLosses = Callable[[Leaves, Leaves, Tensor, Tensor, Tensor], Losses]


@dataclass(frozen=True)
class Member:
    """One client of a launch, before its first step."""

    client: int
    broadcast: wire.Broadcast
    faces: ClientFaces
    trained_on: Faces  # its own faces, or these with others
    luck: torch.Generator  # of its draws in this round, which are made when they are asked for
    width: int  # images of its widest step
    trained: Any
    fixed: Any
    own: Leaves  # of what is trained: the part that this client does not share with the launch
    read: Leaves  # of what is fixed

    def draws(self, training: Training) -> Iterator[Draw]:
        """Its steps of this round. They can be asked for once: what is left of its luck is another."""
        return draws(self.trained_on.host_labels, training, self.luck)

    @cached_property
    def size(self) -> int:
        """Bytes of what is its own."""
        return sum(leaf.nbytes for leaf in self.own.values())


def prepare(task: Task, client: int, faces: ClientFaces, private: PrivateStates, shared: Sequence[str]) -> Member:
    """A client ready to be launched; ``shared`` names the trained fields that the whole launch has one copy of."""
    broadcast, training = task.broadcast(client), task.training
    luck = seeding.generator(task.seed, "start", task.round, client)
    with at_client(task, client, len(faces)):
        local = task.method.start(task.net, broadcast, private.load(client, task.round), faces, luck)
    trained_on = faces if local.faces is None else local.faces
    own: Leaves = {}
    for field in tree.field_names(local.trained):
        if field not in shared:
            own |= tree.leaves(getattr(local.trained, field), field)
    return Member(
        client=client,
        broadcast=broadcast,
        faces=faces,
        trained_on=trained_on,
        luck=seeding.generator(task.seed, "batches", task.round, client),
        width=images_of_a_step(len(trained_on), training),
        trained=local.trained,
        fixed=local.fixed,
        own=own,
        read=tree.leaves(local.fixed),
    )


def fits(launch: list[Member], widest: int, member: Member, room: Room | None) -> bool:
    """Whether one more client can go along: the same shapes, and not too many images or weights."""
    if not launch or room is None:
        return True
    if not (_same_shapes(launch[0].own, member.own) and _same_shapes(launch[0].read, member.read)):
        return False  # clients with another number of identities, say
    many = len(launch) + 1
    return many * max(widest, member.width) <= room.images and many * member.size <= room.weights


def images_of_a_step(images: int, training: Training) -> int:
    """In the widest step of a client with so many images."""
    drawn = min(images, training.images_per_round or images)
    return min(drawn, training.batch or drawn)


def width_of(launch: Sequence[Member], widths: Sequence[int] = ()) -> int:
    """Of the steps of a launch: its widest, or a little more, so that few shapes are recorded.

    Widths are taken together up to the next of a few, and down to the widest of those that there are, if it is known.
    """
    widest = max(member.width for member in launch)
    unit = max(1, widest // PADDED)
    next_one = -(-widest // unit) * unit
    return max((width for width in widths if widest <= width <= next_one), default=next_one)


def stacked(members: Sequence[Leaves], but: Leaves | None = None) -> Leaves:
    """Leaves of the members along a new first axis, but for those that all share."""
    return {name: _stack([m[name].detach() for m in members]) for name in members[0] if name not in (but or {})}


def _stack(leaves: list[Tensor]) -> Tensor:
    if leaves[0].data_ptr() == leaves[-1].data_ptr() and all(leaf.is_set_to(leaves[0]) for leaf in leaves):
        return leaves[0].expand(len(leaves), *leaves[0].shape).clone()  # everybody's start: read once
    return torch.stack(leaves)


def _same_shapes(some: Leaves, others: Leaves) -> bool:
    return some.keys() == others.keys() and all(
        leaf is others[name] or (leaf.shape, leaf.dtype) == (others[name].shape, others[name].dtype)
        for name, leaf in some.items()
    )


def alike(members: Sequence[Leaves]) -> Leaves:
    """The leaves that are one and the same tensor for all members: the anchor that all were sent, say."""
    return {name: leaf for name, leaf in members[0].items() if all(m[name] is leaf for m in members)}


@dataclass(frozen=True)
class After:
    """What a launch came to, on the device."""

    common: Leaves  # the weighted mean over the members, of what they have in common
    own: list[Leaves]  # of each member, what is its own
    losses: Losses  # part -> [C], means over a member's steps
    images: list[int]  # that each member went through


@dataclass(frozen=True)
class Course:
    """How several steps of a launch went."""

    ends: list[Leaves]  # of each member, after the last of its steps; where they stand, the next launch may begin
    losses: Losses  # part -> [C], means over a member's steps
    images: list[int]  # that each member went through


def client_losses(task: Task, first: Member) -> ClientLosses:
    """One member's losses from flat tensors: of what is trained, what is fixed, images, labels and shares."""

    def losses(trained: Leaves, fixed: Leaves, images: Tensor, labels: Tensor, share: Tensor) -> Losses:
        held, read = tree.refill(first.trained, trained), tree.refill(first.fixed, fixed)
        return mean_losses(task.method.objective(task.net, held, read, Batch(images, labels, share > 0)), share)

    return losses


class Laid(NamedTuple):
    """One step of all members, side by side. Padding has share 0; a member without a draw is all padding."""

    images: Tensor  # uint8 [C, n, 3, H, W]
    labels: Tensor  # int64 [C, n]
    share: Tensor  # [C, n]: of each image in its client's mean


def laid(launch: Sequence[Member], several: Sequence[Draw | None], population: Population, multiple: int = 1) -> Laid:
    """The images of every member's draw. One draw at least must be there; n is a ``multiple``."""
    drawn = [NOTHING if draw is None else draw for draw in several]
    # All is worked out on the host and goes in one transfer, so that a GPU is not waited for.
    counts = [draw.rows.shape[0] for draw in drawn]
    width = -max(counts) // multiple * -multiple
    counts_C1 = torch.tensor(counts)[:, None]
    real = torch.arange(width) < counts_C1
    share = real / counts_C1.clamp(min=1)
    mirror = _padded([draw.mirror for draw in drawn], real)
    labels = _padded([m.trained_on.host_labels[draw.rows] for m, draw in zip(launch, drawn, strict=True)], real)
    if all(isinstance(member.trained_on, ClientFaces) for member in launch):
        # By the rows of the shared set: one copy for all members. Padding is its first image, looked at with no share.
        rows = _padded([_rows(member)[draw.rows] for member, draw in zip(launch, drawn, strict=True)], real)
        rows_there, labels, share, mirror = sent_together([rows, labels, share, mirror], population.where)
        rows = rows_there if population.device is None else rows  # None: the shared set is there, too
        images = population.fetched(rows.flatten()).unflatten(0, rows.shape)
    else:
        labels, share, mirror = sent_together([labels, share, mirror], population.where)
        images = _gathered_one_by_one(launch, drawn, width)
    return Laid(mirrored(images, mirror), labels, share)


def _rows(member: Member) -> Tensor:
    assert member.faces.rows is not None  # it comes from a population
    return member.faces.rows


def _gathered_one_by_one(launch: Sequence[Member], drawn: Sequence[Draw], width: int) -> Tensor:
    """Members that train on more than their own faces say themselves where these are."""
    first = launch[0].faces.images
    images = first.new_zeros(len(launch), width, *first.shape[1:])
    for place, (member, draw) in enumerate(zip(launch, drawn, strict=True)):
        images[place, : len(draw.rows)] = member.trained_on.gather(draw.rows)
    return images


def _padded(several: Sequence[Tensor], real: Tensor) -> Tensor:
    """Numbers of each member [≤ n] one below the other, where ``real`` [C, n] says that there are any; else zeros."""
    together = torch.cat(list(several))
    return torch.zeros(real.shape, dtype=together.dtype).masked_scatter_(real, together)
