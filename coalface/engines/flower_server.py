"""The server's side of a deployment: who the clients are, what they are told, and the engine that calls them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.serverapp.grid import Grid

from coalface import wire
from coalface.config import ConfigError, DetectionRun, Run
from coalface.data import public_file
from coalface.data.population import Population
from coalface.engines.engine import Engine, Reply, Task
from coalface.engines.flower import AtHome, Flower
from coalface.engines.sequential import Sequential
from coalface.federation import QuorumError
from coalface.gathering import Plain, Sums
from coalface.method import Method
from coalface.store import Stage, write_atomically
from coalface.terms import PROTOCOL, NoiseTerms, SecureTerms, Terms, check_silence

if TYPE_CHECKING:
    from coalface.privacy.secure_sum import SecureSums

UNBOUNDED = 1 << 32  # images, where rounds.most_images sets no bound

log = logging.getLogger("coalface.server")


@dataclass(frozen=True)
class Fleet:
    """Implements ``stages.Remote``: clients behind a grid; ``nodes[client]`` is the node of each."""

    grid: Grid
    nodes: Sequence[int]
    roster: Population
    keys: Sequence[bytes] = ()  # of each client, as PEM: secure sums are signed
    patience: float = 60.0
    in_flight: int = 32

    def private(self, method: Method) -> type[wire.Private] | None:
        """The server holds clients' states itself if it has their faces, and else a note of which ones count."""
        return AtHome if method.types.private and not method.types.collected else method.types.private

    def engine(self, run: Run | DetectionRun, stage: Stage, population: Population) -> Engine:
        """Part of ``stages.Remote``. Where clients hold a public set, it is written down for them first."""
        public = ""
        if run.method.holds_public:
            file = stage.folder / public_file.NAME
            public = public_file.write_public(file, population.public)
            log.info("clients hold what is public: give %s to each of them, for public in client.toml", file)
        flower = Flower(
            self.grid,
            self.nodes,
            lambda client: terms(run, self.roster, client, public).to_json(),
            stage.private,
            federation_number(stage.folder),
            run.rounds,
            self.patience,
            self.in_flight,
        )
        if run.method.types.collected is None:
            return flower
        return Sequential(run.method.clients(collected(flower, run, self.roster)), stage.private)

    def seed(self, run: Run | DetectionRun, stage: Stage) -> int:
        """Part of ``stages.Remote``: nobody's under noise, as the account counts on nobody knowing who is called.

        It is new at every start: a round that is told again after a crash is one more draw, and is charged as one.
        """
        return secrets.randbits(256) | 1 << 255 if run.privacy.dp.noise else run.seed

    def sums(self, run: Run | DetectionRun, engine: Engine, stage: Stage) -> Sums | None:
        """Part of ``stages.Remote``."""
        inner = self._masked(run, engine) if run.privacy.secure_sum else None
        if not run.privacy.dp.noise:
            return inner
        from coalface.privacy.dp import Machines, PrivateSums  # noqa: PLC0415  (dp-accounting is optional)
        from coalface.privacy.journal import Journal  # noqa: PLC0415

        told = terms(run, self.roster, 0)
        if inner:
            check_silence(told.secure, told.noise)
        rules, clients = run.privacy.without_bounds(run.rounds), len(self.roster)
        cohort = min(run.rounds.cohort or clients, clients)
        machines = Machines(Journal(stage.folder / "told.jsonl"))
        sums = PrivateSums(run.privacy.dp, rules, inner or Plain(rules), run.method, cohort, clients, machines)
        sums.restore(stage.rounds(), stage.ledger())
        return sums

    def _masked(self, run: Run | DetectionRun, engine: Engine) -> SecureSums:
        from coalface.engines.flower_secure import FlowerParties  # noqa: PLC0415  (cryptography is optional)
        from coalface.privacy.secagg.rules import Rules  # noqa: PLC0415
        from coalface.privacy.secure_sum import SecureSums  # noqa: PLC0415

        if not isinstance(engine, Flower):
            raise ConfigError("a server that collects everybody's faces has nothing left to hide: no secure sum")
        privacy = run.privacy
        return SecureSums(
            privacy.without_bounds(run.rounds),
            Rules(privacy.min_cohort, privacy.threshold, complete=privacy.dp.where == "distributed"),
            privacy.value_bound,
            privacy.largest_weight(),
            meet=lambda task, openings, layout: FlowerParties(engine, self.keys, task, openings, layout),
        )


def collected(flower: Flower, run: Run | DetectionRun, roster: Population) -> Population:
    """Everybody's faces, for a method that asks for them; in memory only, so that a restart asks again."""
    net = terms(run, roster, 0).net()
    task = Task(run.method, net, run.training, run.seed, round=0, attempt=0, broadcast=_nothing)
    found = []
    each = wire.encoded_size(run.method.expected_collection(1, run.data.size))
    for reply in flower.collect(task, range(len(roster)), (run.rounds.most_images or UNBOUNDED) * each):
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


def _decoded(run: Run | DetectionRun, reply: Reply) -> wire.Upload:
    try:
        if not 0 < reply.images * 3 * run.data.size**2 < len(reply.upload):
            raise wire.Refused(f"it says that it sent {reply.images} images, and did not")
        upload: wire.Upload = wire.decode(reply.upload, run.method.expected_collection(reply.images, run.data.size))
    except wire.Refused as reason:
        raise QuorumError(f"the faces of client {reply.client} were refused: {reason}") from reason
    return upload


def _nothing(client: int) -> wire.Broadcast:
    raise AssertionError("a collection has no broadcast")


def terms(run: Run | DetectionRun, roster: Population, client: int, public: str = "") -> Terms:
    """What one client is told. The run's seed is not in it: clients draw their own numbers."""
    privacy, dp = run.privacy, run.privacy.dp
    bound = privacy.without_bounds(run.rounds).max_norm
    secure = SecureTerms(privacy.min_cohort, privacy.threshold, privacy.value_bound, privacy.largest_weight(), bound)
    noise = NoiseTerms(dp.clip, dp.group_clip, dp.noise, dp.group_noise, dp.where == "distributed")
    return Terms(
        protocol=PROTOCOL,
        method=run.method,
        model=run.model or run.method.network,
        embedding=run.embedding if isinstance(run, Run) else 1,
        width=0 if isinstance(run, Run) else run.width,
        size=run.data.size,
        training=run.training,
        clients=len(roster),
        classes=roster.classes,
        client=client,
        first_class=roster.first_class(client),
        identities=len(roster.clients[client]),
        public=public,
        secure=secure if privacy.secure_sum else SecureTerms(),
        noise=noise if dp.noise else NoiseTerms(),
    )


def federation_number(folder: Path) -> str:
    """Drawn once, and kept with the run: clients keep their state under it, and answers to another one are refused."""
    file = folder / "federation"
    if not file.exists():
        write_atomically(file, secrets.token_hex(8).encode())
    return file.read_text()
