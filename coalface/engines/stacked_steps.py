"""The stacked engine where a client's round is several steps: a model for each client, trained side by side.

All members take their n-th step together. A client with fewer steps than the others leaves when its own are over; what
its place does afterwards reaches nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.launch import After, Leaves, Member, stacked
from coalface.engines.tracks import Tracks
from coalface.local import Draw
from coalface.transfer import sent


def several_steps(
    task: Task,
    launch: list[Member],
    width: int,
    population: Population,
    weights: Tensor | None,
    tracks: Tracks,
) -> After:
    """Train all members, by steps of at most ``width`` images.

    ``weights`` [C] are those of the mean of what they have in common; None keeps all apart.
    """
    steps = list(_steps(launch))
    course = tracks.course(task, launch, steps, width, population)
    ends = [{name: leaf.detach() for name, leaf in end.items()} for end in course.ends]
    took = torch.tensor([[0 if draw is None else len(draw.rows) for draw in step] for step in steps])  # [S, C]
    shares = sent((took > 0) / (took > 0).sum(dim=0), next(iter(ends[0].values())).device)
    losses = {part: (shares * torch.stack([s[part] for s in course.losses])).sum(0) for part in course.losses[0]}
    averaged: Leaves = {}
    if weights is not None:
        common = [name for name in ends[0] if name.split("/")[0] in (task.method.common or ())]
        averaged = _mean([{name: end[name] for name in common} for end in ends], weights.tolist())
    own = stacked([{name: leaf for name, leaf in end.items() if name not in averaged} for end in ends])
    return After(averaged, own, losses, took.sum(dim=0).tolist())


def _mean(members: Sequence[Leaves], weights: Sequence[float]) -> Leaves:
    """One launch for all tensors of a member."""
    if not members[0]:
        return {}
    total = torch._foreach_mul(list(members[0].values()), weights[0])
    for member, weight in zip(members[1:], weights[1:], strict=True):
        torch._foreach_add_(total, list(member.values()), alpha=weight)
    return {name: leaf.contiguous() for name, leaf in zip(members[0], total, strict=True)}


def _steps(launch: list[Member]) -> Iterator[list[Draw | None]]:
    """The n-th draw of every member, until none has any left."""
    while any(step := [next(member.draws, None) for member in launch]):
        yield step
