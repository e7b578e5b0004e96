"""Real clients in threads of this process: the same sockets, TLS, keys and messages as between machines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict

from coalface.cli import main
from coalface.config import Run
from coalface.data.population import Population
from coalface.data.world import Data
from coalface.engines.flower_client import handler
from coalface.engines.flower_link import Link
from coalface.engines.flower_messages import Answer, Call, pack, unpack
from coalface.engines.flower_node import Handler, attend
from coalface.engines.flower_server import Fleet
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net
from coalface.participant import Participant
from coalface.registry import Client, Clients, Tls, absent
from coalface.store import Stage
from tests.conftest import SmallRun
from tests.end_to_end.federation import EVERYTHING, free_port, write_photographs


@dataclass
class Nodes:
    """A link, and clients that can be started and stopped."""

    folder: Path
    link: Link
    port: int
    names: list[str]
    running: dict[str, tuple[threading.Thread, threading.Event]] = field(default_factory=dict)

    def client(self, name: str, **changes: Any) -> Client:
        home = self.folder / name
        settings = {
            "server": f"localhost:{self.port}", "data": str(home / "photographs"), "key": str(home / "client.key"),
            "ca": str(home / "ca.crt"), "state": str(home / "state"), "accept": tuple(EVERYTHING), "seed": 0,
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
def nodes(folder: Path, people: Population) -> Iterator[Nodes]:
    names = [f"client{number}" for number in range(len(people))]
    port = free_port()
    assert main(["keys", *names, "--server", f"localhost:{port}", "--out", str(folder)]) == 0
    write_photographs(folder, names, people)
    logger = logging.getLogger("coalface.server")
    handlers = [logging.FileHandler(folder / "server.log")]
    for each in (logger, logging.getLogger("flwr")):
        each.handlers = list(handlers)
        each.setLevel(logging.WARNING)
    keys = Clients.read(folder / "server" / "clients.toml").public_keys()
    with Link("localhost", port, Tls.of(folder / "server"), keys) as link:
        made = Nodes(folder, link, port, names)
        try:
            yield made
        finally:
            for name in list(made.running):
                made.stop(name)


class Deployed(SmallRun):
    """The small world's federation, with its clients behind a link."""

    def __init__(
        self, nodes: Nodes, method: Method, people: Population, folder: Path, training: Training, rules: Rounds
    ) -> None:
        net = Net("tiny", embedding=8, size=16)
        roster = absent([len(held) for held in people.clients], size=16)
        super().__init__(method, net, roster, folder / "unused", training)
        fleet = Fleet(nodes.link, nodes.link.nodes, roster, patience=20)
        self.stage = Stage(folder, method.types.server, fleet.private(method), "small", torch.device("cpu"))
        settings = Run(method, "tiny", 8, data=Data(size=16), rounds=rules, training=training)
        self.engine = fleet.engine(settings, self.stage)  # type: ignore[assignment]
        self.federation = folder / "federation"


def tampered(participant: Participant, change: Any) -> Handler:
    """A registered client that does its round, and then sends something else."""
    honest = handler(participant)

    def answer(kind: str, content: RecordDict) -> RecordDict:
        unpack(Call, content)  # it was a call
        header, data = unpack(Answer, honest(kind, content))
        changed: RecordDict = change(header, data)
        return changed if isinstance(changed, RecordDict) else pack(*changed)

    return answer
