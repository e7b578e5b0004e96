"""coalface serve: run a federation of real machines."""

# ruff: noqa: PLC0415  (Flower is optional, so it is imported where it is used)

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from coalface.allocator import give_memory_back
from coalface.config import ConfigError, DetectionRun, Run, method_name
from coalface.detection import Detection
from coalface.experiment import Experiment
from coalface.registry import Clients, Tls
from coalface.report.progress import Progress
from coalface.verbs.extra import log_to, needs_deploy
from coalface.verbs.given import read_config


def serve(run: Run | DetectionRun, options: argparse.Namespace, command: str, device: torch.device) -> dict[str, Any]:
    """The run, with clients behind TLS. Calling it again in the same folder goes on where it stopped."""
    needs_deploy()
    from coalface.engines.flower_link import Link
    from coalface.engines.flower_server import Fleet

    refuse_what_is_not_served(run)
    host, _, port = options.listen.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"--listen is HOST:PORT, not {options.listen!r}")
    if options.in_flight < 1 or options.patience < 0:
        raise ConfigError(
            f"--in-flight is at least 1 and --patience at least 0, not {options.in_flight} and {options.patience:g}"
        )
    clients, tls = Clients.read(options.clients), Tls.of(options.tls_dir)
    before = options.out / "config.json"
    if before.exists() and read_config(before) != run:
        raise ConfigError(f"{options.out} holds a run with other settings: choose another --out, or serve {before}")
    give_memory_back()
    log_to("coalface.server", options.out / "server.log", options.quiet)
    keys = clients.public_keys()
    with Progress(quiet=options.quiet) as progress, Link(host, int(port), tls, keys) as link:
        roster = clients.roster(run.data.size, run.method.world)
        fleet = Fleet(link, link.nodes, roster, keys, options.patience, options.in_flight)
        try:
            experiment = (
                Detection(run, options.out, device, progress, command, remote=fleet)
                if isinstance(run, DetectionRun)
                else Experiment(run, options.out, device, progress, command, remote=fleet)
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return experiment.execute()


def refuse_what_is_not_served(run: Run | DetectionRun) -> None:
    """By name, and why."""
    if isinstance(run, DetectionRun) and run.method.types.collected is not None:
        raise ConfigError(
            f"{method_name(run.method)} is for recordings that are in one place already: bring them there by other "
            f"means, and `coalface run {method_name(run.method)}`"
        )
    if run.privacy.secure_sum and run.method.types.upload.weight and not run.privacy.most_images:
        raise ConfigError("set privacy.most_images, to the most that a client may hold: nobody here knows it")
    if run.faults.any():
        raise ConfigError("faults are injected into simulations only; real machines bring their own")


def arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--listen", default="127.0.0.1:9092", metavar="HOST:PORT", help="default: this machine only")
    sub.add_argument("--tls-dir", type=Path, required=True, metavar="DIR", help="server.pem and server.key")
    sub.add_argument("--clients", type=Path, required=True, metavar="FILE", help="clients.toml: who may take part")
    sub.add_argument("--patience", type=float, default=60.0, help="seconds to wait for absent clients (default: 60)")
    sub.add_argument("--in-flight", type=int, default=32, help="clients at work at a time; bounds memory (default: 32)")
