"""What the secret forms of FedUV and of random targets cost or gain in accuracy, beside the papers' forms.

    python benchmarks/secret_forms.py [--seeds 0 1 2] [--methods feduv feduv/secret …] [--device cuda]
    python benchmarks/secret_forms.py --collect

Two worlds: from scratch, as in fedfv-table3 at CPU size; and from a pre-trained start, as in fedface-table1. A method,
world and seed is one file in --parts, which is not measured again. What the forms hide: docs/audits.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coalface import provenance
from coalface.config import Run, method_named
from coalface.experiment import Experiment
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table
from coalface.reproduce import fedface, fedfv

METHODS = ("feduv", "feduv/secret", "random_targets", "random_targets/secret")
WORLDS = {"from scratch": fedfv.SCALES["cpu"].run, "pre-trained": fedface.SCALES["cpu"].run}
SCORES = ("accuracy", "tar@0.01")


def planned(world: str, method: str, seed: int) -> Run:
    """The world's run, with test people of its own."""
    run = WORLDS[world]
    data = replace(run.data, test=200, test_images=6, pairs=6000)
    return replace(run, data=data, method=method_named(method)(), seed=seed)


def measure(options: argparse.Namespace) -> None:
    device = torch.device(options.device)
    for seed in options.seeds:
        for world in WORLDS:
            faces, start = None, None
            for method in options.methods:
                place = options.parts / f"{world.replace(' ', '-')}_{method.replace('/', '.')}_{seed}.json"
                if place.exists():
                    continue
                began, run = time.perf_counter(), planned(world, method, seed)
                with Progress(quiet=True) as progress, tempfile.TemporaryDirectory() as folder:
                    experiment = Experiment(run, Path(folder), device, progress, "", loaded=faces)
                    faces = experiment.world
                    start = start or experiment.start()[0]
                    clients = experiment.clients(start, None)
                    outcome = experiment.stages.stage(
                        "federating", Path(folder), run.method, clients, start, run.rounds, run.training, main=True
                    )
                    ends = {
                        "start": experiment.verification.scores([start]),
                        "end": experiment.verification.scores(outcome.models, run.method.head(outcome.server)),
                    }
                found = {
                    "world": world, "method": method, "seed": seed,
                    **{end: {score: found[score] for score in SCORES} for end, found in ends.items()},
                    "seconds": round(time.perf_counter() - began, 1), "made": provenance.describe(device),
                }  # fmt: skip
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps(found, indent=1) + "\n")
                print(json.dumps({key: value for key, value in found.items() if key != "made"}), flush=True)


def collect(parts: Path, out: Path) -> None:
    found = [json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))]
    if not found:
        raise SystemExit(f"nothing was measured in {parts}: run this without --collect first")
    made = [row.pop("made") for row in found]
    found.sort(key=lambda row: (list(WORLDS).index(row["world"]), METHODS.index(row["method"]), row["seed"]))
    report: dict[str, Any] = {
        "command": "python benchmarks/secret_forms.py --device cuda, then --collect",
        "what": "200 clients with one synthetic person each, 32 pixels, feduv_cnn_small: from scratch as in "
        "fedfv-table3, and pre-trained as in fedface-table1, both at CPU size; 200 people who take no part",
        "cells": found,
        "hardware": sorted({entry["hardware"] for entry in made}),
        "commit": sorted({entry["commit"] for entry in made}),
        "date": max(entry["date"] for entry in made),
    }
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["world"], row["method"]), []).append(row)
    cells = []
    for (world, method), rows in groups.items():
        ends = [spread([100 * row["end"][score] for row in rows]) for score in SCORES]
        starts = [f"{statistics.mean(100 * row['start'][score] for row in rows):.1f}" for score in SCORES]
        cells.append([world, method, starts[0], ends[0], starts[1], ends[1], str(len(rows))])
    header = ["", "method", "start: accuracy, %", "accuracy, %", "start: TAR@1 %", "TAR@1 %", "seeds"]
    text = f"# The secret forms beside the papers'\n\n{report['what']}. Mean and standard deviation over the seeds.\n\n"
    text += markdown_table(cells, header)
    text += f"\n`{report['command']}`; on {', '.join(report['hardware'])}, {report['date']}, commit "
    out.mkdir(parents=True, exist_ok=True)
    (out / "secret_forms.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "secret_forms.md").write_text(f"{text}{', '.join(report['commit'])}.\n")


def spread(values: list[float]) -> str:
    around = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{around}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--collect", action="store_true", help="measure nothing: write the table")
    parser.add_argument("--parts", type=Path, default=Path("out/secret_forms"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    if options.collect:
        collect(options.parts, options.out)
    else:
        measure(options)


if __name__ == "__main__":
    main()
