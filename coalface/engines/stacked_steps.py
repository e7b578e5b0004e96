"""The stacked engine where a client's round is several steps: a model for each client, trained side by side.

All members take their n-th step together. A client with fewer steps than the others leaves when its own are over; what
its place does afterwards reaches nobody. The models go in ``lanes``. Where a GPU cannot record these,
``torch.func.vmap`` makes one kernel of many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.func import vmap

from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.lanes import Lanes
from coalface.engines.launch import After, Course, Leaves, Member, alike, client_losses, laid, stacked
from coalface.local import Draw, fresh_optimiser, is_statistic
from coalface.transfer import sent


def several_steps(
    task: Task, launch: list[Member], population: Population, weights: Tensor | None, lanes: Lanes
) -> After:
    """Train all members. ``weights`` [C] are those of the mean of what they have in common; None keeps all apart."""
    steps = list(_steps(launch))
    course = lanes.course(task, launch, steps, population)
    course = course or course_by_vmap(task, launch, steps, population)
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


def course_by_vmap(
    task: Task, launch: list[Member], steps: Sequence[list[Draw | None]], population: Population
) -> Course:
    """All steps of all members. The optimisers work number by number, so one on the stack is one on each model."""
    stack = stacked([member.own for member in launch])
    same = alike([member.read for member in launch])
    fixed = stacked([member.read for member in launch], but=same)
    learnt = {name: leaf.requires_grad_() for name, leaf in stack.items() if not is_statistic(name)}
    optimiser = fresh_optimiser(list(learnt.values()), task.training, task.training.rate_at(task.round))
    losses_of = client_losses(task, launch[0])
    early: dict[int, Leaves] = {}
    losses = []
    for step in steps:
        for position, draw in enumerate(step):
            if draw is None and position not in early:
                early[position] = {name: leaf[position].detach().clone() for name, leaf in stack.items()}
        batch = laid(launch, step, population)
        found = vmap(lambda own, read, *laid: losses_of(own, same | read, *laid))(stack, fixed, *batch)
        # In the sum over the members, each model has its own loss only. Not torch.func.grad: it makes zeros of the
        # missing gradient of a tensor that the loss does not read, and weight decay would then move that tensor.
        gradients = torch.autograd.grad(found["loss"].sum(), list(learnt.values()), allow_unused=True)
        for leaf, gradient in zip(learnt.values(), gradients, strict=True):
            leaf.grad = gradient
        optimiser.step()
        losses.append({part: value.detach() for part, value in found.items()})
    ends = [{name: leaf[position] for name, leaf in stack.items()} for position in range(len(launch))]
    return Course([early.get(position, end) for position, end in enumerate(ends)], losses)


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
