"""Several steps of many clients: every client's model has a place of its own, and on a GPU every place a stream.

There a step of all of them is recorded once, as one CUDA graph, and moves the models where they are: kernels that are
each too small for the device share it, Python asks once for all, and only images are copied from step to step.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.launch import (
    ClientLosses,
    Course,
    Laid,
    Leaves,
    Member,
    alike,
    client_losses,
    laid,
    stacked,
    width_of,
)
from coalface.local import Draw, Losses, fresh_optimiser, is_statistic

TRACKS = 8  # shapes that are kept; each holds the models of its members
WARM_UPS = 2  # steps before recording, in which libraries choose their kernels


class Lanes:
    """A track for each shape of a launch. A CPU has no streams: members go one after another, and no track is kept."""

    def __init__(self, device: str, most: int) -> None:
        self.streams = [torch.cuda.Stream() for _ in range(most)] if device == "cuda" else []
        self._tracks: dict[Hashable, Track] = {}
        self._possible = True

    def course(
        self, task: Task, launch: list[Member], steps: Sequence[list[Draw | None]], population: Population
    ) -> Course | None:
        """All steps of all members; None where they cannot be recorded."""
        width = width_of(launch)  # of every step: one shape for the whole launch
        track: Track | None = None
        early: dict[int, Leaves] = {}
        losses = []
        for step in steps:
            batch = laid(launch, step, population, multiple=width)
            if track is None:
                track = self._track(task, launch, batch)
                if track is None:
                    return None
                track.begin(launch)
            for position, draw in enumerate(step):
                if draw is None and position not in early:  # its steps are over; what its place does now reaches nobody
                    early[position] = {name: leaf.detach().clone() for name, leaf in track.models[position].items()}
            losses.append(track.step(batch))
        assert track is not None  # a member has one step at least
        return Course([early.get(position, model) for position, model in enumerate(track.models)], losses)

    def _track(self, task: Task, launch: list[Member], batch: Laid) -> Track | None:
        """The one that is there for these shapes, or a new one."""
        rate = task.training.rate_at(task.round)  # it is recorded as a number
        self._tracks = {key: track for key, track in self._tracks.items() if track.rate == rate}
        leaves = [
            (name, leaf.shape, leaf.dtype) for part in (launch[0].own, launch[0].read) for name, leaf in part.items()
        ]
        same = alike([member.read for member in launch])
        if not self.streams:
            return Track(task, launch, same, batch, self.streams)
        key = (batch.images.shape, tuple(leaves), tuple(same))
        if key not in self._tracks and self._possible and len(self._tracks) < TRACKS:
            track = Track(task, launch, same, batch, self.streams)
            self._possible = track.record()
            if self._possible:
                self._tracks[key] = track
        return self._tracks.get(key)


class Track:
    """The models of a launch, and one step of them all."""

    def __init__(
        self, task: Task, launch: list[Member], same: Leaves, batch: Laid, streams: Sequence[torch.cuda.Stream]
    ) -> None:
        self.rate = task.training.rate_at(task.round)
        layout = task.net.numerics.laid_out if streams else dict  # as the network wants it: once, not in every step
        self.models = [layout(_cloned(member.own)) for member in launch]
        self._same, self._fixed = _cloned(same), stacked([member.read for member in launch], but=same)
        self._batch, self._streams = batch, streams
        self._losses_of: ClientLosses = client_losses(task, launch[0])
        self._learnt = [{n: leaf.requires_grad_() for n, leaf in m.items() if not is_statistic(n)} for m in self.models]
        self._optimisers = [
            fresh_optimiser(list(learnt.values()), task.training, self.rate, recorded=bool(streams))
            for learnt in self._learnt
        ]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._losses: Losses = {}

    def begin(self, launch: list[Member]) -> None:
        """These members take the places; their optimisers remember nothing."""
        with torch.no_grad():
            first, start = self.models[0], launch[0].own
            torch._foreach_copy_(list(first.values()), list(start.values()))
            for model, member in zip(self.models[1:], launch[1:], strict=True):  # mostly alike, and laid out by now
                leaves = [first[name] if leaf is start[name] else leaf for name, leaf in member.own.items()]
                torch._foreach_copy_(list(model.values()), leaves)
            read = stacked([member.read for member in launch], but=self._same)
            for held, given in ((self._same, launch[0].read), (self._fixed, read)):
                if held:
                    torch._foreach_copy_(list(held.values()), [given[name] for name in held])
            memories = [
                memory
                for optimiser in self._optimisers
                for state in optimiser.state.values()
                for memory in state.values()
                if isinstance(memory, Tensor)
            ]
            if memories:
                torch._foreach_zero_(memories)

    def step(self, batch: Laid) -> Losses:
        """One step of all members; their losses [C]."""
        if self._graph is None:
            self._batch = batch
            return self._move()
        torch._foreach_copy_(list(self._batch), list(batch))
        self._graph.replay()
        return {part: value.clone() for part, value in self._losses.items()}

    def record(self) -> bool:
        """Whether a step could be recorded."""
        self._batch = Laid(*(tensor.clone() for tensor in self._batch))
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._move()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._losses = self._move()
        except torch.OutOfMemoryError:  # no fault of the objective's
            raise
        except RuntimeError as reason:  # an objective that looks at the device's numbers from Python
            torch.cuda.synchronize()
            warnings.warn(f"this method cannot be recorded on the GPU and runs slower: {reason}", stacklevel=2)
            return False
        self._graph = graph
        return True

    def _move(self) -> Losses:
        if not self._streams:
            return stacked([self._move_one(position) for position in range(len(self.models))])
        main = torch.cuda.current_stream()
        losses = []
        for position in range(len(self.models)):
            stream = self._streams[position % len(self._streams)]
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                losses.append(self._move_one(position))
        for stream in self._streams[: len(self.models)]:
            main.wait_stream(stream)
        return stacked(losses)

    def _move_one(self, position: int) -> Losses:
        read = self._same | {name: leaf[position] for name, leaf in self._fixed.items()}
        losses = self._losses_of(self.models[position], read, *(tensor[position] for tensor in self._batch))
        learnt = self._learnt[position].values()
        # Not torch.func.grad: it makes zeros of the missing gradient of a tensor that the loss does not read, and
        # weight decay would then move that tensor.
        found = torch.autograd.grad(losses["loss"], list(learnt), allow_unused=True)
        for leaf, gradient in zip(learnt, found, strict=True):
            leaf.grad = gradient
        self._optimisers[position].step()
        return {part: value.detach() for part, value in losses.items()}


def _cloned(leaves: Leaves) -> Leaves:
    return {name: leaf.detach().clone() for name, leaf in leaves.items()}
