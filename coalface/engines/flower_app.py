"""coalface as a Flower app, for those who run SuperLink, SuperNodes and ``flwr run`` already (docs/deploy.md).

The same engine on the server and the same participant on the clients, with Flower's own processes around them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from coalface.config import ConfigError, DetectionRun, run_from_json
from coalface.detection import Detection
from coalface.engines.flower_client import handler
from coalface.engines.flower_server import Fleet
from coalface.experiment import Experiment
from coalface.participant import Participant
from coalface.registry import Client, Clients
from coalface.report.progress import Progress
from coalface.verbs.serve import refuse_what_is_not_served

PATIENCE = 60.0  # seconds to wait for clients

server = ServerApp()
client = ClientApp()


@client.train()
@client.query("collect")
def answer(message: Message, context: Context) -> Message:
    """A call. ``--node-config "client='…/client.toml'"`` says who this is."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    participant = Participant(Client.read(_path(context.node_config, "client")), device)
    return Message(handler(participant)(message.metadata.message_type, message.content), reply_to=message)


@server.main()
def federate(grid: Grid, context: Context) -> None:
    """The federation of ``run`` (a config.json) with those of ``clients`` (a clients.toml), in the folder ``out``."""
    run = run_from_json(json.loads(_path(context.run_config, "run").read_text()))
    refuse_what_is_not_served(run)
    if run.privacy.secure_sum:
        raise ConfigError(
            "a SuperNode starts a new process for every message, and so forgets the secrets of a secure sum between "
            "two steps: use `coalface serve` and `coalface join`, or set privacy.secure_sum=false"
        )
    clients = Clients.read(_path(context.run_config, "clients"))
    nodes = _nodes(grid, clients.public_keys())
    fleet = Fleet(grid, nodes, clients.roster(run.data.size, run.method.world), patience=PATIENCE)
    kind: Any = Detection if isinstance(run, DetectionRun) else Experiment
    with Progress(quiet=True) as progress:
        out = _path(context.run_config, "out")
        kind(run, out, torch.device("cpu"), progress, "flwr run", remote=fleet).execute()


def _nodes(grid: Grid, keys: list[bytes]) -> list[int]:
    """Each client's node, by its key. One that does not come in time takes no part: 0 is nobody's number."""
    ends = time.monotonic() + PATIENCE
    while True:
        found = {node.public_key: node.node_id for node in grid.get_nodes()}
        if all(key in found for key in keys) or time.monotonic() > ends:
            return [found.get(key, 0) for key in keys]
        time.sleep(1)


def _path(config: Any, name: str) -> Path:
    if name not in config:
        raise ConfigError(f"{name} is not set: it is the path of a file or folder on this machine")
    return Path(str(config[name]))
