"""Several steps of many clients on a GPU: places for their models, and a step of all of them, recorded and replayed.

Recorded as one CUDA graph, it moves the models where they are: Python asks once for all, and only images are copied
from step to step.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence

import torch

from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.launch import Course, Laid, Leaves, Member, alike, laid, stacked
from coalface.engines.quickest import Quickest
from coalface.engines.stack import Stack
from coalface.local import Draw, Losses
from coalface.transfer import sent

TRACKS = 8  # shapes that are kept; each holds the models of its members
WARM_UPS = 2  # steps before recording, in which libraries choose their kernels

DEVICES = ("cuda",)  # that gain by a stack of models; others take one client after another


class Tracks:
    """A track for each shape of a launch; where nothing can be recorded, each launch has a track of its own."""

    def __init__(self, device: str) -> None:
        self._quickest = Quickest(device)
        self._tracks: dict[Hashable, Track] = {}
        self._possible = device == "cuda"

    def course(
        self, task: Task, launch: list[Member], steps: Sequence[list[Draw | None]], width: int, population: Population
    ) -> Course:
        """All steps of all members. What is recorded has one shape for the whole launch: ``width`` images."""
        multiple = width if self._possible else 1
        track: Track | None = None
        early: dict[int, Leaves] = {}
        losses = []
        for step in steps:
            batch = laid(launch, step, population, multiple)
            if track is None:
                track = self._track(task, launch, batch)
                track.begin(launch)
            for position, draw in enumerate(step):
                if draw is None and position not in early:  # its steps are over; what its place does now reaches nobody
                    early[position] = {name: leaf.detach().clone() for name, leaf in track.models[position].items()}
            losses.append(track.step(batch))
        assert track is not None  # a member has one step at least
        ends = [early.get(position, model) for position, model in enumerate(track.models)]
        took = torch.tensor([[0 if draw is None else len(draw.rows) for draw in step] for step in steps])  # [S, C]
        shares = sent((took > 0) / (took > 0).sum(dim=0), next(iter(ends[0].values())).device)
        means = {part: (shares * torch.stack([step[part] for step in losses])).sum(0) for part in losses[0]}
        return Course(ends, means, took.sum(dim=0).tolist())

    def _track(self, task: Task, launch: list[Member], batch: Laid) -> Track:
        """The one that is there for these shapes, or a new one."""
        rate = task.training.rate_at(task.round)  # it is recorded as a number
        self._tracks = {key: track for key, track in self._tracks.items() if track.rate == rate}
        leaves = [
            (name, leaf.shape, leaf.dtype) for part in (launch[0].own, launch[0].read) for name, leaf in part.items()
        ]
        same = tuple(alike([member.read for member in launch]))
        key = (batch.images.shape, tuple(leaves), same)
        if key in self._tracks:
            return self._tracks[key]
        track = Track(Stack(task, launch, self._quickest), rate, launch, batch)
        if self._possible and len(self._tracks) < TRACKS:
            self._possible = track.record()
            if self._possible:
                self._tracks[key] = track
        return track


class Track:
    """The models of a launch, and one step of them all."""

    def __init__(self, stack: Stack, rate: float, launch: list[Member], batch: Laid) -> None:
        self._stack, self.rate = stack, rate
        same = alike([member.read for member in launch])
        self._same = {name: leaf.detach().clone() for name, leaf in same.items()}
        self._fixed = stacked([member.read for member in launch], but=same)
        self._batch = batch
        self._graph: torch.cuda.CUDAGraph | None = None
        self._losses: Losses = {}

    @property
    def models(self) -> list[Leaves]:
        """Of each member, in its place."""
        return self._stack.models

    def begin(self, launch: list[Member]) -> None:
        """These members take the places."""
        self._stack.begin(launch)
        read = stacked([member.read for member in launch], but=self._same)
        for held, given in ((self._same, launch[0].read), (self._fixed, read)):
            if held:
                torch._foreach_copy_(list(held.values()), [given[name] for name in held])

    def step(self, batch: Laid) -> Losses:
        """One step of all members; their losses [C]."""
        if self._graph is None:
            return self._stack.move(self._same, self._fixed, batch)
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
                self._stack.move(self._same, self._fixed, self._batch)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._losses = self._stack.move(self._same, self._fixed, self._batch)
        except torch.OutOfMemoryError:  # no fault of the objective's
            raise
        except RuntimeError as reason:  # an objective that looks at the device's numbers from Python
            torch.cuda.synchronize()
            warnings.warn(f"this method cannot be recorded on the GPU and runs slower: {reason}", stacklevel=2)
            return False
        self._graph = graph
        return True
