"""One client after another in this process: the reference that every other engine is held against."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from coalface import wire
from coalface.data.population import Population
from coalface.engines.engine import Reply, Task, at_client
from coalface.local import client_round


class PrivateStates(Protocol):
    """Where simulated clients keep what is theirs (``store.PrivateStore``)."""

    def load(self, client: int, round_: int) -> wire.Private | None:
        """What this client kept from its last round before this one."""


class Sequential:
    """Holds one client's model at a time: memory does not grow with the number of clients."""

    name = "sequential"

    def __init__(self, population: Population, private: PrivateStates) -> None:
        self.population = population
        self.private = private

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        for client in cohort:
            yield self._run(task, client)

    def _run(self, task: Task, client: int) -> Reply:
        faces = self.population[client]
        if not len(faces):
            return Reply(client, trouble="no images")
        began = time.perf_counter()
        broadcast = task.broadcast(client)
        with at_client(task, client, len(faces)):
            result = client_round(
                task.method,
                task.net,
                broadcast,
                self.private.load(client, task.round),
                faces,
                task.training,
                task.round,
                task.seed,
                client,
            )
        return Reply(
            client,
            upload=result.upload,
            private=result.private,
            images=result.images,
            seconds=time.perf_counter() - began,
            bytes_down=wire.encoded_size(broadcast),
            bytes_up=wire.encoded_size(result.upload),
            losses=result.losses,
        )
