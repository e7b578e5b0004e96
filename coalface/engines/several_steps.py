"""The stacked engine on a GPU where a client's round is several steps: a model for each client, side by side.

All members take their n-th step together (``tracks``). A client with fewer steps than the others leaves when its own
are over; what its place does afterwards reaches nobody. The models of a launch are averaged at once, before anybody
asks for them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.launch import After, Leaves, Member
from coalface.engines.tracks import Tracks
from coalface.local import Draw, Training


def several_steps(
    task: Task,
    launch: list[Member],
    width: int,
    population: Population,
    weights: Tensor | None,
    tracks: Tracks,
) -> After:
    """Train all members by steps of at most ``width`` images.

    ``weights`` [C] are those of the mean of what they have in common; None keeps all apart.
    """
    course = tracks.course(task, launch, list(_steps(launch, task.training)), width, population)
    ends = [{name: leaf.detach() for name, leaf in end.items()} for end in course.ends]
    averaged: Leaves = {}
    if weights is not None:
        common = [name for name in ends[0] if name.split("/")[0] in (task.method.common or ())]
        averaged = _mean([{name: end[name] for name in common} for end in ends], weights.tolist())
    own = [  # copies: the next launch takes these places
        {n: leaf.clone(memory_format=torch.contiguous_format) for n, leaf in end.items() if n not in averaged}
        for end in ends
    ]
    return After(averaged, own, course.losses, course.images)


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
