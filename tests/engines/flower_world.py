"""Real clients in threads of this process: the same sockets, TLS, keys and messages as between machines."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict

from coalface.cli import main
from coalface.config import DetectionRun, Run
from coalface.data import own_recordings
from coalface.data.centres import DomainData
from coalface.data.population import Population
from coalface.data.public_file import NAME
from coalface.data.recordings import Recordings
from coalface.data.world import Data
from coalface.engines.flower_client import handler
from coalface.engines.flower_link import Link
from coalface.engines.flower_messages import Answer, Call, pack, unpack
from coalface.engines.flower_node import Handler, attend
from coalface.engines.flower_server import Fleet, terms
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.participant import Participant
from coalface.privacy.settings import Privacy
from coalface.registry import Client, Clients, Insisted, Tls, absent
from coalface.store import Stage
from tests.conftest import SmallRun
from tests.end_to_end.federation import EVERYTHING, free_port, write_photographs

OPEN = Privacy()


@dataclass
class Nodes:
    """A link, and clients that can be started and stopped."""

    folder: Path
    link: Link
    port: int
    names: list[str]
    keys: list[bytes]
    data: str = "photographs"  # of each, in its own folder
    running: dict[str, tuple[threading.Thread, threading.Event]] = field(default_factory=dict)

    def client(self, name: str, **changes: Any) -> Client:
        home = self.folder / name
        settings = {
            "server": f"localhost:{self.port}", "data": str(home / self.data), "key": str(home / "client.key"),
            "ca": str(home / "ca.crt"), "state": str(home / "state"), "accept": tuple(EVERYTHING), "seed": 0,
            "public": str(self.folder / "public.safetensors"), "members": str(home / "members.pub"),
            "secure_sum": Insisted(min_cohort=4, threshold=0.6),
        }  # fmt: skip
        return Client(name, **{**settings, **changes})

    def start(self, name: str, handle: Handler | None = None, **changes: Any) -> None:
        client = self.client(name, **changes)
        stop = threading.Event()
        answer = handle or handler(Participant(client, torch.device("cpu")))
        arguments = (client.server, Path(client.ca), Path(client.key), Path(client.state) / "node", answer, stop)
        thread = threading.Thread(target=attend, args=arguments, daemon=True)
        thread.start()
        self.running[name] = (thread, stop)

    def stop(self, name: str) -> None:
        thread, stop = self.running.pop(name)
        stop.set()
        thread.join(timeout=20)
        assert not thread.is_alive()

    def log(self) -> str:
        return (self.folder / "server.log").read_text()


@contextmanager
def nodes(folder: Path, people: Population, recordings: Sequence[Recordings] = ()) -> Iterator[Nodes]:
    """A link with keys for everybody; data centres if there are ``recordings``."""
    names = [f"client{number}" for number in range(len(people))]
    port = free_port()
    assert main(["keys", *names, "--server", f"localhost:{port}", "--out", str(folder)]) == 0
    for name, held in zip(names, recordings, strict=False):
        own_recordings.save(held, folder / name / "recordings.safetensors")
    if not recordings:
        write_photographs(folder, names, people)
    logger = logging.getLogger("coalface.server")
    handlers = [logging.FileHandler(folder / "server.log")]
    for each in (logger, logging.getLogger("flwr")):
        each.handlers = list(handlers)
        each.setLevel(logging.WARNING)
    keys = Clients.read(folder / "server" / "clients.toml").public_keys()
    with Link("localhost", port, Tls.of(folder / "server"), keys) as link:
        made = Nodes(folder, link, port, names, keys, "recordings.safetensors" if recordings else "photographs")
        try:
            yield made
        finally:
            for name in list(made.running):
                made.stop(name)


class Deployed(SmallRun):
    """The small world's federation, with its clients behind a link."""

    def __init__(
        self,
        nodes: Nodes,
        method: Method,
        people: Population,
        folder: Path,
        training: Training,
        rules: Rounds,
        privacy: Privacy = OPEN,
    ) -> None:
        settings = run_of(method, rules, training, privacy)
        roster = absent([len(held) for held in people.clients], settings.data.size, method.world)
        with_public = replace(roster, public=people.public)
        super().__init__(method, terms(settings, roster, 0).net(), with_public, folder / "unused", training)
        fleet = Fleet(nodes.link, nodes.link.nodes, roster, nodes.keys, patience=20)
        self.stage = Stage(folder, method.types.server, fleet.private(method), "small", torch.device("cpu"))
        self.engine = fleet.engine(settings, self.stage, self.population)  # type: ignore[assignment]
        self.sums = fleet.sums(settings, self.engine, self.stage)
        self.seed = fleet.seed(settings, self.stage)
        self.federation = folder / "federation"
        if method.holds_public:
            shutil.copy(folder / NAME, nodes.folder / NAME)


def run_of(method: Method, rules: Rounds, training: Training, privacy: Privacy) -> Run | DetectionRun:
    """The settings of the small world."""
    if method.world == "faces":
        return Run(method, "tiny", 8, data=Data(size=16), rounds=rules, training=training, privacy=privacy)
    data = DomainData(size=32)
    return DetectionRun(method, width=2, data=data, rounds=rules, training=training, ends=(), privacy=privacy)


def tampered(participant: Participant, change: Any) -> Handler:
    """A registered client that does its round, and then sends something else."""
    honest = handler(participant)

    def answer(kind: str, content: RecordDict) -> RecordDict:
        unpack(Call, content)  # it was a call
        header, data = unpack(Answer, honest(kind, content))
        changed: RecordDict = change(header, data)
        return changed if isinstance(changed, RecordDict) else pack(*changed)

    return answer
