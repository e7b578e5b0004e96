"""Accuracy against ε: methods under user-level noise, on synthetic people with one phone each.

    python benchmarks/dp_accuracy.py [--clients N …] [--noise Z …] [--rounds 300] [--device auto] [--out results]

Every cell starts from the same pre-trained network, calls one client in ten a round, and lets the clip follow the
median norm. FedFace and FedFV reveal a template of each client, so that no ε is stated for them, whatever the noise.
Finished cells are kept in the scratch folder, and are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import config, provenance
from coalface.config import Run
from coalface.experiment import Experiment
from coalface.recipes import RECIPES
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table

METHODS = ("fedavg/positive-only", "fedface", "fedfv", "chorus")
REVEAL = ("fedface", "fedfv")
FIRST_CLIP = 0.1


def planned(method: str, clients: int, noise: float, rounds: int, settings: list[str]) -> Run:
    """The demo's job with so many phones, and noise."""
    run = replace(RECIPES["demo"](), method=config.method_named(method)())
    told = [f"data.clients={clients}", f"rounds.cohort={clients // 10}", f"rounds.rounds={rounds}", "central.rounds=1"]
    told += [f"rounds.evaluate_every={rounds}", f"training.rate_drops=[[{rounds * 4 // 5}, 0.2]]"]
    if noise:
        told += [f"privacy.dp.noise={noise}", f"privacy.dp.clip={FIRST_CLIP}", "privacy.dp.clip_quantile=0.5"]
        told += [f"privacy.dp.delta={0.1 / clients}"]
        told += ["privacy.dp.summed_only=true"] if method in REVEAL else []
        told += [f"privacy.dp.group_noise={4 * noise}"] if method == "chorus" else []
    return config.override(run, [*told, *settings])


def cell(run: Run, out: Path, device: torch.device) -> dict[str, Any]:
    """One run's accuracy and ε, from its result."""
    done = out / "result.json"
    if not done.exists():
        with Progress() as progress:
            Experiment(run, out, device, progress, "benchmarks/dp_accuracy.py").execute()
    result = json.loads(done.read_text())
    ends = {name: result["metrics"][name]["accuracy"] for name in ("start", "method")}
    return {
        "start": ends["start"]["accuracy"],
        "accuracy": ends["method"]["accuracy"],
        "interval": ends["method"].get("interval"),
        "epsilon": result["privacy"].get("epsilon"),
        "delta": run.privacy.dp.delta,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change a setting of every cell")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--scratch", type=Path, default=Path("out/dp_accuracy"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    rows: list[dict[str, Any]] = []
    for clients in options.clients:
        for method in METHODS:
            for noise in options.noise:
                run = planned(method, clients, noise, options.rounds, options.set)
                folder = options.scratch / f"{method.replace('/', '.')}_{clients}_{noise:g}"
                start = options.scratch / "start.safetensors"
                run = replace(run, weights=str(start)) if start.exists() else run
                found = cell(run, folder, torch.device(name))
                if not start.exists():  # pre-trained once, by the first cell
                    start.write_bytes((folder / "start.safetensors").read_bytes())
                rows.append({"clients": clients, "method": method, "noise": noise, **found})
                write(rows, options, name)


def write(rows: list[dict[str, Any]], options: argparse.Namespace, device: str) -> None:
    """After every cell, so that a run that is cut short has a table."""
    result = {
        "command": f"python benchmarks/dp_accuracy.py {' '.join(sys.argv[1:])}".strip(),
        "what": f"{options.rounds} rounds of one client in ten, the demo's faces and network",
        "cells": rows,
        **provenance.describe(torch.device(device)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "dp_accuracy.json").write_text(json.dumps(result, indent=2) + "\n")
    cells = [
        [f"{row['clients']:,}", row["method"], f"{row['noise']:g}", epsilon(row), f"{row['start']:.3f}",
         f"{row['accuracy']:.3f}"]
        for row in rows
    ]  # fmt: skip
    table = markdown_table(cells, ["clients", "method", "noise, in clips", "ε", "accuracy at the start", "accuracy"])
    words = f"{result['what']}; δ is a tenth of one over the clients."
    text = f"# Accuracy against ε\n\n`{result['command']}`\n\n{words}\n\n"
    (options.out / "dp_accuracy.md").write_text(text + table + "\n")


def epsilon(row: dict[str, Any]) -> str:
    """In words where there is no number."""
    if not row["noise"]:
        return "∞: no noise"
    return "none: it reveals" if row["epsilon"] is None else f"{row['epsilon']:.2f}"


if __name__ == "__main__":
    main()
