"""Stacked over sequential on a CPU, where it must not lose: rounds of the two take turns within one federation.

    python benchmarks/engines_on_cpu.py [--rounds 24] [--out results]

Methods whose clients hold and send different things, by one step and by several, with equal and unequal numbers of
images; and other networks and sizes with one of them. The ratio is the median over pairs of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance, seeding
from coalface.allocator import keep_freed_memory
from coalface.config import method_named
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.population import Population
from coalface.data.public import Public
from coalface.engines.engine import Reply, Task
from coalface.engines.sequential import Sequential
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.models.net import Net
from coalface.report.tables import markdown_table
from coalface.store import Stage

WARM_UP = 4  # rounds, two of each engine
PUBLIC_PEOPLE, PUBLIC_IMAGES = 10, 6
SETTINGS = {"fedfr": {"public": "all"}}  # it comes with hard ones, of which every round has another number
METHODS = ("fedavg/private-head", "fedface", "fedfv", "chorus", "local_only", "fedfs", "fedfr")


@dataclass(frozen=True)
class Case:
    """What is trained."""

    method: str
    model: str = "feduv_cnn_small"
    size: int = 32
    images: int = 20  # of a client; of the one that has most, if they are unequal
    unequal: bool = False  # the n-th client has a share of 1/n
    batch: int = 0  # images of a step; 0: all of them
    clients: int = 16


CASES = (
    *(Case(method, batch=batch) for method in METHODS for batch in (0, 8)),
    *(Case(method, images=100, unequal=True, batch=batch) for method in ("fedface", "fedfs") for batch in (0, 8)),
    *(
        Case("fedface", "feduv_cnn", 64, images, batch=batch, clients=8)
        for images, batch in ((10, 0), (30, 0), (30, 10))
    ),
    Case("fedface", "mobilefacenet", 112, 16, clients=4),
    *(Case("fedface", "mobilefacenet", 64, 48, batch=batch, clients=4) for batch in (0, 16)),
    *(Case("fedface", "sphere20", 64, 30, batch=batch, clients=6) for batch in (0, 10)),
)


class TakingTurns:
    """Pairs of rounds, one by each, and every other pair the other way round: what drifts is no difference."""

    name = "taking turns"

    def __init__(self, stacked: Stacked, sequential: Sequential) -> None:
        self.engines = (stacked, sequential)

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        return self.engines[task.round // 2 % 2].gather(task, cohort)


def people(case: Case, net: Net) -> Population:
    """Noise for faces, and a few public ones."""
    generator = torch.Generator().manual_seed(0)
    held = [max(2, case.images // (client + 1)) if case.unequal else case.images for client in range(case.clients)]
    counts = torch.tensor([0, *held, *[PUBLIC_IMAGES] * PUBLIC_PEOPLE])
    shape = (int(counts.sum()), 3, case.size, case.size)
    faces = FaceSet(torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator), counts.cumsum(0))
    public = FaceView.of(faces, range(case.clients, case.clients + PUBLIC_PEOPLE))
    clients = tuple((client,) for client in range(case.clients))
    return Population(faces, clients, public=Public(public, backbone=net.fresh(0)))


def ratios(case: Case, rounds: int) -> tuple[str, float, list[float]]:
    """How the stacked engine ran the clients, median seconds of a sequential round, and stacked over sequential."""
    net, method = Net(case.model, size=case.size), method_named(case.method)(**SETTINGS.get(case.method, {}))
    population, training = people(case, net), Training(rate=0.01, batch=case.batch)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), method.types.server, method.types.private, "engines", torch.device("cpu"))
        stacked = Stacked(population, stage.private)
        engine = TakingTurns(stacked, Sequential(population, stage.private))
        last = WARM_UP + 2 * rounds
        rules = Rounds(rounds=last, checkpoint_every=last)
        federation = Federation(method, net, case.clients, engine, rules, training, 0, stage, lambda server: {})
        server = method.begin(net, net.fresh(0), population, seeding.generator(0, "begin"))
        seconds = [entry.seconds for entry, _ in federation.run(server)][WARM_UP:]
    pairs = [  # stacked, sequential
        (one, two) if pair % 2 == 0 else (two, one)
        for pair, (one, two) in enumerate(zip(seconds[::2], seconds[1::2], strict=True))
    ]
    return stacked.form(method, training), statistics.median(two for _, two in pairs), [one / two for one, two in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24, help="of each engine")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    keep_freed_memory()  # as the command line does
    rows = []
    for case in CASES:
        form, seconds, found = ratios(case, options.rounds)
        low, median, high = statistics.quantiles(found, n=4)
        rows.append(asdict(case) | {"form": form, "sequential": seconds, "ratio": median, "quartiles": [low, high]})
        print(f"{case}: {median:.2f} ({low:.2f} to {high:.2f}), {form}", flush=True)
    command = f"python benchmarks/engines_on_cpu.py --rounds {options.rounds}"
    result = {"command": command, "rows": rows, **provenance.describe(torch.device("cpu"))}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "engines_on_cpu.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    cells = [
        [
            case.method,
            f"{case.model}, {case.size} × {case.size}",
            f"{case.clients} × {'up to ' if case.unequal else ''}{case.images}",
            str(case.batch or "all"),
            f"{row['sequential']:.3f}",
            "{:.2f} ({:.2f} to {:.2f})".format(row["ratio"], *row["quartiles"]),
            row["form"].split(":")[0],
        ]
        for case, row in zip(CASES, rows, strict=True)
    ]
    headings = ["method", "network", "clients × images", "step", "sequential, s", "stacked over it", "form"]
    told = f"Median (quartiles) of {options.rounds} pairs of rounds. `{command}`"
    machine = f"{result['hardware']}, {result['date']}, commit {result['commit']}"
    (options.out / "engines_on_cpu.md").write_text(f"{markdown_table(cells, headings)}\n\n{told}; {machine}.\n")


if __name__ == "__main__":
    main()
