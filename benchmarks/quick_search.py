"""Many settings of FedFace, FedFV and chorus, three seeds each, on validation people.

    python benchmarks/quick_search.py tuning --device cuda --out out/quick/tuning
    python benchmarks/quick_search.py echoes --seeds 12 --out out/quick/echoes
    python benchmarks/quick_search.py longer --device cuda --seeds 12 13 14 --out out/quick/longer
    python benchmarks/quick_search.py sharper --device cuda --seeds 12 13 14 --out out/quick/sharper
    python benchmarks/quick_search.py hinge --device cuda --seeds 12 13 14 --out out/quick/hinge
    python benchmarks/quick_search.py scratch --device cuda --out out/quick/scratch
    python benchmarks/quick_search.py table --out out/quick

tuning    fedface-table1's clients at CPU size, from a start that knows some faces
echoes    the same; chords as they are, or undone into guesses of single voices
longer    the same; more rounds, more clients a round
sharper   the same; chorus in 1,500 rounds with margins, a pull, a push, other choirs
hinge     the same; FedFace with momentum: rates, margins, more rounds and clients
scratch   fedfv-table3's clients at CPU size, from scratch
table     what was found, as results/quick_search.json and .md

The rounds are those of `quick_stack`; start and central training are the real ones. Seeds are not those of the tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from quick_stack import Clients, Setting, trained_together

from coalface import provenance, seeding
from coalface.config import Central, Run
from coalface.experiment import Experiment
from coalface.models.net import Weights
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table
from coalface.reproduce import fedface, fedfv
from coalface.reproduce.artefact import unseen

WORLDS = {
    "tuning": "Synthetic people, from a start that knows 40 of them (as in fedface-table1, CPU size)",
    "echoes": "The same, with momentum; chords as they are, or undone into guesses of single voices",
    "longer": "The same, with momentum; three times the rounds, four times the cohort, everybody in every round",
    "sharper": "The same, with momentum and 1,500 rounds: margins, a hinge that pulls, a push of class embeddings",
    "hinge": "The same, FedFace with momentum: rates, margins between class embeddings, more rounds and clients",
    "scratch": "Synthetic people, from scratch (as in fedfv-table3, CPU size)",
}


def stacks(world: str) -> list[list[Setting]]:
    """Settings that go together, as in `quick_stack`; the most telling stacks first."""
    tried: list[dict[str, Any]]
    hastened = Setting("chorus", rate=0.02, momentum=0.9, margin=0.1)
    choirs = [replace(hastened, choir=8, groupings=4), replace(hastened, choir=4, groupings=2)]
    both = [*choirs, replace(hastened, method="FedFV")]
    if world == "echoes":
        return [[replace(choirs[0], echoes=left_out)] for left_out in ("", "nobody's", "mates'")]
    if world == "longer":
        longer = [replace(each, rounds=1500) for each in both]
        more = [replace(each, cohort=64) for each in both]
        return [[each] for each in (*longer, *more, replace(choirs[0], cohort=200, rate=0.05))]
    if world == "sharper":
        base = replace(choirs[0], rounds=1500)
        more = [replace(base, **changes) for changes in SHARPER]
        wider = replace(base, choir=16, groupings=8)
        centred = [[replace(base, centred=how, margin=m) for m in (0.1, 0.2, 0.3)] for how in ("once", "always")]
        return [more, [wider, replace(wider, margin=0.2)], *centred, [replace(base, margin=0.2, cohort=64)]]
    if world == "hinge":
        base = Setting("FedFace", rate=0.3, momentum=0.9, pull=1.0)
        changed = [{"rate": 0.15}, {}, {"rate": 0.6}, {"spread_max_cos": 0.1}, {"spread_max_cos": 0.0}]
        small = [replace(base, **changes) for changes in (*changed, {"spread_max_cos": 0.1, "rate": 0.6})]
        return [small, *([replace(each, **more) for each in small] for more in ({"rounds": 1000}, {"cohort": 32}))]
    if world == "tuning":
        shapes = [Setting("chorus", choir=8, groupings=4), Setting("FedFV")]
        tried = [{"rate": 0.05}, {"rate": 0.1}]
        tried += [{"rate": rate, "momentum": 0.9} for rate in (0.01, 0.02, 0.05)]
        tried += [{"rate": 0.02, "momentum": 0.9, **more} for more in CHANGES]
    else:
        plain = Setting("FedFV", init="random", rounds=600, cohort=8, drops=((2 / 3, 0.1), (13 / 15, 0.1)))
        shapes = [plain, replace(plain, method="chorus", groupings=2), replace(plain, method="chorus", groupings=3)]
        tried = [
            {"scale": scale, "rate": rate, "embedding_rate": share}
            for scale, rate in ((4.0, 0.1), (8.0, 0.05), (4.0, 0.2))
            for share in (0.1, 0.001)
        ]
        tried += [{"scale": 4.0, "rate": 0.1, "embedding_rate": 0.1, "repel": 1.0}]
        tried += [{"scale": 4.0, "rate": 0.02, "momentum": 0.9, "embedding_rate": share} for share in (0.1, 0.01)]
    return [[replace(shape, **changes) for changes in tried] for shape in shapes]


CHANGES: list[dict[str, Any]] = [{"repel": 1.0}, {"margin": 0.1}, {"embedding_rate": 0.1}, {"scale": 32.0}]

SHARPER: list[dict[str, Any]] = [
    {},
    {"margin": 0.2},
    {"margin": 0.3},
    {"pull": 4.0},
    {"pull": 15.0},
    {"margin": 0.2, "pull": 15.0},
    {"repel": 1.0},
    {"margin": 0.2, "repel": 1.0},
    {"margin": 0.2, "rate": 0.04},
    {"margin": 0.2, "scale": 24.0},
]


def plans(run: Run) -> dict[str, Central]:
    """Central training as in the tables, longer, and at half and double its rate."""
    plan = run.central
    faster = lambda factor: replace(plan, training=replace(plan.training, rate=factor * plan.training.rate))  # noqa: E731

    def longer(times: float) -> Central:
        drops = tuple((int(times * round_), factor) for round_, factor in plan.training.rate_drops)
        return replace(plan, rounds=int(times * plan.rounds), training=replace(plan.training, rate_drops=drops))

    return {
        "": plan,
        ", 7.5 times as long": longer(7.5),
        ", twice as long": longer(2),
        ", half the rate": faster(0.5),
        ", double rate": faster(2.0),
    }


class Searched:
    """One seed of a world."""

    def __init__(self, world: str, seed: int, out: Path, device: torch.device, progress: Progress) -> None:
        scale = replace((fedfv if world == "scratch" else fedface).SCALES["cpu"], test_people=200)
        run = replace(scale.run, seed=seed)
        self.experiment = Experiment(run, out / "starts" / f"{world}-{seed}", device, progress, "search")
        start, _ = self.experiment.start()
        self.clients = Clients(self.experiment.net, self.experiment.world.clients, start)
        self.tests: Any = unseen(scale, self.experiment.net, device, seeding.derive(seed, "validation"))
        self.about = {"world": world, "seed": seed}
        made = provenance.describe(device)
        self.made = {key: made[key] for key in ("commit", "date", "hardware")}

    def centrally(self, name: str) -> Weights:
        """Central training by the real code."""
        folder, plan = self.experiment.out / f"central-{name[2:]}", plans(self.experiment.run)[name]
        done = self.experiment.stages.centrally(
            "central", folder, plan, self.experiment.world.clients, self.clients.start
        )
        return done.models[0]

    def line(self, label: str, weights: Weights, setting: Setting | None = None) -> str:
        """What is written down of a model: numbers only."""
        scores = {name: test.scores([weights]) for name, test in self.tests.items()}
        rounded = {name: {key: round(value, 4) for key, value in of.items()} for name, of in scores.items()}
        told = {"label": label, "setting": asdict(setting) if setting else None, "scores": rounded, "made": self.made}
        return json.dumps(self.about | told)


def main() -> None:
    """Try the settings of a world, for every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=(*WORLDS, "table"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--stacks", type=int, nargs="+", help="only these of the world's stacks, from 0 on")
    parser.add_argument("--central", type=int, default=1, help="so many ways of central training, up to five")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/quick"))
    options = parser.parse_args()
    if options.world == "table":
        write_table(options.out, Path("results"))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with Progress(quiet=True) as progress, (options.out / "found.jsonl").open("a") as found:

        def told(line: str) -> None:
            print(line, flush=True)
            found.write(f"{line}\n")
            found.flush()

        device = torch.device(options.device)
        ready = [Searched(options.world, seed, options.out, device, progress) for seed in options.seeds]
        for one in ready:
            told(one.line("start", one.clients.start))
        every = stacks(options.world)
        for stack in [every[place] for place in options.stacks or range(len(every))]:
            ends = trained_together([one.clients for one in ready], stack, options.seeds[0])
            for (setting, one), weights in zip(product(stack, ready), ends, strict=True):
                told(one.line(setting.label(), weights, setting))
        for name, one in product(list(plans(ready[0].experiment.run))[: options.central], ready):
            told(one.line(f"central{name}", one.centrally(name)))


def write_table(out: Path, results: Path) -> None:
    """Everything found under a folder, the best first."""
    found = [
        {**json.loads(line), "process": file.parent.name}
        for file in sorted(out.rglob("found.jsonl"))
        for line in file.read_text().splitlines()
    ]
    if not found:
        raise SystemExit(f"no found.jsonl under {out}: run a world first, or name another folder by --out")
    lines = [
        "# Settings of the one-identity methods, on validation people",
        "",
        "Nobody here is in a test, and seeds are not those of the tables. Mean ± standard deviation over the seeds, in "
        "percent. A setting is named by what differs from the defaults in `benchmarks/quick_stack.py`. Short training "
        "on a GPU does not repeat bit by bit, so each process has starts of its own: compare within a table.",
    ]
    for world, words in WORLDS.items():
        for process in sorted({row["process"] for row in found if row["world"] == world}):
            mine = [row for row in found if row["world"] == world and row["process"] == process]
            lines += ["", f"## {words}: {process}", "", *_section(mine)]
    places = sorted({f"{row['made']['hardware']}, commit {row['made']['commit']}" for row in found})
    lines += ["", f"`python benchmarks/quick_search.py WORLD` on {'; '.join(places)}.", ""]
    (results / "quick_search.json").write_text(json.dumps({"found": found}) + "\n")
    (results / "quick_search.md").write_text("\n".join(lines))


def _section(mine: list[dict[str, Any]]) -> list[str]:
    """One process's settings, the best first."""
    tests = list(mine[0]["scores"])
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in mine:
        label = row["label"]
        by_label.setdefault(label, []).append(row["scores"])
    columns = [(test, score) for test in tests for score in ("accuracy", "tar@0.001", "tar@0.01")]
    ordered = sorted(by_label.items(), key=lambda item: -_mean(item[1], tests[0], "accuracy"))
    rows = [
        [label, *(_cell(scores, *column) for column in columns), f"{_mean(scores, tests[0], 'effective_rank'):.0f}"]
        for label, scores in ordered
    ]
    called = {"accuracy": "accuracy", "tar@0.001": "TAR@0.1%", "tar@0.01": "TAR@1%"}
    header = ["setting", *(f"{test}: {called[score]}" for test, score in columns), "rank"]
    seeds = sorted({row["seed"] for row in mine})
    return [f"Seeds {', '.join(map(str, seeds))}.", "", markdown_table(rows, header)]


def _mean(several: list[dict[str, Any]], test: str, score: str) -> float:
    return statistics.mean(scores[test][score] for scores in several)


def _cell(several: list[dict[str, Any]], test: str, score: str) -> str:
    values = [100 * scores[test][score] for scores in several]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
