"""The stacked engine on a CPU where a client's round is several steps: as many clients at a time as there are cores.

A step of a few images does not keep several cores busy, and the steps of several clients do. Each is trained by the
reference's own loop, on a core of its own, so that its result does not depend on how many cores there are; only where
clients are fewer do they have several. Models that are averaged are added up as they come, in the order of the clients.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from coalface import tree
from coalface.engines.engine import Task, at_client
from coalface.engines.launch import After, Leaves, Member
from coalface.local import Batch, Losses, Trained, train
from coalface.models.net import Net

AHEAD = 2  # clients a core that are begun before the first of them is asked for: cores wait for nobody
PIXELS_AT_ONCE = 4_000_000  # of all that train at a time: clients with large steps go fewer at a time, on more cores

_of_this_thread = threading.local()  # a net lends its layers to one call at a time


class OnCores:
    """Threads of this process, for all its rounds."""

    def __init__(self, pixels: int) -> None:
        """Images have so many ``pixels``."""
        self._pixels = pixels
        self._pools: dict[int, ThreadPoolExecutor] = {}  # by how many train at a time

    def train(self, task: Task, launch: list[Member], weights: list[float] | None) -> After:
        """Train all members. ``weights`` are those of the mean of what they have in common; None keeps all apart."""
        common = () if weights is None else task.method.common or ()
        total: Leaves = {}
        own, losses, images = [], [], []
        for place, trained in enumerate(self._trained(task, launch)):
            leaves = {name: leaf.detach() for name, leaf in tree.leaves(trained.state).items()}
            shared = {name: leaf for name, leaf in leaves.items() if name.split("/")[0] in common}
            if weights is not None and shared:
                total = _plus(total, shared, weights[place])
            own.append({name: leaf for name, leaf in leaves.items() if name not in shared})
            losses.append(trained.losses)
            images.append(trained.images)
        return After(total, own, {part: torch.tensor([one[part] for one in losses]) for part in losses[0]}, images)

    def _trained(self, task: Task, launch: list[Member]) -> Iterator[Trained]:
        """In the order of the members, and hardly more of them at a time than there are cores."""
        cores = torch.get_num_threads()
        fit = PIXELS_AT_ONCE // (self._pixels * max(member.width for member in launch))
        at_once = max(1, min(cores, len(launch), fit))
        if at_once == 1:
            yield from (_train(task, task.net, member) for member in launch)
            return
        if at_once not in self._pools:
            self._pools[at_once] = ThreadPoolExecutor(at_once, thread_name_prefix="client")
        begun: deque[Future[Trained]] = deque()
        torch.set_num_threads(1)  # what adds up meanwhile takes no core from those who train
        try:
            for member in launch:
                begun.append(self._pools[at_once].submit(_train_in_thread, cores // at_once, task, member))
                if len(begun) > AHEAD * at_once:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:  # somebody's error, or Ctrl-C: what has not begun is not begun any more
            for future in begun:
                future.cancel()
            torch.set_num_threads(cores)


def _train_in_thread(cores: int, task: Task, member: Member) -> Trained:
    torch.set_num_threads(cores)
    mine = _of_this_thread
    if getattr(mine, "lender", None) is not task.net:
        mine.lender, mine.net = task.net, Net(task.net.name, task.net.numerics, **task.net.settings)
    return _train(task, mine.net, member)


def _train(task: Task, net: Net, member: Member) -> Trained:
    def objective(trained: Any, batch: Batch) -> Losses:
        return task.method.objective(net, trained, member.fixed, batch)

    laid_out = partial(net.laid_out, kind=member.faces.labels.device.type)
    with at_client(task, member.client, len(member.faces)):
        faces, luck = member.trained_on, member.luck
        return train(objective, member.trained, faces, task.training, task.round, luck, laid_out)


def _plus(total: Leaves, leaves: Leaves, weight: float) -> Leaves:
    """``total`` with so many times the leaves, in one call for all of them."""
    if not total:
        return dict(zip(leaves, torch._foreach_mul(list(leaves.values()), weight), strict=True))
    torch._foreach_add_(list(total.values()), list(leaves.values()), alpha=weight)
    return total
