"""The server's side of a deployment: who the clients are, what they are told, and the engine that calls them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr.serverapp.grid import Grid

from coalface import wire
from coalface.config import Run
from coalface.data.population import Population
from coalface.engines.engine import Engine, Reply, Task
from coalface.engines.flower import AtHome, Flower
from coalface.engines.sequential import Sequential
from coalface.federation import QuorumError
from coalface.method import Method
from coalface.models.net import Net
from coalface.participant import PROTOCOL, Terms
from coalface.store import Stage, write_atomically


@dataclass(frozen=True)
class Fleet:
    """Implements ``experiment.Remote``: clients behind a grid; ``nodes[client]`` is the node of each."""

    grid: Grid
    nodes: Sequence[int]
    roster: Population
    patience: float = 60.0
    in_flight: int = 32

    def private(self, method: Method) -> type[wire.Private] | None:
        """The server holds clients' states itself if it has their faces, and else a note of which ones count."""
        return AtHome if method.types.private and not method.types.collected else method.types.private

    def engine(self, run: Run, stage: Stage) -> Engine:
        flower = Flower(
            self.grid,
            self.nodes,
            lambda client: terms(run, self.roster, client).to_json(),
            stage.private,
            federation_number(stage.folder),
            run.rounds,
            self.patience,
            self.in_flight,
        )
        if run.method.types.collected is None:
            return flower
        return Sequential(run.method.clients(collected(flower, run, self.roster)), stage.private)


def collected(flower: Flower, run: Run, roster: Population) -> Population:
    """Everybody's faces, for a method that asks for them; in memory only, so that a restart asks again."""
    net = Net(run.model, embedding=run.embedding, size=run.data.size)
    task = Task(run.method, net, run.training, run.seed, round=0, attempt=0, broadcast=_nothing)
    found = []
    for reply in flower.collect(task, range(len(roster))):
        if reply.trouble:
            raise QuorumError(f"client {reply.client} gave no faces ({reply.trouble}), and without them all nobody can")
        found.append(_decoded(run, reply))
    try:
        population = run.method.assembled(found)
    except wire.Refused as reason:
        raise QuorumError(f"faces were refused: {reason}") from reason
    if [len(held) for held in population.clients] != [len(held) for held in roster.clients]:
        raise QuorumError("somebody gave faces of another number of people than clients.toml says")
    return population


def _decoded(run: Run, reply: Reply) -> wire.Upload:
    try:
        if not 0 < reply.images * 3 * run.data.size**2 < len(reply.upload):
            raise wire.Refused(f"it says that it sent {reply.images} images, and did not")
        upload: wire.Upload = wire.decode(reply.upload, run.method.expected_collection(reply.images, run.data.size))
    except wire.Refused as reason:
        raise QuorumError(f"the faces of client {reply.client} were refused: {reason}") from reason
    return upload


def _nothing(client: int) -> wire.Broadcast:
    raise AssertionError("a collection has no broadcast")


def terms(run: Run, roster: Population, client: int) -> Terms:
    """What one client is told. The run's seed is not in it: clients draw their own numbers."""
    return Terms(
        PROTOCOL,
        run.method,
        run.model,
        run.embedding,
        run.data.size,
        run.training,
        len(roster),
        roster.classes,
        client,
        roster.first_class(client),
        len(roster.clients[client]),
    )


def federation_number(folder: Path) -> str:
    """Drawn once, and kept with the run: clients keep their state under it, and answers to another one are refused."""
    file = folder / "federation"
    if not file.exists():
        write_atomically(file, secrets.token_hex(8).encode())
    return file.read_text()
