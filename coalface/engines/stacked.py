"""Many clients at a time, by the method's own objective.

``forms``           which of these it is, and why
``one_step``        one backward pass for all, at the speed of central training
``several_steps``   on a GPU: each client has a copy of its own of everything that is trained, side by side
``on_cores``        on a CPU: the same, a core for each

Clients that share a launch of the device are padded to as many images; padded images have no share in the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from coalface import tree, wire
from coalface.data.population import Population
from coalface.engines.engine import Reply, Task
from coalface.engines.flight import Clock, Flight
from coalface.engines.forms import why_on_cores, why_several_steps
from coalface.engines.launch import After, Member, fits, images_of_a_step, prepare, width_of
from coalface.engines.on_cores import AHEAD, OnCores
from coalface.engines.one_step import one_step
from coalface.engines.replay import Replay
from coalface.engines.room import Room, evenly, room_for, room_on_cores
from coalface.engines.sequential import PrivateStates
from coalface.engines.several_steps import several_steps
from coalface.engines.tracks import DEVICES, Tracks
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Weights

REPLAYED_IMAGES = 1024  # a launch of so many or fewer is over before Python has asked for it: it is replayed instead
SIDE_BY_SIDE = 16  # clients that take several steps together: enough to fill a GPU with batches of ten
STEP_IMAGES = 160  # of all of them; where a client's step is of fewer, more clients go together


class Stacked:
    """``forms.why_not`` says which methods it takes; the caller asks before."""

    name = "stacked"

    def __init__(self, population: Population, private: PrivateStates, max_norm: float = 0.0) -> None:
        """``max_norm`` is the bound of the round's rules: each client's own update must then exist."""
        self.population = population
        self.private = private
        self.max_norm = max_norm
        counts, clients = population.counts().unique(return_counts=True)
        self.counts, self._clients_with = counts.tolist(), clients.tolist()  # how many images; how many have so many
        self.device = population.where.type
        on_gpu = self.device == "cuda"
        self.replay = Replay() if on_gpu else None
        self.tracks = Tracks(self.device) if self.device in DEVICES else None
        self.on_cores = OnCores(population.faces.size**2)
        self.room: Room | None = None  # measured when the first client is there

    def form(self, method: Method, training: Training) -> str:
        """How it runs clients, in words for the report."""
        several = self._why_several_steps(method, training)
        if several is None:
            return "one step for many clients"
        on_cpu = "clients on cores of their own" if torch.get_num_threads() > 1 else "one client after another"
        return f"{'stacked steps' if self.tracks else on_cpu}: {several}"

    def _why_several_steps(self, method: Method, training: Training) -> str | None:
        """Why one backward pass for all would not do, or not pay, in words; None if it is taken."""
        several = why_several_steps(method, training, max(self.counts), self.max_norm)
        if several or self.device != "cpu":
            return several
        drawn = [min(count, training.images_per_round or count) for count in self.counts]
        return why_on_cores(method, drawn, self._clients_with, self.population.faces.size**2)

    def _apart(self, method: Method) -> bool:
        """Whether each client's whole update is asked for."""
        return method.common is None or self.max_norm > 0

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        """A launch's answers are read when the next one is under way, so that a GPU is not kept waiting."""
        several = self._why_several_steps(task.method, task.training) is not None
        shared = () if self._apart(task.method) or (several and self.tracks) else task.method.common or ()
        most = len(cohort)
        if several and self.tracks:
            most = max(SIDE_BY_SIDE, STEP_IMAGES // images_of_a_step(max(self.counts), task.training))
        elif several:
            self.room, most = room_on_cores(), max(SIDE_BY_SIDE, AHEAD * torch.get_num_threads())
        under_way: Flight | None = None
        for launch in self._launches(task, cohort, shared, most):
            next_one = launch if isinstance(launch, Reply) else self._begin(task, launch, several)
            if under_way:
                yield from under_way.land()
            under_way = next_one if isinstance(next_one, Flight) else None
            if isinstance(next_one, Reply):
                yield next_one
        if under_way:
            yield from under_way.land()

    def _launches(
        self, task: Task, cohort: Sequence[int], shared: Sequence[str], most: int
    ) -> Iterator[list[Member] | Reply]:
        """The cohort in order: clients that go together, and the answers of those that have nothing to go with."""
        launch: list[Member] = []
        size, widest = 1, 0  # of the launch: how many clients it is for, and images in the widest of their steps
        for number, client in enumerate(cohort):
            faces = self.population[client]
            member = prepare(task, client, faces, self.private, shared) if len(faces) else None
            if member is not None and self.room is None:
                self.room = room_for(task, member.trained, member.fixed, faces.images[:1])
            if launch and (member is None or len(launch) == size or not fits(launch, widest, member, self.room)):
                yield launch
                launch, widest = [], 0
            if member is None:
                yield Reply(client, trouble="no images")
                continue
            if not launch and self.room is not None:
                size = evenly(len(cohort) - number, min(most, self.room.clients(member.width, member.size)))
            launch.append(member)
            widest = max(widest, member.width)
        if launch:
            yield launch

    def _begin(self, task: Task, launch: list[Member], several: bool) -> Flight:
        clock = Clock(self.device)
        weights = torch.tensor([_weight(task.method, member) for member in launch])
        weights = weights / weights.sum()
        width = width_of(launch, [images_of_a_step(count, task.training) for count in self.counts])
        averaged = None if self._apart(task.method) else weights
        if several and self.tracks:
            after = several_steps(task, launch, width, self.population, averaged, self.tracks)
        elif several:
            after = self.on_cores.train(task, launch, None if averaged is None else averaged.tolist())
        else:
            replay = self.replay if len(launch) * width <= REPLAYED_IMAGES else None
            after = one_step(task, launch, width, self.population, weights, replay)
        return Flight(list(_replies(task.method, launch, after)), after.losses, clock)


def _replies(method: Method, launch: list[Member], after: After) -> Iterator[Reply]:
    """Each member's upload. The common fields are the launch's mean, one object for all: their sum is the same."""
    shared: dict[str, Any] = {}
    bytes_down = bytes_up = 0  # the same for all: members of a launch have the same shapes
    for position, member in enumerate(launch):
        leaves = after.common | after.own[position]
        if shared:
            trained = tree.refill(_bare(member.trained, method), leaves)
            upload = replace(method.upload(_bare(member.broadcast, method), trained, member.faces), **shared)
        else:
            trained = tree.refill(member.trained, leaves)
            upload = method.upload(member.broadcast, trained, member.faces)
            if after.common:
                shared = {field: getattr(upload, field) for field in method.common or ()}
        bytes_down = bytes_down or wire.encoded_size(member.broadcast)
        bytes_up = bytes_up or wire.encoded_size(upload)
        yield Reply(
            member.client,
            upload,
            method.keep(trained),
            images=after.images[position],
            bytes_down=bytes_down,
            bytes_up=bytes_up,
        )


def _weight(method: Method, member: Member) -> float:
    """What the member's update will count for in the mean."""
    if method.types.upload.weight is None:
        return 1.0
    if method.types.upload.weight == "images":
        return float(len(member.faces))
    upload = method.upload(_bare(member.broadcast, method), _bare(member.trained, method), member.faces)
    return float(getattr(upload, method.types.upload.weight))


def _bare(holder: Any, method: Method) -> Any:
    """A broadcast or what is trained, without the common weights: cheap to subtract, where only the rest is wanted."""
    common = {field: Weights({}, {}) for field in method.common or () if isinstance(getattr(holder, field), Weights)}
    return replace(holder, **common)
