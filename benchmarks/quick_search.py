"""Many settings of the one-identity methods, several seeds each, on validation people.

    python benchmarks/quick_search.py tuning --device cuda --seeds 11 12 13 --part 0/2 --out out/quick/t0
    python benchmarks/quick_search.py real-b --device cuda --seeds 11 12 --data PHOTOS --out out/quick/b
    python benchmarks/quick_search.py table --out out/quick

tuning    fedface-table1's clients at CPU size, from a start that knows some faces
scratch   fedfv-table3's clients at CPU size, from scratch
real-a    real-lfw's clients in (a), a hundred of them kept for validation
real-b    real-lfw's clients in (b), sixty of them kept for validation
table     what was found, as results/quick_search.json and .md

The rounds are those of `quick_rounds`; start and central training are the real ones. Seeds are not those of the tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from quick_rounds import Clients, Setting, trained
from quick_stack import trained_together

from coalface import provenance, seeding
from coalface.algorithms.feduv import FedUV
from coalface.config import Central, Run
from coalface.data.faceset import FaceSet
from coalface.evaluation import Verification
from coalface.experiment import Experiment
from coalface.models.net import Weights
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table
from coalface.reproduce import fedface, fedfv, real_lfw
from coalface.reproduce.artefact import unseen
from coalface.reproduce.bench import Bench, Row

HELD_OUT = {"real-a": 100, "real-b": 60}


def tuning() -> list[Setting]:
    """Rates first, with and without momentum; then one thing changed at a time."""
    fedfv, sung, shared = (
        Setting("FedFV", enrolled=True, rate=0.01, momentum=0.9),
        Setting("chorus", enrolled=True, rate=0.01, momentum=0.9, groupings=3),
        Setting("shared", enrolled=True, rate=0.01, momentum=0.9),
    )
    face = Setting("FedFace", enrolled=True, rate=1.0, spread=5)
    found = [
        replace(one, rate=rate, momentum=momentum)
        for rate, momentum in ((0.01, 0.9), (0.05, 0.0), (0.1, 0.0), (0.02, 0.9), (0.2, 0.0), (0.05, 0.9), (0.005, 0.9))
        for one in (fedfv, sung, shared)
    ]
    found += [replace(one, repel=repel) for repel in (1.0, 3.0) for one in (fedfv, sung)]
    found += [replace(one, rounds=rounds) for rounds in (1000, 2000) for one in (fedfv, sung)]
    found += [replace(face, rate=rate) for rate in (1.0, 0.5, 2.0)]
    found += [replace(face, rate=rate, momentum=0.9) for rate in (0.1, 0.2, 0.4)]
    found += [replace(one, embedding_rate=share) for share in (0.1, 10.0, 0.001) for one in (fedfv, sung)]
    found += [replace(one, scale=scale) for scale in (8.0, 32.0) for one in (fedfv, sung)]
    found += [replace(one, margin=margin) for margin in (0.1, 0.2) for one in (fedfv, sung)]
    found += [replace(one, cohort=64) for one in (fedfv, sung)]
    found += [replace(sung, choir=8, groupings=4), replace(sung, groupings=1), replace(sung, choir=8, groupings=7)]
    found += [replace(one, cohort=200, rounds=100, rate=rate) for rate in (0.01, 0.05) for one in (fedfv, sung)]
    found += [replace(face, rounds=rounds) for rounds in (1000, 2000)]
    found += [replace(face, cohort=64), replace(face, target=1.0, spread=20), replace(face, spread_once=50)]
    found += [replace(one, anchors=True) for one in (fedfv, sung)]
    found += [replace(fedfv, fused=1, equivalents=184), replace(fedfv, spread=5), replace(fedfv, enrolled=False)]
    found += [replace(fedfv, embedding_rate=0.001, spread_once=50), replace(fedfv, embedding_rate=0.1, spread_once=50)]
    found += [replace(sung, choir=3, groupings=2), replace(sung, enrolled=False)]
    found += [replace(one, repel=1.0, rounds=2000) for one in (fedfv, sung)]
    found += [replace(one, repel=1.0, rounds=2000, margin=0.1) for one in (fedfv, sung)]
    return found


def scratch() -> list[Setting]:
    """Class embeddings are drawn at random; how sharp, how fast, and how fast the class embeddings themselves."""
    plain = {"init": "random", "rounds": 600, "cohort": 8, "drops": ((2 / 3, 0.1), (13 / 15, 0.1)), "enrolled": True}
    fedfv, sung = Setting("FedFV", **plain), Setting("chorus", groupings=3, **plain)  # type: ignore[arg-type]
    sharp = ((4.0, 0.1), (8.0, 0.05), (16.0, 0.02), (4.0, 0.2), (8.0, 0.1), (16.0, 0.05))
    found = []
    for share, repel in ((0.1, 0.0), (0.001, 0.0), (0.1, 1.0), (0.01, 1.0)):
        for scale, rate in sharp:
            for one in (fedfv, sung):
                found.append(replace(one, scale=scale, rate=rate, embedding_rate=share, repel=repel))
    found += [replace(sung, scale=4.0, rate=0.1, embedding_rate=0.1, choir=8, groupings=4)]
    found += [replace(sung, scale=4.0, rate=0.1, embedding_rate=0.001, choir=8, groupings=4)]
    found += [replace(sung, scale=4.0, rate=0.1, embedding_rate=0.001, choir=8, groupings=7)]
    found += [replace(one, scale=8.0, rate=0.01, momentum=0.9, embedding_rate=0.1) for one in (fedfv, sung)]
    found += [replace(one, scale=4.0, rate=0.02, momentum=0.9, embedding_rate=0.1) for one in (fedfv, sung)]
    return found


def real() -> list[Setting]:
    """As the tables have it, and what might help."""
    fedfv = Setting("FedFV", cohort=32)
    sung = Setting("chorus", cohort=32, choir=8, groupings=4, margin=0.1)
    found = [fedfv, sung, replace(sung, choir=4, groupings=1), replace(sung, choir=4, groupings=3)]
    found += [replace(one, enrolled=True, rate=rate) for rate in (0.05, 0.02, 0.01) for one in (fedfv, sung)]
    found += [replace(one, enrolled=True, rate=0.005, momentum=0.9) for one in (fedfv, sung)]
    found += [replace(one, enrolled=True, rate=0.02, repel=1.0) for one in (fedfv, sung)]
    found += [replace(one, enrolled=True, rate=0.02, embedding_rate=0.1) for one in (fedfv, sung)]
    found += [replace(sung, rate=rate) for rate in (0.1, 0.02)]
    found += [replace(sung, margin=margin) for margin in (0.0, 0.2)]
    found += [replace(one, rounds=1000) for one in (fedfv, sung)]
    found += [replace(sung, scale=scale) for scale in (24.0, 12.0)]
    face = Setting("FedFace", cohort=32, spread=5)
    found += [replace(face, rate=rate, init=init) for rate in (0.2, 1.0, 0.05) for init in ("mean_feature", "random")]  # type: ignore[arg-type]
    return found


def stacks(world: str) -> list[list[Setting]]:
    """Settings that go together, as in `quick_stack`; the most telling stacks first."""
    if world == "tuning":
        shapes = [Setting("chorus", choir=8, groupings=4, enrolled=True), Setting("FedFV", enrolled=True)]
        tried: list[dict[str, Any]] = [{"rate": 0.05}, {"rate": 0.1}]
        tried += [{"rate": rate, "momentum": 0.9} for rate in (0.01, 0.02, 0.05)]
        tried += [{"rate": 0.02, "momentum": 0.9, **more} for more in CHANGES]
    else:
        plain = Setting(
            "FedFV", init="random", rounds=600, cohort=8, drops=((2 / 3, 0.1), (13 / 15, 0.1)), enrolled=True
        )
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
GRIDS = {"tuning": tuning, "scratch": scratch, "real-a": real, "real-b": real}


def prepared(world: str, seed: int, options: argparse.Namespace, progress: Progress) -> Any:
    """The clients, the validation tests, the experiment that has them, and its run."""
    device = torch.device(options.device)
    out = options.out / "starts" / f"{world}-{seed}"
    if world in ("tuning", "scratch"):
        scale = replace((fedface if world == "tuning" else fedfv).SCALES["cpu"], test_people=200)
        run = replace(scale.run, seed=seed)
        experiment = Experiment(run, out, device, progress, "search")
        start, proxies = experiment.start()
        tests: Mapping[str, Any] = unseen(scale, experiment.net, device, seeding.derive(seed, "validation"))
        return Clients(experiment.net, experiment.world.clients, start, proxies), tests, experiment
    run = replace(real_lfw.SCALES["paper"].run, seed=seed)
    photographs = real_lfw.Photographs(options.data, options.cache, run.data.size)
    bench = real_lfw.RealBench(run, photographs, out, device, progress, "search")
    faces = real_lfw.joined(
        [photographs.people(name) for name in (("cfp", "celeba") if world == "real-a" else ("cfp",))]
    )
    order = torch.randperm(len(faces), generator=seeding.generator(0, "validation")).tolist()
    kept, training = faces.subset(order[: HELD_OUT[world]]), faces.subset(order[HELD_OUT[world] :])
    drawn = replace(bench._world(training), public=bench._synthetic())
    start, proxies = bench._experiment(run, out / "start", drawn).start()
    if world == "real-b":
        start, proxies = bench._on_celeba(start), None
    experiment = bench._experiment(replace(run, data=replace(run.data, clients=len(training))), out, drawn)
    kept = FaceSet(kept.images.to(device), kept.offsets)
    tests = {"validation": Verification(experiment.net, kept, 6000, seed)}
    return Clients(experiment.net, drawn.clients, start, proxies, run.training.images_per_round), tests, experiment


def centrally(experiment: Experiment, start: Weights, plan: Central, name: str) -> Weights:
    """Central training by the real code."""
    folder = experiment.out / f"central-{name}"
    done = experiment.stages.centrally("central", folder, plan, experiment.world.clients, start)
    return done.models[0]


def plans(run: Run) -> dict[str, Central]:
    """Central training as in the tables, and at half and double its rate, and twice as long."""
    plan = run.central
    faster = lambda factor: replace(plan, training=replace(plan.training, rate=factor * plan.training.rate))  # noqa: E731
    drops = tuple((2 * round_, factor) for round_, factor in plan.training.rate_drops)
    longer = replace(plan, rounds=2 * plan.rounds, training=replace(plan.training, rate_drops=drops))
    return {"": plan, ", twice as long": longer, ", half the rate": faster(0.5), ", double rate": faster(2.0)}


def others(run: Run) -> list[Row]:
    """FedUV at several rates: few, so they go through the federation itself."""
    rates = (0.05, 0.2, 1.0, 0.01)
    return [Row(f"FedUV, rate {rate:g}", FedUV(), training=replace(run.training, rate=rate)) for rate in rates]


def main() -> None:
    """Try the settings of one part of a grid, for every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=("tuning", "scratch", "real-a", "real-b", "table"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--part", default="0/1", help="which part of the grid, of how many")
    parser.add_argument("--central", type=int, default=0, help="so many ways of central training, instead of the grid")
    parser.add_argument("--stack", action="store_true", help="many settings and seeds at once instead of the grid")
    parser.add_argument("--others", action="store_true", help="FedUV instead of the grid")
    parser.add_argument("--data", type=Path, help="packs of photographs, for real-…")
    parser.add_argument("--cache", type=Path, default=Path("out/photographs"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", type=json.loads, help="one setting as JSON instead of the grid")
    parser.add_argument("--out", type=Path, default=Path("out/quick"))
    options = parser.parse_args()
    if options.world == "table":
        write_table(options.out, Path("results"))
        return
    part, parts = map(int, options.part.split("/"))
    grid = [Setting(**options.only)] if options.only else GRIDS[options.world]()[part::parts]
    made = provenance.describe(torch.device(options.device))
    options.out.mkdir(parents=True, exist_ok=True)
    with Progress(quiet=True) as progress, (options.out / "found.jsonl").open("a") as found:
        ready: dict[int, Any] = {}
        for seed in options.seeds:
            ready[seed] = prepared(options.world, seed, options, progress)

        def told(seed: int, label: str, scores: Mapping[str, Any], setting: Any, began: float) -> None:
            line = {
                "world": options.world,
                "seed": seed,
                "label": label,
                "setting": setting,
                "scores": {n: {k: round(v, 4) for k, v in of.items() if k != "roc"} for n, of in scores.items()},
                "seconds": round(time.perf_counter() - began, 1),
                "made": {key: made[key] for key in ("commit", "date", "hardware")},
            }
            print(json.dumps(line), flush=True)
            found.write(json.dumps(line) + "\n")
            found.flush()

        def quick(seed: int, weights: Weights) -> dict[str, Any]:
            return {name: test.scores([weights]) for name, test in ready[seed][1].items()}

        for seed in options.seeds:
            told(seed, "start", quick(seed, ready[seed][0].start), None, time.perf_counter())
        if options.others:
            for row, seed in product(others(ready[options.seeds[0]][2].run), options.seeds):
                began = time.perf_counter()
                clients, tests, experiment = ready[seed]
                run = experiment.run
                bench = Bench(
                    run,
                    lambda *about, tests=tests: tests,
                    experiment.out,
                    experiment.device,
                    progress,
                    "search",
                    {run.data: experiment.world},
                    clients.start,
                )
                told(seed, row.label, bench.measure([row])[row.label]["scores"], None, began)
            return
        for stack in stacks(options.world)[part::parts] if options.stack else ():
            began = time.perf_counter()
            ends = trained_together([ready[seed][0] for seed in options.seeds], stack, options.seeds[0])
            for (setting, seed), weights in zip(product(stack, options.seeds), ends, strict=True):
                told(seed, setting.label(), quick(seed, weights), asdict(setting), began)
        if options.central:
            for name, seed in product(list(plans(ready[options.seeds[0]][2].run))[: options.central], options.seeds):
                clients, _, experiment = ready[seed]
                for plan in (plans(experiment.run)[name],):
                    began = time.perf_counter()
                    weights = centrally(experiment, clients.start, plan, name[2:])
                    told(seed, f"central{name}", quick(seed, weights), None, began)
        for setting in (
            () if options.stack or options.central else grid
        ):  # the first ones of every seed before the rest of one
            for seed in options.seeds:
                began = time.perf_counter()
                told(seed, setting.label(), quick(seed, trained(ready[seed][0], setting, seed)), asdict(setting), began)


WORLDS = {
    "tuning": "Synthetic people, from a start that knows 40 of them (as in fedface-table1, CPU size)",
    "scratch": "Synthetic people, from scratch (as in fedfv-table3, CPU size)",
    "real-a": "Real people, (a): from a server that saw synthetic faces only; 100 people kept for validation",
    "real-b": "Real people, (b): from a server that saw CelebA too; 60 people of CFP kept for validation",
}


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
        "percent. A setting is named by what differs from the defaults in `benchmarks/quick_rounds.py`. Short training "
        "on a GPU does not repeat bit by bit, so each process has starts of its own: compare within a table.",
    ]
    for world, words in WORLDS.items():
        for process in sorted({row["process"] for row in found if row["world"] == world}):
            mine = [row for row in found if row["world"] == world and row["process"] == process]
            lines += ["", f"## {words}: {process}", "", *_section(mine)]
    places = sorted({f"{row['made']['hardware']}, commit {row['made']['commit']}" for row in found})
    lines += ["", f"`python benchmarks/quick_search.py WORLD --stack` on {'; '.join(places)}.", ""]
    (results / "quick_search.json").write_text(json.dumps({"found": found}) + "\n")
    (results / "quick_search.md").write_text("\n".join(lines))


def _section(mine: list[dict[str, Any]]) -> list[str]:
    """One process's settings, the best first."""
    tests = list(mine[0]["scores"])
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in mine:
        label = Setting(**row["setting"]).label() if row["setting"] else row["label"]
        by_label.setdefault(label, []).append(row["scores"])
    columns = [(test, score) for test in tests for score in ("accuracy", "tar@0.01")]
    ordered = sorted(by_label.items(), key=lambda item: -_mean(item[1], tests[0], "accuracy"))
    rows = [
        [label, *(_cell(scores, *column) for column in columns), f"{_mean(scores, tests[0], 'effective_rank'):.0f}"]
        for label, scores in ordered
    ]
    header = ["setting", *(f"{test}: {'accuracy' if s == 'accuracy' else 'TAR@1%'}" for test, s in columns), "rank"]
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
