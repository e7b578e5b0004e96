"""coalface join: take part in a federation, as one client."""

# ruff: noqa: PLC0415  (Flower is optional, so it is imported where it is used)

from __future__ import annotations

import argparse
import signal
import threading
from dataclasses import replace
from pathlib import Path

import torch

from coalface.allocator import give_memory_back
from coalface.config import ConfigError
from coalface.registry import Client
from coalface.run_folder import alone
from coalface.verbs.extra import log_to, needs_deploy


def join(options: argparse.Namespace, command: str) -> None:
    """Take part in a federation until stopped: train on this machine's photographs when the server calls."""
    needs_deploy()
    from coalface.engines.flower_client import handler
    from coalface.engines.flower_node import NotAdmitted, attend
    from coalface.participant import Participant

    client = Client.read(options.client) if options.client else Client()
    client = replace(
        client,
        name=options.name or client.name,
        server=options.server or client.server,
        data=options.data or client.data,
        key=options.key or client.key,
        ca=options.ca or client.ca,
        state=options.state or client.state,
    )
    for what in ("name", "server", "data", "key"):
        if not getattr(client, what):
            raise ConfigError(f"no {what}: put it into client.toml, or add --{what}")
    for file in (client.key, client.ca):
        if not Path(file).is_file():
            raise ConfigError(f"there is no {file}; `coalface keys` makes keys and a test CA")
    if not Path(client.data).exists():
        raise ConfigError(f"there is no {client.data}; data is a folder with a sub-folder per person, or of recordings")
    state = Path(client.state)
    give_memory_back()
    log_to("coalface.client", state / "client.log", options.quiet)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.optim.SGD([torch.zeros(1)])  # loads parts of torch that take seconds: better now than in the first round
    try:
        with alone(state, "--state"):  # what is spent is counted there
            answer = handler(Participant(client, device))
            attend(client.server, Path(client.ca), Path(client.key), state / "node", answer, stop)
    except NotAdmitted as reason:
        raise ConfigError(str(reason)) from reason


def arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("client", type=Path, nargs="?", metavar="client.toml", help="as `coalface keys` writes it")
    sub.add_argument("--server", metavar="HOST:PORT")
    sub.add_argument("--data", metavar="DIR", help="photographs, one sub-folder per person")
    sub.add_argument("--name", help="who I am")
    sub.add_argument("--key", metavar="FILE", help="this client's private key")
    sub.add_argument("--ca", metavar="FILE", help="the CA that the server's certificate must be of")
    sub.add_argument("--state", metavar="DIR", help="what this client keeps")
    sub.add_argument("--quiet", action="store_true", help="log to state/client.log only")
