"""A federation on loopback, out of real processes: keys, photographs, and clients that can be started and killed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from coalface.algorithms import METHODS
from coalface.cli import main
from coalface.config import DetectionRun, Run
from coalface.data import own_recordings, world
from coalface.data.attacks import draw_domain
from coalface.data.population import Population
from coalface.report.png import encode_png
from coalface.terms import fingerprint
from tests.end_to_end.conftest import command, environment

EVERYTHING = [f"{name} {fingerprint(kind)}" for name, kind in METHODS.items()]


@dataclass
class Fleet:
    """Keys and photographs in a folder, one sub-folder per client; processes end with the test."""

    folder: Path
    port: int
    names: list[str]
    data: str = "photographs"
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def start(self, *names: str, **changes: object) -> None:
        for name in names or self.names:
            self.write(name, **changes)
            log = (self.folder / name / "output").open("ab")
            arguments = command("join", self.folder / name / "client.toml", "--quiet")
            self.processes[name] = subprocess.Popen(arguments, env=environment(), stdout=log, stderr=log)

    def write(self, name: str, **changes: object) -> None:
        """client.toml; values are JSON, which is TOML for what stands in there."""
        values = {
            "name": name, "server": f"localhost:{self.port}", "data": self.data, "key": "client.key",
            "ca": "ca.crt", "state": "state", "accept": EVERYTHING, "seed": 0, "public": "../public.safetensors",
            "members": "members.pub", **changes,
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines += ["[secure_sum]", "min_cohort = 4", "threshold = 0.6"]
        (self.folder / name / "client.toml").write_text("\n".join(lines))

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def log(self, name: str) -> str:
        file = self.folder / name / "state" / "client.log"
        return file.read_text() if file.exists() else ""

    def serve(self, config: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
        arguments = command(
            "serve", config, "--listen", f"localhost:{self.port}", "--tls-dir", self.server,
            "--clients", self.server / "clients.toml", "--out", out, "--device", "cpu", "--quiet", *more,
        )  # fmt: skip
        with (self.folder / "serve.log").open("ab") as log:
            self.servers.append(subprocess.Popen(arguments, env=environment(), stdout=log, stderr=log))
        return self.servers[-1]


@contextmanager
def fleet(folder: Path, run: Run | DetectionRun) -> Iterator[Fleet]:
    """As many clients as the run has, each with its own photographs, or recordings, of the run's synthetic people."""
    port = free_port()
    given = ["--server", f"localhost:{port}", "--out", str(folder)]
    if isinstance(run, DetectionRun):
        d = run.data
        held = [
            draw_domain(centre, "train", d.subjects, d.videos, d.frames, d.size, run.seed, "cpu")
            for centre in d.sources()
        ]
        names = [f"client{number}" for number in range(len(held))]
        assert main(["keys", *names, *given]) == 0
        for name, recordings in zip(names, held, strict=True):
            own_recordings.save(recordings, folder / name / "recordings.safetensors")
        made = Fleet(folder, port, names, "recordings.safetensors")
    else:
        people = world.load(run.data, run.seed, torch.device("cpu")).clients
        names = [f"client{number}" for number in range(len(people))]
        assert main(["keys", *names, *given, "--identities", str(run.data.identities_each)]) == 0
        write_photographs(folder, names, people)
        made = Fleet(folder, port, names)
    try:
        yield made
    finally:
        for process in (*made.processes.values(), *made.servers):
            process.kill()
            process.wait()


def write_photographs(folder: Path, names: list[str], people: Population) -> None:
    """Each client's faces as PNG, which loses nothing."""
    for client, name in enumerate(names):
        faces = people[client]
        for number, (image, label) in enumerate(zip(faces.images, faces.labels.tolist(), strict=True)):
            place = folder / name / "photographs" / f"person{label}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:03d}.png").write_bytes(encode_png(image))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(happened: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for something, or fail."""
    ends = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.05)
