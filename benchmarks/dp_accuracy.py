"""Accuracy against ε: methods under user-level noise, on synthetic people with one phone each, all called every round.

    python benchmarks/dp_accuracy.py --search METHOD [--clients 2000] [--seed 100]   # rates, clips and rounds
    python benchmarks/dp_accuracy.py --plan                                # commands, with the noise of each ε
    python benchmarks/dp_accuracy.py --clients N --seed S --methods M … --noise Z …
    python benchmarks/dp_accuracy.py --collect                             # tables and figure of what was measured

Everybody is called in every round and takes one step on its four photographs: so many Gaussian mechanisms compose
exactly, which for the same ε allows less than half the noise of small cohorts under the sampling bound. All cells of a
command start from the same pre-trained network. FedFace and FedFV reveal a template of each client, so that no ε is
stated for them, whatever the noise: they are run with the noise that fedavg has at that ε.

Clips are fixed: numbers that were chosen on other people. A cell is one file in --parts and is not measured again.
Training needs no dp-accounting; --plan and --collect do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dp_rounds import Step, begun, played

from coalface import config, provenance, seeding
from coalface.config import Run
from coalface.experiment import Experiment
from coalface.privacy import account
from coalface.recipes import RECIPES
from coalface.report.drawing import INK, SERIES, Figure, canvas
from coalface.report.figures import save
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table

METHODS = ("fedavg/positive-only", "fedface", "fedfv", "chorus")
REVEAL = ("fedface", "fedfv")
CLIENTS = (1000, 10_000)
EPSILONS = (50.0, 8.0, 2.0)
IMAGES = 4  # of each client
IMAGES_A_ROUND = 1  # of these
ROUNDS = 120
NOISES = (1.2e-4, 4e-4, 1.1e-3)  # on the mean, in clips, over √rounds: ε = 8 and 2 for 10,000 clients; 8 for 1,000
RATES = {"fedavg/positive-only": 2.0, "fedface": 2.0, "fedfv": 0.5, "chorus": 0.5}  # of a client's one step
CLIPS = {"fedavg/positive-only": 0.5, "fedface": 0.5, "fedfv": 0.5, "chorus": 0.5}  # of its change
CHORD = 10.0  # noise on a choir's sum, over that on the sum of updates: next to nothing of the budget is for chords
SCORES = ("accuracy", "tar@0.01")
SEARCHED = {"hinge": (0.25, 0.5, 1.0, 2.0), "softmax": (0.02, 0.05, 0.1)}
WORLD = "easy:standard"  # conditions of the server's public photographs, and of everybody else's
AT_ROUNDS = (15, 30, 60, 120)
FREE = 1000.0  # where ∞ stands in the figure


class Bench:
    """The people, the network and the start of one command."""

    def __init__(self, clients: int, seed: int, device: torch.device, world: str = WORLD) -> None:
        self.run, self.device, self.seed = planned(clients, seed, world), device, seed
        with Progress() as progress, tempfile.TemporaryDirectory() as folder:
            experiment = Experiment(self.run, Path(folder), device, progress, "")
            self.start, _ = experiment.start()
            self.net, self.verification = experiment.net, experiment.verification
        rows = torch.stack([experiment.world.clients[client].rows for client in range(clients)])
        self.images: Tensor = experiment.world.clients.fetched(rows.flatten()).unflatten(0, rows.shape)
        self.before = self.scores(self.start)

    def scores(self, weights: Any) -> dict[str, float]:
        found = self.verification.scores([weights])
        return {name: found[name] for name in SCORES}

    def trained(self, name: str, step: Step, rounds: int, drop: bool = True) -> dict[str, Any]:
        """One method to the end; scores at some rounds, and how long changes were."""
        method = config.method_named(name)()
        luck = torch.Generator(self.device).manual_seed(seeding.derive(self.seed, name, f"{step}"))
        state, curve, norms = begun(method, self.net, self.start, self.images), {}, torch.zeros(1)
        for round_ in range(1, rounds + 1):
            state, norms = played(method, self.net, state, self.images, step, round_ == 1, luck)
            if round_ in AT_ROUNDS or round_ == rounds:
                curve[round_] = self.scores(state.backbone)
            if round_ == 2:
                early = norms.quantile(torch.tensor([0.1, 0.5, 0.9], device=norms.device)).tolist()
        late = norms.quantile(torch.tensor([0.1, 0.5, 0.9], device=norms.device)).tolist()
        return {"curve": curve, "norms in round 2": early, "norms in the last round": late}


def planned(clients: int, seed: int, world: str) -> Run:
    """The demo's start, as in fedface-table1 at CPU size, and so many phones."""
    public, private = world.split(":")
    told = [f"data.clients={clients}", f"data.images_each={IMAGES}", "data.test=300", "data.test_images=6"]
    told += [f"data.public_difficulty={public}", f"data.difficulty={private}"]
    return config.override(replace(RECIPES["demo"](), seed=seed), told)


def epsilon(method: str, clients: int, noise: float, rounds: int) -> float | None:
    """After so many rounds of everybody; None where templates are revealed."""
    if method in REVEAL or not noise:
        return None
    multiplier = account.combined(noise, CHORD * noise) if method == "chorus" else noise
    book = account.Account(multiplier, 0.1 / clients, clients, clients, sample_is_secret=False)
    book.rounds, book.sums_of = rounds, Counter({0: rounds})
    return book.readers()


def noise_of(target: float, clients: int) -> float:
    """The multiplier at which fedavg's rounds come to this ε."""
    low, high = 0.01, 1000.0
    while high / low > 1.002:
        middle = sqrt(low * high)
        found = epsilon(METHODS[0], clients, middle, ROUNDS)
        low, high = (low, middle) if found is not None and found <= target else (middle, high)
    return float(f"{high:.3g}")


def measure(options: argparse.Namespace, device: torch.device) -> None:
    """One command: so many clients, one seed, some methods and noises, from one start."""
    clients, seed, bench = options.clients, options.seed, None
    for name in options.methods:
        for noise in options.noise:
            place = options.parts / f"{name.replace('/', '.')}_{clients}_{noise:g}_{seed}.json"
            if place.exists():
                continue
            bench = bench or Bench(clients, seed, device)
            began, rounds = time.perf_counter(), ROUNDS
            clip = CLIPS[name] if noise else 0.0
            step = Step(RATES[name], clip, noise, CHORD * noise if name == "chorus" else 0.0, IMAGES_A_ROUND)
            found = {
                "method": name, "clients": clients, "noise": noise, "seed": seed, "rounds": rounds,
                "rate": step.rate, "clip": clip, "start": bench.before, **bench.trained(name, step, rounds),
                "seconds": round(time.perf_counter() - began, 1), "made": provenance.describe(device),
            }  # fmt: skip
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(found, indent=1) + "\n")
            print(json.dumps({key: value for key, value in found.items() if key != "made"}), flush=True)


def search(options: argparse.Namespace, device: torch.device) -> None:
    """Rates without noise; then, at the best one, clips under the noise that 10,000 and 1,000 clients have on the mean.

    On people of another seed than any table's. ``relative`` noise is that on the mean, in clips, over √rounds. It looks
    at the clock between two runs, and begins none that would be late.
    """
    began, clients = time.perf_counter(), options.clients
    for world in options.worlds:
        bench = Bench(clients, options.seed, device, world)
        for name in options.search:
            place = options.parts / f"search_{name.replace('/', '.')}_{world.replace(':', '-')}.json"
            rows: list[dict[str, Any]] = []
            kind = "hinge" if hasattr(config.method_named(name)(), "target") else "softmax"
            plans = [(rate, 0.0, 0.0) for rate in options.rates or SEARCHED[kind]]
            while plans:
                longest = max([row["seconds"] for row in rows], default=0.0)
                if time.perf_counter() - began + longest > options.seconds:
                    return
                rate, clip, relative = plans.pop(0)
                noise = relative * sqrt(ROUNDS) * clients
                grouped = CHORD * noise if name == "chorus" else 0.0
                first = time.perf_counter()
                row = {"world": world, "method": name, "clients": clients, "seed": options.seed, "rate": rate,
                       "clip": clip, "relative": relative, "start": bench.before,
                       **bench.trained(name, Step(rate, clip, noise, grouped, IMAGES_A_ROUND), ROUNDS),
                       "seconds": round(time.perf_counter() - first, 1),
                       "made": provenance.describe(device)}  # fmt: skip
                rows.append(row)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps(rows, indent=1) + "\n")
                print(json.dumps({key: value for key, value in row.items() if key != "made"}), flush=True)
                if not plans and not relative:
                    best = max(rows, key=lambda row: row["curve"][ROUNDS]["accuracy"])
                    usual = best["norms in the last round"][2] or best["norms in round 2"][2]  # of a hinge, many are 0
                    plans = [(best["rate"], part * usual, noise) for noise in NOISES for part in (1.0, 0.3)]


def plan(seeds: int) -> None:
    for clients in CLIENTS:
        noises = " ".join(f"{noise_of(target, clients):g}" for target in EPSILONS)
        for seed in range(seeds):
            print(
                f"python benchmarks/dp_accuracy.py --clients {clients} --seed {seed} --methods {' '.join(METHODS)} "
                f"--noise 0 {noises}"
            )


def collect(parts: Path, out: Path, images: Path) -> None:
    """One row for each method, number of clients and noise; seeds together. And the search beside it."""
    found = [json.loads(path.read_text()) for path in sorted(parts.glob("*_*_*_*.json"))]
    if not found:
        raise SystemExit(f"nothing was measured in {parts}: begin with --plan")
    for row in found:
        row["epsilon"] = epsilon(row["method"], row["clients"], row["noise"], row["rounds"])
    made = [row.pop("made") for row in found]
    found.sort(key=lambda row: (row["clients"], METHODS.index(row["method"]), row["noise"], row["seed"]))
    report = {
        "command": "each line of `python benchmarks/dp_accuracy.py --plan`, then `--collect`",
        "what": f"All clients are called in every round, {IMAGES} photographs each in one step; the start, faces and "
        "network of fedface-table1 at CPU size (feduv_cnn_small, 406 thousand parameters, 32 pixels); δ is a tenth of "
        "one over the clients",
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
    header = ["clients", "method", "noise, in clips", "ε", "accuracy, %", "over the start", "TAR@1 %", "over the start"]
    cells = [
        [f"{clients:,}", method, f"{noise:g}", spoken(rows), *both(rows, "accuracy"), *both(rows, "tar@0.01"),
         str(len(rows))]
        for (clients, method, noise), rows in groups.items()
    ]  # fmt: skip
    text = f"# Accuracy against ε\n\n{report['what']}. Verification of 300 people who take no part; mean and standard "
    text += "deviation over the seeds; gains are over each seed's own start.\n\n"
    text += markdown_table(cells, [*header, "seeds"])
    text += f"\n{report['command']}; on {', '.join(report['hardware'])}, {report['date']}, commit "
    (out / "dp_accuracy.md").write_text(f"{text}{', '.join(report['commit'])}.\n")
    save(drawn(groups), images / "dp_accuracy.png")
    searched = [row for path in sorted(parts.glob("search_*.json")) for row in json.loads(path.read_text())]
    if searched:
        (out / "dp_search.json").write_text(json.dumps(searched, indent=1) + "\n")
        (out / "dp_search.md").write_text(search_table(searched))


def drawn(groups: dict[tuple[int, str, float], list[dict[str, Any]]]) -> Figure:
    """Gain against ε, a panel for each number of clients; dashed: the same noise, and no ε. ∞ is without noise."""
    with canvas(5.2, 5.6, len(CLIENTS)) as (figure, panels):
        for clients, axes in zip(CLIENTS, panels, strict=True):
            targets = {noise_of(target, clients): target for target in EPSILONS}
            for colour, method in zip(SERIES, METHODS, strict=False):
                found = {noise: rows for (n, name, noise), rows in groups.items() if (n, name) == (clients, method)}
                points = [(targets.get(noise, FREE), gains(rows)) for noise, rows in found.items()]
                points.sort()
                middle = [statistics.mean(values) for _, values in points]
                around = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in points]
                line = "o--" if method in REVEAL else "o-"
                axes.errorbar(
                    [at for at, _ in points], middle, around, fmt=line, color=colour, label=method, linewidth=1.4,
                    markersize=3.5, capsize=2,
                )  # fmt: skip
            axes.axhline(0, color=INK, linewidth=0.6)
            axes.set_xscale("log")
            axes.set_xticks([*EPSILONS, FREE], [*(f"{target:g}" for target in EPSILONS), "∞"])
            axes.minorticks_off()
            axes.set_xlabel("ε")
            axes.set_title(f"{clients:,} clients", fontsize=9)
            axes.set_ylabel("accuracy over the start, points")
        panels[0].legend(frameon=False, fontsize=7)
    return figure


def gains(rows: list[dict[str, Any]]) -> list[float]:
    return [100 * (row["curve"][str(row["rounds"])]["accuracy"] - row["start"]["accuracy"]) for row in rows]


def search_table(rows: list[dict[str, Any]]) -> str:
    """What the settings were chosen from."""
    cells = []
    rounds = sorted({int(at) for row in rows for at in row["curve"]})
    for row in rows:
        ends = {int(at): scores for at, scores in row["curve"].items()}
        shown = [f"{100 * ends[at]['accuracy']:.1f}, {100 * ends[at]['tar@0.01']:.1f}" if at in ends else "–"
                 for at in rounds]  # fmt: skip
        norm = f"{row['norms in the last round'][1]:.2g}, {row['norms in the last round'][2]:.2g}"
        start = f"{100 * row['start']['accuracy']:.1f}, {100 * row['start']['tar@0.01']:.1f}"
        cells.append(
            [row["world"].replace(":", " → "), row["method"], str(row.get("images", IMAGES_A_ROUND)),
             f"{row['rate']:g}", f"{row['clip']:.2g}" if row["clip"] else "–",
             f"{row['relative']:g}" if row["relative"] else "–", start, *shown, norm]
        )  # fmt: skip
    made = [row["made"] for row in rows]
    header = ["public → private", "method", "images", "rate", "clip", "noise on the mean, in clips, over √rounds",
              "start", *(f"round {at}" for at in rounds), "norms: median, 90 %"]  # fmt: skip
    text = "# Rates and clips for accuracy against ε\n\nOn people of a seed that no table has, "
    text += f"{rows[0]['clients']:,} clients; accuracy and TAR@1 % of 300 people who take no part, one seed. *Public → "
    text += (
        "private*: the conditions of the server's photographs and of everybody else's. *Images*: of each client in a "
    )
    text += "round. The noises are those that 10,000 clients have on the mean at ε = 8 and 2, and 1,000 at ε = 8.\n\n"
    text += markdown_table(cells, header)
    text += f"\n`python benchmarks/dp_accuracy.py --search METHOD` on {made[0]['hardware']}, {made[0]['date']}, commit "
    return f"{text}{', '.join(sorted({entry['commit'] for entry in made}))}.\n"


def both(rows: list[dict[str, Any]], score: str) -> tuple[str, str]:
    """The mean at the end, and what was gained, in points."""
    ends = [100 * row["curve"][str(row["rounds"])][score] for row in rows]
    gains = [end - 100 * row["start"][score] for end, row in zip(ends, rows, strict=True)]
    around = f" ± {statistics.stdev(gains):.1f}" if len(gains) > 1 else ""
    return f"{statistics.mean(ends):.1f}", f"{statistics.mean(gains):+.1f}{around}"


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
    parser.add_argument("--search", nargs="+", choices=METHODS, help="try rates, clips and noises of these methods")
    parser.add_argument("--worlds", nargs="+", default=[WORLD], help="of --search: conditions, public:private")
    parser.add_argument("--rates", nargs="+", type=float, help="of --search")
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="of --search: begin nothing that would take longer"
    )
    parser.add_argument("--collect", action="store_true", help="measure nothing: write tables and figure")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--parts", type=Path, default=Path("out/dp_accuracy"), help="what was measured, and is kept")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    device = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    )
    if options.plan:
        plan(options.seeds)
    elif options.collect:
        collect(options.parts, options.out, options.images)
    elif options.search:
        search(options, device)
    else:
        measure(options, device)


if __name__ == "__main__":
    main()
