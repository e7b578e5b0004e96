"""The stacked engine where a client's round is several steps: a model for each client, trained side by side.

All members take their n-th step together. A client with fewer steps than the others leaves the stack when its own are
over; what its place does afterwards reaches nobody.

On a GPU every member's step is a stream of its own in one recorded graph: kernels that are each too small for the
device share it, and Python asks once. Where that is not to be had, ``torch.func.vmap`` makes one kernel of many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import vmap

from coalface import tree
from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.launch import After, Leaves, Member, alike, laid, stacked
from coalface.engines.replay import Groups, Replay
from coalface.local import Batch, Draw, Losses, fresh_optimiser, is_statistic, mean_losses
from coalface.transfer import sent

ClientLosses = Callable[[Leaves, Leaves, Tensor, Tensor, Tensor], Losses]


class Lanes:
    """Members of a launch on streams of their own. A CPU has none: they go one after another."""

    def __init__(self, device: str, most: int) -> None:
        self.streams = [torch.cuda.Stream() for _ in range(most)] if device == "cuda" else []
        self.replay = Replay() if device == "cuda" else None


@dataclass
class Course:
    """How a launch goes."""

    stack: Leaves  # [C, …]
    early: dict[int, Leaves] = field(default_factory=dict)  # position -> its leaves, if its steps were over before
    widths: list[list[int]] = field(default_factory=list)  # images of each step, for each member; 0: none left
    losses: list[Losses] = field(default_factory=list)  # of each step: part -> [C]

    def leave(self, position: int) -> None:
        """This member's steps are over."""
        if position not in self.early:
            self.early[position] = {name: leaf[position].detach().clone() for name, leaf in self.stack.items()}

    def end(self) -> None:
        """Those that left early come back to their places."""
        for position, leaves in self.early.items():
            for name, leaf in leaves.items():
                self.stack[name].detach()[position] = leaf


def several_steps(
    task: Task, launch: list[Member], population: Population, weights: Tensor | None, lanes: Lanes | None
) -> After:
    """Train all members. ``weights`` [C] are those of the mean of what they have in common; None keeps all apart."""
    course = _train(task, launch, population, lanes)
    took = torch.tensor(course.widths)  # [S, C]
    steps = (took > 0).sum(dim=0)
    stack = {name: leaf.detach() for name, leaf in course.stack.items()}
    device = next(iter(stack.values())).device
    shares = sent((took > 0) / steps, device)
    losses = {part: (shares * torch.stack([s[part] for s in course.losses])).sum(0) for part in course.losses[0]}
    averaged: Leaves = {}
    if weights is not None:
        here = sent(weights, device)
        common = [name for name in stack if name.split("/")[0] in (task.method.common or ())]
        averaged = {name: torch.tensordot(here.to(stack[name].dtype), stack[name], 1) for name in common}
    return After(
        averaged,
        {name: leaf for name, leaf in stack.items() if name not in averaged},
        losses,
        took.sum(dim=0).tolist(),
    )


def _train(task: Task, launch: list[Member], population: Population, lanes: Lanes | None) -> Course:
    """All steps of all members. The optimisers work number by number, so one on the stack is one on each model."""
    course = Course(stacked([member.own for member in launch]))
    same = alike([member.read for member in launch])
    fixed = stacked([member.read for member in launch], but=same)
    learnt = {name: leaf for name, leaf in course.stack.items() if not is_statistic(name)}
    optimiser = fresh_optimiser(list(learnt.values()), task.training, task.training.rate_at(task.round))
    first = launch[0]

    def client_losses(own: Leaves, read: Leaves, images: Tensor, labels: Tensor, share: Tensor) -> Losses:
        trained, rest = tree.refill(first.trained, own), tree.refill(first.fixed, read)
        return mean_losses(task.method.objective(task.net, trained, rest, Batch(images, labels, share > 0)), share)

    def by_vmap(given: Groups) -> Groups:
        return gradients_by_vmap(client_losses, given)

    def by_lanes(given: Groups) -> Groups:
        return gradients_by_lanes(client_losses, given, lanes.streams if lanes else ())

    for step in _steps(launch):
        for position, draw in enumerate(step):
            if draw is None:
                course.leave(position)
        batch = laid(launch, step, population)
        numbers = {"images": batch.images, "labels": batch.labels, "share": batch.share}
        given = {"stack": course.stack, "same": same, "fixed": fixed, "batch": numbers}
        if lanes is None:
            found = by_vmap(given)
        else:
            found = lanes.replay(by_lanes, given, otherwise=by_vmap) if lanes.replay else by_lanes(given)
        for name, leaf in learnt.items():
            leaf.grad = found["gradients"].get(name)  # a tensor that the loss does not read has none, and stays
        optimiser.step()
        course.widths.append([0 if draw is None else len(draw.rows) for draw in step])
        course.losses.append(found["losses"])
    course.end()
    return course


def gradients_by_vmap(client_losses: ClientLosses, given: Groups) -> Groups:
    """Gradients [C, …] and losses [C]: of the sum over the members, in which each model has its own loss only."""
    stack, same, fixed, batch = given.values()
    learnt = {name: leaf.detach().requires_grad_() for name, leaf in stack.items() if not is_statistic(name)}
    losses = vmap(lambda own, read, *laid: client_losses(own, same | read, *laid))(
        stack | learnt, fixed, batch["images"], batch["labels"], batch["share"]
    )
    # Not torch.func.grad: it makes zeros of the missing gradient of a tensor that the loss does not read, and
    # weight decay would then move that tensor.
    found = torch.autograd.grad(losses["loss"].sum(), list(learnt.values()), allow_unused=True)
    return {
        "gradients": {name: gradient for name, gradient in zip(learnt, found, strict=True) if gradient is not None},
        "losses": {part: value.detach() for part, value in losses.items()},
    }


def gradients_by_lanes(client_losses: ClientLosses, given: Groups, streams: Sequence[torch.cuda.Stream]) -> Groups:
    """The same, member by member, each on a stream of its own where there are streams."""
    stack, same, fixed, batch = given.values()
    members = len(batch["share"])
    gradients: list[Leaves] = []
    losses: list[Losses] = []

    def lane(position: int) -> None:
        own = {name: leaf[position].detach() for name, leaf in stack.items()}
        learnt = {name: leaf.requires_grad_() for name, leaf in own.items() if not is_statistic(name)}
        read = same | {name: leaf[position] for name, leaf in fixed.items()}
        mine = client_losses(own, read, *(batch[name][position] for name in ("images", "labels", "share")))
        found = torch.autograd.grad(mine["loss"], list(learnt.values()), allow_unused=True)
        gradients.append({name: leaf for name, leaf in zip(learnt, found, strict=True) if leaf is not None})
        losses.append({part: value.detach() for part, value in mine.items()})

    if streams:
        main = torch.cuda.current_stream()
        for position in range(members):
            stream = streams[position % len(streams)]
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                lane(position)
        for stream in streams[:members]:
            main.wait_stream(stream)
    else:
        for position in range(members):
            lane(position)
    return {"gradients": stacked(gradients), "losses": stacked(losses)}


def _steps(launch: list[Member]) -> Iterator[list[Draw | None]]:
    """The n-th draw of every member, until none has any left."""
    while any(step := [next(member.draws, None) for member in launch]):
        yield step
