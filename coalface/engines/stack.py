"""The models of a launch as one stack, and a step of all of them.

``torch.func.vmap`` takes the method's objective for one client and makes it one for all (``layers``).
The optimisers work number by number, so one on the stack is one on each model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import vmap

from coalface.engines.engine import Task
from coalface.engines.launch import Laid, Leaves, Member, client_losses
from coalface.engines.layers import LayersOfMany
from coalface.engines.quickest import Choose, first_way
from coalface.engines.streams import Streams, in_turn
from coalface.local import Losses, fresh_optimiser, is_statistic


class Stack:
    """Models side by side."""

    def __init__(self, task: Task, launch: list[Member], choose: Choose) -> None:
        self._stack = {name: _room_for(leaf.detach(), len(launch)) for name, leaf in launch[0].own.items()}
        self.models: list[Leaves] = [
            {name: leaf[position] for name, leaf in self._stack.items()} for position in range(len(launch))
        ]
        self._learnt = {name: leaf.requires_grad_() for name, leaf in self._stack.items() if not is_statistic(name)}
        self._losses_of = client_losses(task, launch[0])
        rate, on_gpu = task.training.rate_at(task.round), next(iter(self._stack.values())).is_cuda
        self.optimiser = fresh_optimiser(list(self._learnt.values()), task.training, rate, recorded=on_gpu)
        self._layers = LayersOfMany(
            Streams(len(launch)) if on_gpu else in_turn, choose if task.net.numerics.autotune else first_way
        )
        self.begin(launch)

    def begin(self, launch: Sequence[Member]) -> None:
        """These members take the places; the optimiser remembers nothing."""
        remembered = [leaf for of_one in self.optimiser.state.values() for leaf in of_one.values()]
        memories = [leaf for leaf in remembered if torch.is_tensor(leaf)]
        with torch.no_grad():
            for name, place in self._stack.items():
                leaves = [member.own[name] for member in launch]
                alike = all(leaf is leaves[0] for leaf in leaves)
                place.copy_(leaves[0] if alike else torch.stack(leaves))
            if memories:
                torch._foreach_zero_(memories)

    def move(self, same: Leaves, fixed: Leaves, batch: Laid) -> Losses:
        """A step of all models; the losses of each [C]."""
        with self._layers:
            losses = vmap(lambda own, read, *laid: self._losses_of(own, same | read, *laid))(self._stack, fixed, *batch)
        learnt = self._learnt.values()
        # In the sum over the members, each model has its own loss only. Not torch.func.grad: it makes zeros of the
        # missing gradient of a tensor that the loss does not read, and weight decay would then move that tensor.
        found = torch.autograd.grad(losses["loss"].sum(), list(learnt), allow_unused=True)
        for leaf, gradient in zip(learnt, found, strict=True):
            leaf.grad = gradient
        self.optimiser.step()
        return {part: value.detach() for part, value in losses.items()}


def _room_for(leaf: Tensor, models: int) -> Tensor:
    """An empty stack, laid out as gradients come: an optimiser is slow where the two lie differently."""
    if leaf.ndim == 4:  # a convolution's, with the channels that go in last
        outputs, inputs, height, width = leaf.shape
        return leaf.new_empty(models, outputs, height, width, inputs).permute(0, 1, 4, 2, 3)
    if leaf.ndim == 2:  # a linear layer's, with what comes out last
        return leaf.new_empty(models, *leaf.shape[::-1]).mT
    return leaf.new_empty(models, *leaf.shape)
