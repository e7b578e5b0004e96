"""Accuracy against ε: methods under user-level noise, on synthetic people with one phone each.

    python benchmarks/dp_accuracy.py --plan                               # one command a line, with the noise of each ε
    python benchmarks/dp_accuracy.py --method M --clients N --noise Z … [--seed S] [--device auto]
    python benchmarks/dp_accuracy.py --collect                            # the table of everything that was measured

One client in ten is called in a round, each takes four of its photographs in one step, and the clip follows the median
norm. All noises of one command start from the same pre-trained network. FedFace and FedFV reveal a template of each
client, so that no ε is stated for them, whatever the noise: they are run with the noise that fedavg has at that ε.

A cell is one file in --parts and is not measured again. Training needs no dp-accounting; --plan and --collect do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import config, provenance
from coalface.config import Run
from coalface.experiment import Experiment
from coalface.privacy import account, dp
from coalface.recipes import RECIPES
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table

METHODS = ("fedavg/positive-only", "random_targets/secret", "fedface", "fedfv", "chorus")
REVEAL = ("fedface", "fedfv")
CLIENTS = (1000, 10_000)
EPSILONS = (50.0, 8.0, 2.0)
ROUNDS = 60
CALLED = 10  # one client in so many
FIRST_CLIP = 0.1
CHORD = 4.0  # noise on a choir's sum, over that on the sum of updates


class Unaccounted(account.Account):
    """Counts who was in which sum, and states no ε: --collect does."""

    def __init__(self, multiplier: float, delta: float, cohort: int, clients: int, sample_is_secret: bool) -> None:
        self.multiplier, self.delta, self.cohort, self.clients = multiplier, delta, cohort, clients
        self.sample_is_secret, self.rounds, self.sums_of = sample_is_secret, 0, Counter()

    def _readers(self, rounds: int, most: int) -> float:
        return 0.0


def planned(method: str, clients: int, noise: float, seed: int) -> Run:
    """The demo's job with so many phones, and noise."""
    run = replace(RECIPES["demo"](), method=config.method_named(method)(), seed=seed)
    told = [f"data.clients={clients}", f"rounds.cohort={clients // CALLED}", f"rounds.rounds={ROUNDS}"]
    told += [
        f"rounds.evaluate_every={ROUNDS}",
        f"rounds.checkpoint_every={ROUNDS}",
        "central.rounds=1",
        "central.training.batch=1024",
    ]
    told += ["training.rate=0.15", f"training.rate_drops=[[{ROUNDS * 4 // 5}, 0.2]]", "training.images_per_round=4"]
    if noise:
        told += [f"privacy.dp.noise={noise}", f"privacy.dp.clip={FIRST_CLIP}", f"privacy.dp.delta={0.1 / clients}"]
        told += ["privacy.dp.clip_quantile=0.5"] if 10 * noise < clients // CALLED else []
        told += ["privacy.dp.summed_only=true"] if method in REVEAL else []
        told += [f"privacy.dp.group_noise={CHORD * noise}"] if method == "chorus" else []
    return config.override(run, told)


def epsilon(method: str, clients: int, noise: float, rounds: int, most: int) -> float | None:
    """After so many rounds, with nobody in more sums than ``most``; None where templates are revealed."""
    if method in REVEAL or not noise:
        return None
    chorus = method == "chorus"
    multiplier = account.combined(noise, CHORD * noise) if chorus else noise
    book = account.Account(multiplier, 0.1 / clients, clients // CALLED, clients, sample_is_secret=not chorus)
    book.rounds, book.sums_of = rounds, Counter({0: most})
    return book.readers()


def noise_of(target: float, method: str, clients: int) -> float:
    """The multiplier at which so many rounds come to this ε; of a method that reveals, that of fedavg."""
    method = METHODS[0] if method in REVEAL else method
    most = round(ROUNDS / CALLED + 3 * sqrt(ROUNDS / CALLED))  # of a thousand users or more, some are called this often
    low, high = 0.01, 1000.0
    while high / low > 1.01:
        middle = sqrt(low * high)
        found = epsilon(method, clients, middle, ROUNDS, most)
        low, high = (low, middle) if found is not None and found <= target else (middle, high)
    return float(f"{high:.2g}")


def measure(options: argparse.Namespace) -> None:
    """One command: a method, so many clients, some noises, from one start."""
    if not _accountant():
        dp.Account = Unaccounted  # type: ignore[misc]  # of a machine that only trains
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device, faces, start = torch.device(name), None, None
    method, clients, seed = options.method, options.clients, options.seed
    for noise in options.noise:
        cell = f"{method.replace('/', '.')}_{clients}_{noise:g}_{seed}"
        if (options.parts / f"{cell}.json").exists():
            continue
        run, folder, began = planned(method, clients, noise, seed), options.scratch / cell, time.perf_counter()
        run = replace(run, weights=str(start)) if start else run
        with Progress() as progress:
            experiment = Experiment(run, folder, device, progress, "benchmarks/dp_accuracy.py", loaded=faces)
            result, faces = experiment.execute(), experiment.world
        start = start or folder / "start.safetensors"
        ledger = [json.loads(row) for row in (folder / "ledger.jsonl").read_text().splitlines()]
        sums_of = Counter(row["client"] for row in ledger if row["outcome"] == "counted")
        ends = {name: result["metrics"][name]["accuracy"] for name in ("start", "method")}
        found = {
            "method": method, "clients": clients, "noise": noise, "seed": seed,
            "start": ends["start"]["accuracy"], "accuracy": ends["method"]["accuracy"],
            "rounds": ROUNDS, "most": max(sums_of.values()),
            "seconds": round(time.perf_counter() - began, 1), "made": provenance.describe(device),
        }  # fmt: skip
        options.parts.mkdir(parents=True, exist_ok=True)
        (options.parts / f"{cell}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps({key: value for key, value in found.items() if key != "made"}), flush=True)


def _accountant() -> bool:
    try:
        import dp_accounting  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def plan(seeds: int) -> None:
    for clients in CLIENTS:
        for method in METHODS:
            noises = " ".join(f"{noise_of(target, method, clients):g}" for target in EPSILONS)
            for seed in range(seeds):
                print(
                    f"python benchmarks/dp_accuracy.py --method {method} --clients {clients} --seed {seed} "
                    f"--noise 0 {noises}"
                )


def collect(parts: Path, out: Path) -> None:
    """One row for each method, number of clients and noise; seeds together."""
    found = [json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))]
    if not found:
        raise SystemExit(f"nothing was measured in {parts}: begin with --plan")
    for row in found:
        row["epsilon"] = epsilon(row["method"], row["clients"], row["noise"], row["rounds"], row["most"])
    made = [row.pop("made") for row in found]
    found.sort(key=lambda row: (row["clients"], METHODS.index(row["method"]), row["noise"], row["seed"]))
    report = {
        "command": "each line of `python benchmarks/dp_accuracy.py --plan`, then `--collect`",
        "what": f"{ROUNDS} rounds of one client in {CALLED}, four photographs each in one step; the demo's faces and "
        f"network (feduv_cnn_small, 406 thousand parameters, 32 pixels); δ is a tenth of one over the clients",
        "cells": found,
        "hardware": sorted({entry["hardware"] for entry in made}),
        "commit": sorted({entry["commit"] for entry in made}),
        "date": max(entry["date"] for entry in made),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "dp_accuracy.json").write_text(json.dumps(report, indent=1) + "\n")
    groups: dict[tuple[int, str, float], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["clients"], row["method"], row["noise"]), []).append(row)
    cells = []
    for (clients, method, noise), rows in groups.items():
        gains = [100 * (row["accuracy"] - row["start"]) for row in rows]
        gain = f"{statistics.mean(gains):+.1f}" + (f" ± {statistics.stdev(gains):.1f}" if len(gains) > 1 else "")
        accuracy = statistics.mean(row["accuracy"] for row in rows)
        words = [f"{clients:,}", method, f"{noise:g}", spoken(rows), f"{100 * accuracy:.1f}", gain, str(len(rows))]
        cells.append(words)
    header = ["clients", "method", "noise, in clips", "ε", "accuracy, %", "over the start, points", "seeds"]
    text = f"# Accuracy against ε\n\n{report['what']}. Verification of 100 people who take no part.\n\n"
    text += markdown_table(cells, header)
    text += f"\n{report['command']}; on {', '.join(report['hardware'])}, {report['date']}, commit "
    (out / "dp_accuracy.md").write_text(f"{text}{', '.join(report['commit'])}.\n")


def spoken(rows: list[dict[str, Any]]) -> str:
    """The ε of some seeds, in words where there is no number."""
    if not rows[0]["noise"]:
        return "∞: no clip, no noise"
    if rows[0]["epsilon"] is None:
        return "none: it reveals"
    return f"{max(row['epsilon'] for row in rows):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="print the commands")
    parser.add_argument("--seeds", type=int, default=3, help="of --plan")
    parser.add_argument("--collect", action="store_true", help="measure nothing: write the table")
    parser.add_argument("--method", choices=METHODS)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--scratch", type=Path, default=Path("scratch/dp_accuracy"), help="the runs themselves")
    parser.add_argument("--parts", type=Path, default=Path("out/dp_accuracy"), help="what was measured, and is kept")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    if options.plan:
        plan(options.seeds)
    elif options.collect:
        collect(options.parts, options.out)
    elif options.method:
        measure(options)
    else:
        parser.error("one of --plan, --method and --collect")


if __name__ == "__main__":
    main()
