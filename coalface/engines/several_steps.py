"""The stacked engine where a client's round is several steps: a model for each client.

On a GPU they are trained side by side (``tracks``): all members take their n-th step together. A client with fewer
steps than the others leaves when its own are over; what its place does afterwards reaches nobody. On a CPU, where
nothing is gained by that, they take turns. Either way the models of a launch are averaged at once, before anybody asks
for them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from coalface import tree
from coalface.data.population import Population
from coalface.engines.engine import Task, at_client
from coalface.engines.launch import After, Course, Leaves, Member
from coalface.engines.tracks import Tracks
from coalface.local import Batch, Draw, Losses, Trained, Training, train


def several_steps(
    task: Task,
    launch: list[Member],
    width: int,
    population: Population,
    weights: Tensor | None,
    tracks: Tracks | None,
) -> After:
    """Train all members: by steps of at most ``width`` images on these tracks, or without tracks one by one.

    ``weights`` [C] are those of the mean of what they have in common; None keeps all apart.
    """
    if tracks:
        course = tracks.course(task, launch, list(_steps(launch, task.training)), width, population)
    else:
        course = in_turn(task, launch)
    ends = [{name: leaf.detach() for name, leaf in end.items()} for end in course.ends]
    averaged: Leaves = {}
    if weights is not None:
        common = [name for name in ends[0] if name.split("/")[0] in (task.method.common or ())]
        averaged = _mean([{name: end[name] for name in common} for end in ends], weights.tolist())
    own = [{name: leaf for name, leaf in end.items() if name not in averaged} for end in ends]
    if tracks:  # the next launch takes these places
        own = [{name: leaf.clone(memory_format=torch.contiguous_format) for name, leaf in o.items()} for o in own]
    return After(averaged, own, course.losses, course.images)


def in_turn(task: Task, launch: list[Member]) -> Course:
    """One member after the other by the reference's own loop, without padding."""
    trained = [_trained(task, member) for member in launch]
    losses = {part: torch.tensor([one.losses[part] for one in trained]) for part in trained[0].losses}
    return Course([tree.leaves(one.state) for one in trained], losses, [one.images for one in trained])


def _trained(task: Task, member: Member) -> Trained:
    def objective(trained: Any, batch: Batch) -> Losses:
        return task.method.objective(task.net, trained, member.fixed, batch)

    laid_out = partial(task.net.laid_out, kind=member.faces.labels.device.type)
    with at_client(task, member.client, len(member.faces)):
        faces, luck = member.trained_on, member.luck
        return train(objective, member.trained, faces, task.training, task.round, luck, laid_out)


def _mean(members: Sequence[Leaves], weights: Sequence[float]) -> Leaves:
    """One launch for all tensors of a member."""
    if not members[0]:
        return {}
    total = torch._foreach_mul(list(members[0].values()), weights[0])
    for member, weight in zip(members[1:], weights[1:], strict=True):
        torch._foreach_add_(total, list(member.values()), alpha=weight)
    return {name: leaf.contiguous() for name, leaf in zip(members[0], total, strict=True)}


def _steps(launch: list[Member], training: Training) -> Iterator[list[Draw | None]]:
    """The n-th draw of every member, until none has any left."""
    drawn = [member.draws(training) for member in launch]
    while any(step := [next(draws, None) for draws in drawn]):
        yield step
