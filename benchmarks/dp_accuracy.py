"""Accuracy against ε: methods under user-level noise, on synthetic people with one phone each.

    python benchmarks/dp_accuracy.py --search METHOD … --seed 100 [--device cuda]    # rates and clips
    python benchmarks/dp_accuracy.py --account                             # the noise of each ε, for dp_plan.py
    python benchmarks/dp_accuracy.py --seed S [--clients 1000 10000] [--device cuda]
    python benchmarks/dp_accuracy.py --control --seed S                    # what noise alone does
    python benchmarks/dp_accuracy.py --collect                             # tables and figure of what was measured

A thousand clients are called in a round, of 1,000 or of 10,000, and take one step on one of their four photographs.
Where all are called, Gaussian mechanisms compose exactly; of 10,000 the sampling counts. All cells of a command and a
number of clients start from the same pre-trained network. FedFace and FedFV reveal a template of each client, so that
no ε is stated for them, whatever the noise: they are run with the noise on the mean that fedavg has at that ε.

Rates and clips are the best on people of other seeds (--search). A cell is one file in --parts, and is not measured
again.
Training needs no dp-accounting; --account and --collect do.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dp_plan import (
    CHORD,
    CLIENTS,
    EPSILONS,
    IMAGES,
    IMAGES_A_ROUND,
    METHODS,
    NOISE,
    ROUNDS,
    STILL,
    WORLD,
    called,
    noise_of,
    setting,
)
from dp_report import collect
from dp_rounds import Step, begun, drawn, played

from coalface import config, provenance, seeding
from coalface.config import Run
from coalface.experiment import Experiment
from coalface.recipes import RECIPES
from coalface.report.progress import Progress

SCORES = ("accuracy", "tar@0.01")
SEARCHED = {  # rates and clips: around what changes are long
    "fedavg/positive-only": ((0.25, 1.0), (0.02, 0.05, 0.1, 0.2, 0.5)),
    "fedface": ((0.25, 1.0), (0.05, 0.1, 0.2, 0.5, 1.0)),
    "fedfv": ((0.02, 0.05), (0.1, 0.2, 0.5, 1.0, 2.0)),
    "chorus": ((0.02, 0.05), (0.1, 0.2, 0.5, 1.0, 2.0)),
}
AT_ROUNDS = (15, 30, 60, 120)


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

    def trained(self, name: str, step: Step, rounds: int, cohort: int) -> dict[str, Any]:
        """One method to the end; scores at some rounds, how long changes were, and how often anybody was called."""
        method, clients = config.method_named(name.partition(",")[0])(), len(self.images)
        luck = torch.Generator(self.device).manual_seed(seeding.derive(self.seed, name, f"{step}"))
        state, curve, norms = begun(method, self.net, self.start, clients), {}, torch.zeros(1)
        times = torch.zeros(clients, dtype=torch.int64, device=self.device)
        for round_ in range(1, rounds + 1):
            those = drawn(method, clients, cohort, luck)
            times[those] += 1
            state, norms = played(method, self.net, state, self.images, those, step, luck)
            if round_ in AT_ROUNDS or round_ == rounds:
                curve[round_] = self.scores(state.backbone)
            if round_ == 2:
                early = norms.quantile(torch.tensor([0.1, 0.5, 0.9], device=norms.device)).tolist()
        late = norms.quantile(torch.tensor([0.1, 0.5, 0.9], device=norms.device)).tolist()
        told = {"norms in round 2": early, "norms in the last round": late}
        return {"cohort": cohort, "most": int(times.max()), "curve": curve, **told}


def planned(clients: int, seed: int, world: str) -> Run:
    """The demo's start, as in fedface-table1 at CPU size, and so many phones."""
    public, private = world.split(":")
    told = [f"data.clients={clients}", f"data.images_each={IMAGES}", "data.test=300", "data.test_images=6"]
    told += [f"data.public_difficulty={public}", f"data.difficulty={private}"]
    return config.override(replace(RECIPES["demo"](), seed=seed), told)


def measure(options: argparse.Namespace, device: torch.device) -> None:
    """One command: a seed, some numbers of clients, and every method at every ε, from one start for each number.

    It looks at the clock between two cells, and begins none that would be late.
    """
    began, longest = time.perf_counter(), 0.0
    benches: dict[int, Bench] = {}
    for target, clients, name in cells(options.clients, options.methods):
        place = options.parts / f"{name.replace('/', '.').replace(' ', '-')}_{clients}_{target:g}_{options.seed}.json"
        if place.exists():
            continue
        if time.perf_counter() - began + longest > options.seconds:
            return
        bench = benches[clients] = benches.get(clients) or Bench(clients, options.seed, device)
        first, noise = time.perf_counter(), NOISE[clients][name][target] if target else 0.0
        rate, clip = setting(name, clients, target)
        step = Step(rate, clip, noise, CHORD * noise if name == "chorus" else 0.0, IMAGES_A_ROUND)
        found = {
            "method": name, "clients": clients, "target": target, "noise": noise, "seed": options.seed,
            "rounds": ROUNDS, "rate": rate, "clip": clip, "start": bench.before,
            **bench.trained(name, step, ROUNDS, called(name, clients)),
            "seconds": round(time.perf_counter() - first, 1), "made": provenance.describe(device),
        }  # fmt: skip
        longest = max(longest, found["seconds"])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps({key: value for key, value in found.items() if key != "made"}), flush=True)


def cells(several: list[int], methods: list[str]) -> Iterator[tuple[float, int, str]]:
    """ε (0: no noise), clients and method, in the order of what is wanted most."""
    for turn in range(4):
        for clients in sorted(several, reverse=True):
            for name in methods:
                target = (0.0, *EPSILONS[clients])[turn]
                if name != STILL or target in NOISE[clients].get(name, {}):
                    yield target, clients, name


def search(options: argparse.Namespace, device: torch.device) -> None:
    """Rates and clips under each noise, with 1,000 clients of a seed that no table has; it looks at the clock.

    Of 10,000 clients as many are called, so that the noises on the mean are nearly the same, at other ε.
    """
    began, clients = time.perf_counter(), CLIENTS[0]
    bench = Bench(clients, options.seed, device)
    for name in options.search:
        place = options.parts / f"search_{name.replace('/', '.')}_{options.seed}.json"
        rows: list[dict[str, Any]] = []
        for rate, clip, target in plans(name):
            if time.perf_counter() - began + max([row["seconds"] for row in rows], default=0.0) > options.seconds:
                return
            first, noise = time.perf_counter(), NOISE[clients][name][target] if target else 0.0
            step = Step(rate, clip, noise, CHORD * noise if name == "chorus" else 0.0, IMAGES_A_ROUND)
            row = {"method": name, "clients": clients, "seed": options.seed, "rate": rate, "clip": clip,
                   "target": target, "noise": noise, "start": bench.before,
                   **bench.trained(name, step, ROUNDS, called(name, clients)),
                   "seconds": round(time.perf_counter() - first, 1), "made": provenance.describe(device)}  # fmt: skip
            rows.append(row)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(rows, indent=1) + "\n")
            print(json.dumps({key: value for key, value in row.items() if key != "made"}), flush=True)


def plans(name: str) -> Iterator[tuple[float, float, float]]:
    """Rate, clip (0: none) and ε (0: no noise) of everything that is tried."""
    rates, clips = SEARCHED[name]
    for rate in rates:
        yield rate, 0.0, 0.0
    for target in (8.0, 2.0, 0.0, 50.0):
        for clip in clips:
            for rate in rates:
                yield rate, clip, target


def control(options: argparse.Namespace, device: torch.device) -> None:
    """What noise alone does: the start with as much on each weight as all rounds add up to, and nobody's changes."""
    bench, rows = Bench(40, options.seed, device), []
    for clients, target in [(many, target) for many in CLIENTS for target in EPSILONS[many]]:
        noise, (_, clip) = NOISE[clients][METHODS[0]][target], setting(METHODS[0], clients, target)
        spread = noise * clip * sqrt(ROUNDS) / called(METHODS[0], clients)
        for draw in range(3):
            luck = torch.Generator(device).manual_seed(draw)
            noisy = bench.start.map(
                lambda leaf, by=spread, luck=luck: leaf + by * torch.randn(leaf.shape, generator=luck, device=device)
            )
            rows.append({"clients": clients, "target": target, "spread": spread, "draw": draw, "seed": options.seed,
                         "start": bench.before, "end": bench.scores(noisy),
                         "made": provenance.describe(device)})  # fmt: skip
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "made"}), flush=True)
    options.parts.mkdir(parents=True, exist_ok=True)
    (options.parts / f"control_{options.seed}.json").write_text(json.dumps(rows, indent=1) + "\n")


def account() -> None:
    """The noise of each ε, as text for dp_plan.py: the machine that trains need not have dp-accounting."""
    noise = {n: {m: {t: noise_of(t, m, n) for t in EPSILONS[n]} for m in METHODS if m != STILL} for n in CLIENTS}
    print(f"NOISE = {noise}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--control", action="store_true", help="noise alone, on the start of a seed")
    parser.add_argument("--account", action="store_true", help="print the noise of each ε")
    parser.add_argument("--search", nargs="+", choices=SEARCHED, help="try rates and clips of these methods")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin nothing that would take longer")
    parser.add_argument("--collect", action="store_true", help="measure nothing: write tables and figure")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--parts", type=Path, default=Path("out/dp_accuracy"), help="what was measured, and is kept")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    device = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    )
    if options.account:
        account()
    elif options.collect:
        collect(options.parts, options.out, options.images)
    elif options.control:
        control(options, device)
    elif options.search:
        search(options, device)
    else:
        measure(options, device)


if __name__ == "__main__":
    main()
