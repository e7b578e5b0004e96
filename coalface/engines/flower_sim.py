"""Flower's own simulation engine around the same round: its virtual nodes on Ray, its grid in memory.

Slower than the engines of this project, and here so that those who know Flower can compare. The clients are those of a
deployment, in Ray's processes: each with a folder of its own below the run's, where its images, its state and its
seed are. Any virtual node plays any client: a call says for whom it is.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from coalface.config import ConfigError, DetectionRun, Run, method_name
from coalface.data import centres, public_file, world
from coalface.data.attacks import draw_domain
from coalface.data.held_file import HELD, save_held
from coalface.data.population import Population
from coalface.detection import Detection
from coalface.engines.flower_client import handler
from coalface.engines.flower_messages import Call, unpack
from coalface.engines.flower_server import Fleet
from coalface.experiment import Experiment
from coalface.participant import Participant
from coalface.registry import Client
from coalface.report.progress import Progress
from coalface.terms import fingerprint
from coalface.verbs.serve import refuse_what_is_not_served

FOLDER = "clients"  # below the run's


def simulate(run: Run | DetectionRun, out: Path, device: torch.device, progress: Progress, command: str) -> Any:
    """The run's result, with its clients in Flower's simulation engine."""
    refuse_what_is_not_served(run)
    if run.privacy.secure_sum:
        raise ConfigError(
            "Flower's simulation gives each call to any of its processes, so that nobody remembers the secrets of a "
            "secure sum: use --engine auto, or `coalface serve` and `coalface join`"
        )
    results: list[Any] = []
    kind: Any
    given: dict[str, Any]
    if isinstance(run, DetectionRun):
        recordings = centres.load(run.data, run.seed, device, draw_domain)
        kind, given, people = Detection, {"world": recordings}, recordings.clients
    else:
        faces = world.load(run.data, run.seed, device)
        kind, given, people = Experiment, {"loaded": faces}, faces.clients
    server = ServerApp()

    @server.main()
    def federate(grid: Grid, context: Context) -> None:
        while len(nodes := sorted(grid.get_node_ids())) < len(people):  # they are registered beside us
            time.sleep(0.05)
        fleet = VirtualFleet(grid, nodes, people)
        try:
            results.append(kind(run, out, device, progress, command, remote=fleet, **given).execute())
        except ValueError as error:
            raise ConfigError(str(error)) from error

    hand_out(people, out / FOLDER)
    accept = f"{method_name(run.method)} {fingerprint(run.method)}"
    client = client_app(Client(data=HELD, state="state", accept=(accept,), seed=run.seed), out)
    cores = os.cpu_count() or 1
    run_simulation(
        server,
        client,
        num_supernodes=len(people),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "log_to_driver": False, "include_dashboard": False},
        },
    )
    return results[0]


class VirtualFleet(Fleet):
    """Implements ``stages.Remote``; what differs from machines is its name in the result."""

    def engine(self, run: Any, stage: Any, population: Population) -> Any:
        engine = super().engine(run, stage, population)
        if engine.name == "flower":
            engine.name = "flower-sim"
        return engine


def hand_out(people: Population, folder: Path) -> None:
    """Each client's images into its own folder."""
    for client in range(len(people)):
        file = folder / str(client) / HELD
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            save_held(people[client], file)


def client_app(like: Client, out: Path) -> ClientApp:
    """What Ray's processes run. It goes to them with every call: it holds settings, and nobody's images."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        call, _ = unpack(Call, message.content)
        told: RecordDict = handler(participant(like, out, call.client))(message.metadata.message_type, message.content)
        return Message(told, reply_to=message)

    app.train()(answer)
    app.query("collect")(answer)
    return app


@lru_cache(maxsize=64)
def participant(like: Client, out: Path, client: int) -> Participant:
    """A client of the simulation in one of Ray's processes; what it must not forget is in its folder."""
    torch.set_num_threads(1)
    home = out / FOLDER / str(client)
    places = {"data": str(home / like.data), "state": str(home / like.state), "public": str(out / public_file.NAME)}
    return Participant(replace(like, name=str(client), **places), torch.device("cpu"))  # type: ignore[arg-type]
