"""The stacked engine where a client's round is several steps: a stack of models, each trained on its client's images.

All members take their n-th step together. A client with fewer steps than the others is taken out of the stack when its
own are over; what its place does afterwards reaches nobody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import vmap

from coalface import tree, wire
from coalface.data.population import Population
from coalface.engines.engine import Reply, Task
from coalface.engines.launch import Leaves, Member, alike, laid, stacked
from coalface.local import Batch, Draw, Losses, fresh_optimiser, is_statistic, mean_losses


@dataclass
class Course:
    """How a launch went."""

    stack: Leaves  # [C, …], after the last step of those that took most
    early: dict[int, Leaves] = field(default_factory=dict)  # position -> its leaves, if its steps were over before
    widths: list[list[int]] = field(default_factory=list)  # images of each step, for each member; 0: none left
    losses: list[Losses] = field(default_factory=list)  # of each step: part -> [C]

    def leaves(self, position: int) -> Leaves:
        """A member's own tensors: copies, as the stack is for all and goes when the launch is over."""
        if position in self.early:
            return self.early[position]
        return {name: leaf[position].detach().clone() for name, leaf in self.stack.items()}


def several_steps(task: Task, launch: list[Member], population: Population) -> Iterator[Reply]:
    """Train all members, then answer for each: what it uploads, keeps and reports is its own."""
    began = time.perf_counter()
    course = _train(task, launch, population)
    parts = {part: torch.stack([step[part] for step in course.losses]).cpu() for part in course.losses[0]}  # [S, C]
    seconds = (time.perf_counter() - began) / len(launch)
    for position, member in enumerate(launch):
        trained = tree.refill(member.trained, course.leaves(position))
        upload = task.method.upload(member.broadcast, trained, member.faces)
        widths = [step[position] for step in course.widths if step[position]]
        yield Reply(
            member.client,
            upload,
            task.method.keep(trained),
            images=sum(widths),
            seconds=seconds,
            bytes_down=wire.encoded_size(member.broadcast),
            bytes_up=wire.encoded_size(upload),
            losses={part: float(values[: len(widths), position].mean()) for part, values in parts.items()},
        )


def _train(task: Task, launch: list[Member], population: Population) -> Course:
    """All steps of all members. The optimisers work number by number, so one on the stack is one on each model."""
    course = Course(stacked([member.own for member in launch]))
    same = alike([member.read for member in launch])
    fixed = stacked([member.read for member in launch], but=same)
    learnt = [leaf.requires_grad_() for name, leaf in course.stack.items() if not is_statistic(name)]
    optimiser = fresh_optimiser(learnt, task.training, task.training.rate_at(task.round))
    first = launch[0]

    def client_losses(own: Leaves, fixed: Leaves, images: Tensor, labels: Tensor, share: Tensor) -> Losses:
        trained, rest = tree.refill(first.trained, own), tree.refill(first.fixed, same | fixed)
        return mean_losses(task.method.objective(task.net, trained, rest, Batch(images, labels)), share)

    for step in _steps(launch):
        for position, draw in enumerate(step):
            if draw is None and position not in course.early:
                course.early[position] = course.leaves(position)
        batch = laid(launch, step, population)
        losses = vmap(client_losses)(course.stack, fixed, batch.images, batch.labels, batch.share)
        # Not torch.func.grad: it makes zeros of the missing gradient of a tensor that the loss does not read, and
        # weight decay would then move that tensor. In the sum each model has its own loss only.
        gradients = torch.autograd.grad(losses["loss"].sum(), learnt, allow_unused=True)
        for leaf, gradient in zip(learnt, gradients, strict=True):
            leaf.grad = gradient
        optimiser.step()
        course.widths.append([0 if draw is None else len(draw.rows) for draw in step])
        course.losses.append({part: value.detach() for part, value in losses.items()})
    return course


def _steps(launch: list[Member]) -> Iterator[list[Draw | None]]:
    """The n-th draw of every member, until none has any left."""
    while any(step := [next(member.draws, None) for member in launch]):
        yield step
