"""coalface serve: run a federation of real machines."""

# ruff: noqa: PLC0415  (Flower is optional, so it is imported where it is used)

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from coalface.config import ConfigError, Run, method_name, to_json
from coalface.registry import Clients, Tls
from coalface.report.progress import Progress
from coalface.verbs.extra import log_to, needs_deploy


def serve(run: Run, options: argparse.Namespace, command: str, device: torch.device) -> dict[str, Any]:
    """The run, with clients behind TLS. Calling it again in the same folder goes on where it stopped."""
    needs_deploy()
    from coalface.engines.flower_link import Link
    from coalface.engines.flower_server import Fleet
    from coalface.experiment import Experiment

    if run.method.holds_public:
        raise ConfigError(f"clients of {method_name(run.method)} hold public faces, which Flower does not carry yet")
    host, _, port = options.listen.rpartition(":")
    if not (host and port.isdigit()):
        raise ConfigError(f"--listen is HOST:PORT, not {options.listen!r}")
    clients, tls = Clients.read(options.clients), Tls.of(options.tls_dir)
    before = options.out / "config.json"
    if before.exists() and json.loads(before.read_text()) != to_json(run):
        raise ConfigError(f"{options.out} holds a run with other settings: choose another --out, or serve {before}")
    if run.faults.any():
        raise ConfigError("faults are injected into simulations only; real machines bring their own")
    log_to("coalface.server", options.out / "server.log", options.quiet)
    with Progress(quiet=options.quiet) as progress, Link(host, int(port), tls, clients.public_keys()) as link:
        fleet = Fleet(link, link.nodes, clients.roster(run.data.size), options.patience, options.in_flight)
        try:
            experiment = Experiment(run, options.out, device, progress, command, remote=fleet)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return experiment.execute()


def arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--listen", default="127.0.0.1:9092", metavar="HOST:PORT", help="default: this machine only")
    sub.add_argument("--tls-dir", type=Path, required=True, metavar="DIR", help="server.pem and server.key")
    sub.add_argument("--clients", type=Path, required=True, metavar="FILE", help="clients.toml: who may take part")
    sub.add_argument("--patience", type=float, default=60.0, help="seconds to wait for absent clients (default: 60)")
    sub.add_argument("--in-flight", type=int, default=32, help="clients at work at a time; bounds memory (default: 32)")
