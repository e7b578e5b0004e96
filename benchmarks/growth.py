"""What registered clients cost when only a hundred are called: start-up, rounds a second and memory, to 100,000.

    python benchmarks/growth.py [--device auto|cpu|cuda] [--out results] [--rounds 200]

A network of two layers and images of 16×16, so that the bookkeeping shows; the cohort is 100, or all of fewer clients.
Each size has a process of its own, over the same memory-mapped faces. Four kinds of federation:

fedavg/positive-only   every registered client has kept something before: the store opens it at start-up, and a round
                       loads, keeps, flushes and prunes. Start-up is that of a resumed run
fedfv                  the server holds a class embedding of every registered client, and draws negatives from them
fedaws                 it holds them too, and sees that no two are too close: the new ones beside all. The first round
                       looks at all pairs, and is one of those before the clock starts
chorus                 clients have kept something, and the server holds the chords of all choirs and sends a hundred

Dealing says who is with which client and writes that down, once a run. Start-up is what follows until the first round.
Rounds are timed whole, with cohort, training, checks, ledger and checkpoints; as large checkpoints are not taken after
every one, the mean is told. Memory is the peak of anonymous memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import models, provenance, seeding, tree
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedavg import PositiveOnly
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedfv import FedFV
from coalface.data.faceset import FaceSet
from coalface.data.partition import split
from coalface.data.population import Population
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net, Weights
from coalface.state_table import StateTable
from coalface.store import Stage

CLIENTS = (10, 100, 1000, 10_000, 100_000)
COHORT, IMAGES, SIZE, EMBEDDING, WARM_UP = 100, 2, 16, 64, 3
METHODS: dict[str, Method] = {
    "fedavg/positive-only": PositiveOnly(),
    "fedfv": FedFV(init="random"),
    "fedaws": FedAwS(spread_max_cos=0.7),  # random directions of 64 numbers are as far apart as those of 512 at 0.3
    "chorus": Chorus(chords=100),
}


def tiny(embedding: int = EMBEDDING, size: int = SIZE) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * (size // 4) ** 2, embedding)
    )


def measure(name: str, clients: int, rounds: int, faces_file: Path, device: torch.device) -> dict[str, float]:
    """Seconds of dealing, of start-up and of a round, and MiB at the peak."""
    method = METHODS[name]
    everything = np.memmap(faces_file, dtype=np.uint8, mode="r+").reshape(-1, 3, SIZE, SIZE)
    images = torch.from_numpy(everything[: clients * IMAGES]).to(device)
    net = Net("tiny")
    weights = net.fresh(0).map(lambda leaf: leaf.to(device))
    with tempfile.TemporaryDirectory() as folder:
        faces = FaceSet(images, torch.arange(0, len(images) + 1, IMAGES))
        if method.types.private is not None:
            everybody_keeps(method, net, weights, faces, Path(folder) / "private")
        began = time.perf_counter()
        partition = split(clients, public=0, clients=clients, test=0, seed=0)
        partition.write_manifest(Path(folder) / "partition.json")
        population = partition.population(faces)
        dealt = time.perf_counter()
        method.check(population)
        stage = Stage(Path(folder), method.types.server, method.types.private, "growth", device)
        stage.resume()
        engine = Stacked(population, stage.private)
        server = method.begin(net, weights, population, seeding.generator(0, "begin"))
        rules = Rounds(rounds=WARM_UP + rounds, cohort=COHORT)
        federation = Federation(method, net, clients, engine, rules, Training(), 0, stage, lambda server: {})
        started = time.perf_counter()
        running = federation.run(server)
        for _ in range(WARM_UP):
            next(running)
        warm = time.perf_counter()
        for _ in range(rounds):
            next(running)
        ended = time.perf_counter()
    return {
        "deal_seconds": dealt - began,
        "start_seconds": started - dealt,
        "round_seconds": (ended - warm) / rounds,
        "peak_mib": peak(device),
    }


def everybody_keeps(method: Method, net: Net, weights: Weights, faces: FaceSet, folder: Path) -> None:
    """What a federation leaves behind in which every client has taken part."""
    population = Population(faces, tuple((client,) for client in range(len(faces))))
    luck = seeding.generator(0, "kept")
    server = method.begin(net, weights, population, luck)
    broadcast = method.broadcast(server, method.open_round(server, [0], luck), 0)
    kept = tree.leaves(method.keep(method.start(net, broadcast, None, population[0], luck).trained))
    StateTable(folder).write(((client, 0), kept) for client in range(len(faces)))


def peak(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status").read_text()
    highest, mapped = (int(status.split(f"{what}:")[1].split()[0]) / 1024 for what in ("VmHWM", "RssFile"))
    return highest - mapped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "CLIENTS", "FACES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    models.MODELS["tiny"] = tiny
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    if options.one:
        method, clients, faces = options.one
        print(json.dumps(measure(method, int(clients), options.rounds, Path(faces), torch.device(name))))
        return
    sizes: dict[str, dict[int, dict[str, float]]] = {method: {} for method in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        faces_file = Path(folder) / "faces.u8"
        generator = np.random.default_rng(0)
        faces_file.write_bytes(generator.integers(0, 256, max(CLIENTS) * IMAGES * 3 * SIZE**2, np.uint8).tobytes())
        for clients in CLIENTS:
            for method in METHODS:
                command = [sys.executable, __file__, "--device", name, "--rounds", str(options.rounds)]
                command += ["--one", method, str(clients), str(faces_file)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr)
                sizes[method][clients] = found = json.loads(done.stdout.splitlines()[-1])
                print(f"{method:>20} {clients:>7} clients  " + "  ".join(f"{k} {v:.4g}" for k, v in found.items()))
    result: dict[str, Any] = {
        "command": f"python benchmarks/growth.py --device {name} --rounds {options.rounds}",
        "what": f"cohort {COHORT}, {IMAGES} images of {SIZE}×{SIZE} a client, two layers, {EMBEDDING} numbers a class "
        "embedding; rounds a second with checks, ledger and checkpoints; peak of anonymous memory, or of the GPU's",
        "methods": {method: [row(clients, found) for clients in CLIENTS] for method, found in sizes.items()},
        **provenance.describe(torch.device(name)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"growth_{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def row(clients: int, found: dict[int, dict[str, float]]) -> dict[str, float]:
    """The figures of one size, and their ratios to those of 100 clients."""
    one, base = found[clients], found[COHORT]
    return {
        "clients": clients,
        "deal_seconds": round(one["deal_seconds"], 4),
        "start_seconds": round(one["start_seconds"], 4),
        "rounds_per_second": round(1 / one["round_seconds"], 2),
        "peak_mib": round(one["peak_mib"], 1),
        "start_seconds_over_100_clients": round(one["start_seconds"] / base["start_seconds"], 3),
        "round_seconds_over_100_clients": round(one["round_seconds"] / base["round_seconds"], 3),
        "memory_over_100_clients": round(one["peak_mib"] / base["peak_mib"], 3),
    }


if __name__ == "__main__":
    main()
