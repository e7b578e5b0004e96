"""A federation as it goes over the wire, written down for attacks; and the truth that they are scored against.

An engine is wrapped, so the uploads are those that the method's own code made in the framework's own rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import seeding, tree, wire
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.engines.engine import Engine, Reply, Task
from coalface.engines.sequential import Sequential
from coalface.federation import ClientRecord, Federation, RoundRecord, Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net, Weights
from coalface.privacy.audits.judge import HOST
from coalface.privacy.audits.view import Seen, View, seen
from coalface.transfer import sent

NOTHING = Weights({}, {})
AT_ONCE = 256


@dataclass(frozen=True)
class Round:
    """What travelled in one round, by client."""

    number: int
    broadcasts: dict[int, Any] = field(default_factory=dict)
    uploads: dict[int, Any] = field(default_factory=dict)

    @property
    def backbone(self) -> Weights:
        """The network that all clients were sent."""
        backbone: Weights = next(iter(self.broadcasts.values())).backbone
        return backbone

    def light(self) -> Round:
        """The same without the backbones: they are large, and attacks over many rounds do not need them."""
        down = {client: dataclasses.replace(message, backbone=NOTHING) for client, message in self.broadcasts.items()}
        up = {client: dataclasses.replace(message, backbone=NOTHING) for client, message in self.uploads.items()}
        return Round(self.number, down, up)


class Tap:
    """Wraps an engine and writes down what passes."""

    name = "tapped"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.round = Round(0)

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        self.round = Round(task.round)
        for reply in self.engine.gather(task, cohort):
            if reply.upload is not None:
                self.round.broadcasts[reply.client] = task.broadcast(reply.client)
                self.round.uploads[reply.client] = reply.upload
            yield reply


class Memory:
    """Clients' private state for the time of an audit; implements ``federation.Recorder`` and writes nothing."""

    def __init__(
        self, before: Callable[[int], wire.Private | None] = lambda client: None, device: torch.device = HOST
    ) -> None:
        """``before`` is what a client kept from rounds before the audit; ``device`` is where clients compute."""
        self._before, self._device = before, device
        self._kept: dict[int, wire.Private] = {}

    def load(self, client: int, round_: int) -> wire.Private | None:
        """What this client kept last."""
        kept: wire.Private | None = self._kept.get(client) or self._before(client)
        there: wire.Private | None = tree.transform(lambda leaf: sent(leaf, self._device), kept)
        return there

    def keep_private(self, client: int, round_: int, private: wire.Private) -> None:
        """Part of ``federation.Recorder``."""
        self._kept[client] = private

    def record(self, entry: RoundRecord, rows: list[ClientRecord]) -> None:
        """Part of ``federation.Recorder``."""

    def checkpoint(self, round_: int, server: Any) -> None:
        """Part of ``federation.Recorder``."""


@dataclass(frozen=True)
class Case:
    """A method's recorded rounds. Attacks take these; the faces in it are for scoring only, but for the public ones."""

    name: str
    method: Method
    net: Net
    training: Training
    cohort: int
    seed: int
    clients: Population
    outsiders: FaceSet  # people who take no part
    public: FaceSet  # synthetic people whom the attacker draws for itself
    server: Any  # after the recorded rounds
    memory: Memory
    rounds: list[Round]  # the last one whole, those before it light
    device: torch.device = HOST  # where searches for pictures compute; everything else here is on the host

    @property
    def last(self) -> Round:
        """The round with everything in it."""
        return self.rounds[-1]

    def seen(self, view: View, generator: torch.Generator, round_: Round | None = None) -> dict[int, Seen]:
        """What the server sees of a round: of the last one, unless said."""
        return seen(view, self.method, self.server, len(self.clients), (round_ or self.last).uploads, generator)

    def further(self, training: Training) -> Round:
        """One more round from the same state, with clients that train like this; nothing of it is kept."""
        memory = Memory(lambda client: self.memory.load(client, self.last.number + 1))
        *_, (_, round_) = played(self, self.server, memory, self.last.number, 1, training)
        return round_

    def truth(self, members: Sequence[int], backbone: Weights) -> Tensor:
        """Templates [n, d] of these clients: normalised means of normalised features."""
        return torch.stack([template(self.net, backbone, self.clients[client].images) for client in members])

    def strangers(self, backbone: Weights) -> Tensor:
        """Templates [P, d] of people who take no part."""
        with torch.no_grad():
            chunks = self.outsiders.images.split(AT_ONCE)
            embeddings = torch.cat([F.normalize(self.net(backbone, chunk), dim=1) for chunk in chunks])
        people = embeddings.split(self.outsiders.offsets.diff().tolist())
        return F.normalize(torch.stack([of.mean(dim=0) for of in people]), dim=1)


def template(net: Net, backbone: Weights, images: Tensor) -> Tensor:
    """The face template [d] of one person's images."""
    with torch.no_grad():
        return F.normalize(F.normalize(net(backbone, images), dim=1).mean(dim=0), dim=0)


def played(
    case: Case,
    server: Any,
    memory: Memory,
    done: int,
    rounds: int,
    training: Training,
    engine: Callable[[Population, Memory], Engine] = Sequential,
) -> Iterator[tuple[Any, Round]]:
    """``rounds`` more rounds after ``done``: the server's state after each, and what travelled.

    The stacked ``engine`` hands in one mean of the backbone for many clients: for those who look at other fields only.
    """
    tap = Tap(engine(case.clients, memory))
    rules = Rounds(rounds=done + rounds, cohort=case.cohort)
    federation = Federation(
        case.method, case.net, len(case.clients), tap, rules, training, case.seed, memory, lambda _: {}
    )
    for entry, after in federation.run(server, first_round=done + 1):
        if not entry.void:
            yield after, tap.round


def recorded(case: Case, done: int, rounds: int, step: Callable[[], None]) -> Case:
    """The case with so many more rounds played and written down; ``step`` is called after each."""
    kept, server = list(case.rounds), case.server
    for after, round_ in played(case, server, case.memory, done, rounds, case.training):
        kept = [*kept[:-1], *(before.light() for before in kept[-1:]), round_]
        server = after
        step()
    return dataclasses.replace(case, server=server, rounds=kept)


def begun(case: Case, start: Weights) -> Any:
    """The server's state before the first round."""
    return case.method.begin(case.net, start, case.clients, seeding.generator(case.seed, "begin"))
