"""Images a second of a simulated federation, as a share of central training's. Ratios from one run.

    python benchmarks/engines.py --device cuda
    python benchmarks/engines.py --models feduv_cnn_small --clients 4 --steps 1 3 --images 6 --seconds 1 --out out

Rows of the same machine that the result already has stay, each with the commit that it was measured at, so that the
table can be made in parts.

For each network, number of clients a round and number of local steps: coalface with the engine that `auto` takes, a
hand-written loop that copies the model for each client, and one that trains a single model in place and keeps the sum
of the changes (the strategy that pfl documents). Central training takes batches of 256 of the same images by the same
network, optimiser, arithmetic and layout in memory. All train FedFace's loss; the loops do nothing else that a
federation does, and run with the smallest number of clients only, since a client costs them the same among any number.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance, seeding
from coalface.algorithms.fedface import FedFace
from coalface.allocator import keep_freed_memory
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.models.net import Net, scaled
from coalface.numerics import Numerics
from coalface.objectives.positive_hinge import positive_hinge
from coalface.report.tables import markdown_table
from coalface.store import Stage

SIZES = {"feduv_cnn": (64, 30), "sphere64": (112, 48), "mobilefacenet": (112, 48)}  # pixels, images a client
RATE, CENTRAL_BATCH, WARM_UPS = 0.01, 256, 3
LONG_WARM_UP = 5.0  # seconds, after which there is no further one
LOOPS = {"copying loop": False, "in-place loop": True}


class Work:
    """The faces of so many clients, and a network; every way of training sees the same."""

    def __init__(self, model: str, clients: int, images: int, size: int, device: torch.device, numerics: Numerics):
        generator = torch.Generator(device).manual_seed(0)
        shape = (clients * images, 3, size, size)
        self.faces = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator, device=device)
        offsets = torch.arange(0, clients * images + 1, images)
        self.population = Population(FaceSet(self.faces, offsets), tuple((i,) for i in range(clients)))
        self.net, self.device, self.clients, self.images = Net(model, numerics, size=size), device, clients, images
        self.start = self.net.fresh(0).map(lambda leaf: leaf.to(device))
        self.target = F.normalize(torch.randn(self.net.embedding, generator=generator, device=device), dim=0)

    def step(self, module: torch.nn.Module, optimiser: torch.optim.Optimizer, images: Tensor) -> None:
        """One plain step, with the arithmetic that coalface takes."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.bf16):
            features = module(scaled(images).contiguous(memory_format=self.layout))
        loss, _ = positive_hinge(features.float(), self.target, 0.9)
        optimiser.zero_grad()
        loss.mean().backward()
        optimiser.step()

    @property
    def bf16(self) -> bool:
        return self.device.type == "cuda" and self.net.numerics.precision == "bf16"

    @property
    def layout(self) -> torch.memory_format:
        """Which coalface takes too."""
        last = self.net.channels_last_on(self.device.type)
        return torch.channels_last if last else torch.contiguous_format

    def module(self) -> Any:
        """An ordinary module of these weights."""
        module = self.net.module(self.start.map(lambda leaf: leaf.clone())).requires_grad_()
        module = module.to(memory_format=self.layout)
        return torch.compile(module, dynamic=False) if self.net.numerics.compiled else module


def central(work: Work) -> Iterator[int]:
    """Full batches for ever; images of each."""
    module = work.module()
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    batch = min(CENTRAL_BATCH, len(work.faces))
    while True:
        for rows in torch.randperm(len(work.faces))[: len(work.faces) // batch * batch].split(batch):
            work.step(module, optimiser, work.faces[rows.to(work.device)])
            yield len(rows)


def loop(work: Work, steps: int, in_place: bool) -> Iterator[int]:
    """Rounds for ever: a client after the other, by a copy of the model or in place."""
    module = work.module()
    batch = -(-work.images // steps)
    while True:
        begun = [leaf.detach().clone() for leaf in module.parameters()]
        total = [torch.zeros_like(leaf) for leaf in begun]
        for client in range(work.clients):
            local = module if in_place else copy.deepcopy(module)
            optimiser = torch.optim.SGD(local.parameters(), lr=RATE)
            mine = work.faces[client * work.images : (client + 1) * work.images]
            for rows in torch.randperm(work.images).split(batch):
                work.step(local, optimiser, mine[rows.to(work.device)])
            with torch.no_grad():
                for sum_, leaf, first in zip(total, local.parameters(), begun, strict=True):
                    sum_.add_(leaf - first)
                    if in_place:
                        leaf.copy_(first)
        with torch.no_grad():
            for leaf, first, sum_ in zip(module.parameters(), begun, total, strict=True):
                leaf.copy_(first + sum_ / work.clients)
        yield work.clients * work.images


def coalface(work: Work, steps: int, folder: Path) -> Iterator[int]:
    """Rounds for ever, with everything that a round of ours does but evaluation; by the engine that `auto` takes."""
    method, batch = FedFace(), 0 if steps == 1 else -(-work.images // steps)
    training = Training(rate=RATE, batch=batch)
    stage = Stage(folder, method.types.server, method.types.private, "engines", work.device)
    engine = Stacked(work.population, stage.private)
    rules = Rounds(rounds=1_000_000, checkpoint_every=1_000_000)
    federation = Federation(method, work.net, work.clients, engine, rules, training, 0, stage, lambda server: {})
    server = method.begin(work.net, work.start, work.population, seeding.generator(0, "begin"))
    for _ in federation.run(server):
        yield work.clients * work.images


def images_per_second(work: Iterator[int], seconds: float, device: torch.device) -> float:
    """After warm-ups, for so many seconds, and one round at least."""
    began = time.perf_counter()
    for done in range(WARM_UPS):
        if not done or time.perf_counter() - began < LONG_WARM_UP:
            next(work)
    _wait(device)
    began, images = time.perf_counter(), 0
    while not images or time.perf_counter() - began < seconds:
        images += next(work)
        _wait(device)
    return images / (time.perf_counter() - began)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--models", nargs="+", default=["feduv_cnn", "sphere64", "mobilefacenet"])
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 64, 1000])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--images", type=int, help="of a client (default: 30 at 64 pixels, 48 at 112)")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="tf32")
    parser.add_argument("--compiled", action="store_true", help="all of them, central training too, by torch.compile")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: 3)")
    parser.add_argument("--no-loops", action="store_true", help="central training and coalface only")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device, numerics = torch.device(name), Numerics(options.precision, compiled=options.compiled)
    numerics.switch_on()
    keep_freed_memory()  # as the command line does
    precision = options.precision if name == "cuda" else "fp32"
    stem = f"engines_{name}_{precision}" + ("_compiled" if options.compiled else "")
    rows = already(options.out / f"{stem}.json", device)
    for model in options.models:
        for clients in options.clients:
            size, images = SIZES.get(model, (32, 10))
            work = Work(model, clients, options.images or images, size, device, numerics)
            reference = images_per_second(central(work), options.seconds, device)
            for steps in options.steps:
                with tempfile.TemporaryDirectory() as folder:
                    ways: dict[str, Callable[[], Iterator[int]]] = {
                        "coalface": partial(coalface, work, steps, Path(folder))
                    }
                    if clients == min(options.clients) and not options.no_loops:
                        ways |= {way: partial(loop, work, steps, in_place) for way, in_place in LOOPS.items()}
                    shares = {
                        way: images_per_second(begin(), options.seconds, device) / reference
                        for way, begin in ways.items()
                    }
                same = {"model": model, "clients": clients, "steps": steps}
                measured = {"central": reference, **shares, "commit": provenance.describe(device)["commit"]}
                rows = joined(rows, same, measured)
                rows.sort(key=lambda row: (row["model"], row["clients"], row["steps"]))
                print(same, {way: round(share, 3) for way, share in shares.items()}, flush=True)
                write(options.out / stem, precision, rows, device)
                gc.collect()  # recorded graphs hold memory until they are gone
                torch.cuda.empty_cache()


def joined(rows: list[dict[str, Any]], same: dict[str, Any], measured: dict[str, Any]) -> list[dict[str, Any]]:
    """The table with this row measured anew. Loops are not ours: without new ones the row keeps those of before."""
    before = [row for row in rows if same.items() <= row.items()]
    loops = {way: row[way] for row in before for way in LOOPS if way in row}
    if loops and not any(way in measured for way in LOOPS):
        measured |= loops | {"loops' commit": before[0].get("loops' commit", before[0]["commit"])}
    return [*(row for row in rows if row not in before), same | measured]


def already(path: Path, device: torch.device) -> list[dict[str, Any]]:
    """The rows of an earlier part of the same table."""
    before = json.loads(path.read_text()) if path.exists() else {}
    rows: list[dict[str, Any]] = before.get("rows", [])
    return rows if before.get("hardware") == provenance.describe(device)["hardware"] else []


def write(stem: Path, precision: str, rows: list[dict[str, Any]], device: torch.device) -> None:
    """What is measured so far, as numbers and as a table."""
    result = {"what": f"share of central images a second, {precision}", "rows": rows, **provenance.describe(device)}
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    known = ("coalface", *LOOPS, "commit", "loops' commit")
    headings = ["model", "clients", "steps", "central", *(way for way in known if any(way in row for row in rows))]
    cells = [[_cell(heading, row.get(heading)) for heading in headings] for row in rows]
    machine = f"{result['hardware']}, {result['date']}, commit {result['commit']}"
    stem.with_suffix(".md").write_text(f"{markdown_table(cells, headings)}\n\n{result['what']}; {machine}.\n")


def _cell(heading: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if heading == "central" else f"{value:.2f}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    main()
