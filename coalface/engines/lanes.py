"""Every client's model for itself, with a stream of its own on a GPU.

Kernels that are each too small for the device share it.
"""

from __future__ import annotations

import torch

from coalface.engines.engine import Task
from coalface.engines.launch import Laid, Leaves, Member, client_losses, stacked
from coalface.engines.quickest import Quickest
from coalface.local import Losses, fresh_optimiser, is_statistic


class Lanes:
    """The models of a launch."""

    def __init__(self, task: Task, launch: list[Member], quickest: Quickest) -> None:
        kind = next(iter(launch[0].own.values())).device.type
        self._streams = [torch.cuda.Stream() for _ in launch] if kind == "cuda" else []
        self.models: list[Leaves] = [  # laid out once, and not in every step
            task.net.laid_out({name: leaf.detach().clone() for name, leaf in member.own.items()}, kind)
            for member in launch
        ]
        self._losses_of = client_losses(task, launch[0])
        self._learnt = [{n: leaf.requires_grad_() for n, leaf in m.items() if not is_statistic(n)} for m in self.models]
        rate = task.training.rate_at(task.round)
        self.optimisers = [
            fresh_optimiser(list(learnt.values()), task.training, rate, recorded=kind == "cuda")
            for learnt in self._learnt
        ]

    def move(self, same: Leaves, fixed: Leaves, batch: Laid) -> Losses:
        """A step of all models; the losses of each [C]."""
        if not self._streams:
            return stacked([self._move_one(position, same, fixed, batch) for position in range(len(self.models))])
        main = torch.cuda.current_stream()
        losses = []
        for position, stream in enumerate(self._streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                losses.append(self._move_one(position, same, fixed, batch))
        for stream in self._streams:
            main.wait_stream(stream)
        return stacked(losses)

    def _move_one(self, position: int, same: Leaves, fixed: Leaves, batch: Laid) -> Losses:
        read = same | {name: leaf[position] for name, leaf in fixed.items()}
        losses = self._losses_of(self.models[position], read, *(tensor[position] for tensor in batch))
        learnt = self._learnt[position].values()
        # Not torch.func.grad: it makes zeros of the missing gradient of a tensor that the loss does not read, and
        # weight decay would then move that tensor.
        found = torch.autograd.grad(losses["loss"], list(learnt), allow_unused=True)
        for leaf, gradient in zip(learnt, found, strict=True):
            leaf.grad = gradient
        self.optimisers[position].step()
        return {part: value.detach() for part, value in losses.items()}
