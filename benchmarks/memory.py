"""Peak memory of the sequential engine at 10, 100 and 1,000 clients a round: it must not grow with them.

    python benchmarks/memory.py [--device auto|cpu|cuda] [--out results]

Each size runs in a process of its own, over the same memory-mapped faces. On a GPU the peak is torch's own count; on a
CPU it is the peak of anonymous memory, without the mapped file that all sizes share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance, seeding
from coalface.algorithms.fedavg import PositiveOnly
from coalface.data.faceset import FaceSet
from coalface.data.population import ClientFaces, Population
from coalface.engines.sequential import Sequential
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.models.net import Net
from coalface.store import Stage

CLIENTS = (10, 100, 1000)
IMAGES, SIZE, ROUNDS = 4, 64, 1


def measure(clients: int, faces_file: Path, device: torch.device) -> float:
    """MiB at the peak of a round with all clients."""
    shape = (max(CLIENTS) * IMAGES, 3, SIZE, SIZE)
    images = torch.from_numpy(np.memmap(faces_file, dtype=np.uint8, mode="r+", shape=shape))
    faces = FaceSet(images, torch.arange(0, len(images) + 1, IMAGES))
    population = OnDevice(Population(faces, tuple((i,) for i in range(clients))), device)
    net, method = Net("feduv_cnn", size=SIZE), PositiveOnly()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), method.types.server, method.types.private, "memory", device)
        engine = Sequential(population, stage.private)  # type: ignore[arg-type]
        federation = Federation(
            method, net, clients, engine, Rounds(rounds=ROUNDS), Training(rate=0.01), 0, stage, lambda server: {}
        )
        weights = net.fresh(0).map(lambda leaf: leaf.to(device))
        server = method.begin(net, weights, population.inner, seeding.generator(0, "begin"))
        with Peak(device) as peak:
            for _ in federation.run(server):
                pass
    return peak.mib


class OnDevice:
    """A population on the host, whose clients' images reach the device one client at a time."""

    def __init__(self, inner: Population, device: torch.device) -> None:
        self.inner, self.device = inner, device

    def __getitem__(self, client: int) -> ClientFaces:
        faces = self.inner[client]
        return ClientFaces(faces.images.to(self.device), faces.labels, faces.classes)


class Peak:
    """The highest memory between enter and exit."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.mib, self._done = device, 0.0, threading.Event()

    def __enter__(self) -> Peak:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            self._watch = threading.Thread(target=self._sample)
            self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.device.type == "cuda":
            # What was asked for: the allocator lends up to 1 MiB more with each block that it uses again, by chance.
            self.mib = torch.cuda.memory_stats()["requested_bytes.all.peak"] / 2**20
        else:
            self._done.set()
            self._watch.join()

    def _sample(self) -> None:
        while not self._done.is_set():
            status = Path("/proc/self/status").read_text()
            self.mib = max(self.mib, int(status.split("RssAnon:")[1].split()[0]) / 1024)
            time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--one", nargs=2, metavar=("CLIENTS", "FACES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    if options.one:
        print(measure(int(options.one[0]), Path(options.one[1]), torch.device(name)))
        return
    with tempfile.TemporaryDirectory() as folder:
        faces = Path(folder) / "faces.u8"
        pixels = np.memmap(faces, dtype=np.uint8, mode="w+", shape=(max(CLIENTS) * IMAGES, 3, SIZE, SIZE))
        pixels[:] = np.random.default_rng(0).integers(0, 256, pixels.shape, dtype=np.uint8)
        pixels.flush()
        mib = {}
        for clients in CLIENTS:
            command = [sys.executable, __file__, "--device", name, "--one", str(clients), str(faces)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            mib[clients] = float(done.stdout)
            print(f"{clients:>5} clients  {mib[clients]:8.1f} MiB", flush=True)
    result = {
        "command": f"python benchmarks/memory.py --device {name}",
        "what": "fedavg/positive-only, feduv_cnn 64×64, 4 images a client, one round of all clients, sequential",
        "peak_mib": mib,
        "largest_over_smallest": max(mib.values()) / min(mib.values()),
        **provenance.describe(torch.device(name)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"memory_{name}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
