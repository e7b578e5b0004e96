"""Which settings of the one-identity methods train best, by people who are in no test.

    python benchmarks/one_identity_search.py scratch --seeds 11 --variants "chorus" "FedFV" --out out/search
    python benchmarks/one_identity_search.py real --data PHOTOS --device cuda --out out/search
    python benchmarks/one_identity_search.py drawn --data PHOTOS --device cuda --out out/search
    python benchmarks/one_identity_search.py table --out out/search

scratch   fedfv-table3's clients at CPU size, from scratch
tuning    fedface-table1's clients at CPU size, from a start that knows some faces
real      real-lfw's clients in (a), a hundred of them kept for validation; half the rounds
drawn     the same people, for methods that draw their targets: rates; drawn-b: from (b)'s start, people of CFP
table     what was found so far, as results/one_identity_search.json and .md

Seeds are not those of the tables, so that synthetic clients are other people too. Each variant of each seed leaves one
JSON file. What won is in the methods; what lost stays here, so that the search can be repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from searched_methods import SERVERS_OWN, SearchedChorus, SearchedFedFV

from coalface import seeding
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.feduv import FedUV
from coalface.algorithms.random_targets import RandomTargets
from coalface.data import synthetic
from coalface.data.faceset import FaceSet
from coalface.data.world import CONDITIONS
from coalface.evaluation import Verification
from coalface.models.net import Net
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table
from coalface.reproduce import fedface, fedfv, real_lfw
from coalface.reproduce.artefact import Scale, unseen
from coalface.reproduce.bench import Bench, Row

HELD_OUT = 100  # real people
NAMES: dict[type, str] = {
    SearchedChorus: "chorus",
    SearchedFedFV: "FedFV",
    FedFace: "FedFace",
    FedAwS: "FedAwS",
    FedUV: "FedUV",
    RandomTargets: "random targets",
}


def _row(kind: type, label: str, size: Scale, rate: float = 0.0, **settings: Any) -> Row:
    training = replace(size.run.training, rate=rate) if rate else None
    return Row(f"{NAMES[kind]} {label}".strip(), kind(**settings), training=training)


def scratch_rows(scale: Scale) -> list[Row]:
    """From scratch."""
    weak: dict[str, Any] = {"init": "random", "scale": 4.0}
    middle: dict[str, Any] = {"init": "random", "scale": 8.0, "rate": 0.05}
    sharp: dict[str, Any] = {"init": "random", "scale": 16.0, "rate": 0.02}
    slow, slower, still = {"embedding_rate": 0.1}, {"embedding_rate": 0.03}, {"embedding_rate": 0.001}
    confused: dict[str, Any] = slow | {"repel": 1.0}
    rows = [
        Row("central", central=True),
        _row(FedAwS, "", scale),
        _row(FedAwS, "r0.3", scale, rate=0.3),
    ]
    for kind in (SearchedFedFV, SearchedChorus):
        rows += [
            _row(kind, "weak", scale, **weak),
            _row(kind, "weak slow", scale, **weak, **slow),
            _row(kind, "weak still", scale, **weak, **still),
            _row(kind, "weak slow confused", scale, **weak, **confused),
            _row(kind, "weak slow alone", scale, **weak, **confused, push="alone"),
            _row(kind, "middle slow", scale, **middle, **slow),
            _row(kind, "middle slow confused", scale, **middle, **confused),
            _row(kind, "middle slow centred", scale, **middle, **slow, centred=True),
            _row(kind, "sharp slow", scale, **sharp, **slow),
            _row(kind, "sharp slow r0.05", scale, **(sharp | {"rate": 0.05}), **slow),
            _row(kind, "sharp slower", scale, **sharp, **slower),
            _row(kind, "sharp slow confused", scale, **sharp, **confused),
        ]
    return [
        *rows,
        _row(SearchedFedFV, "weak spread", scale, **weak, spread=5),
        _row(SearchedFedFV, "middle slow spread", scale, **middle, **slow, spread=5),
        _row(SearchedChorus, "middle slow R3", scale, **middle, **slow, groupings=3),
        _row(SearchedChorus, "middle slow confused R3", scale, **middle, **confused, groupings=3),
        _row(SearchedChorus, "weak slow R3", scale, **weak, **slow, groupings=3),
        _row(SearchedChorus, "weak still R3", scale, **weak, **still, groupings=3),
        _row(SearchedChorus, "weak slower R3", scale, **weak, **slower, groupings=3),
        _row(SearchedChorus, "sharp slow R3", scale, **sharp, **slow, groupings=3),
        _row(SearchedChorus, "sharp still R3", scale, **sharp, **still, groupings=3),
        _row(SearchedChorus, "weak slow k8 R4", scale, **weak, **slow, choir=8, groupings=4),
    ]


def tuning_rows(scale: Scale) -> list[Row]:
    """From a start that knows some faces."""
    many, zero = {"spread_iterations": 50}, {"spread_max_cos": 0.0}
    slow: dict[str, Any] = {"embedding_rate": 0.1}
    ours: dict[str, Any] = {"margin": 0.1}
    return [
        Row("start"),
        Row("central", central=True),
        _row(FedFace, "", scale),
        _row(FedFace, "r0.2", scale, rate=0.2),
        _row(FedFace, "r0.5", scale, rate=0.5),
        _row(FedFace, "r1", scale, rate=1.0),
        _row(FedFace, "many r0.5", scale, rate=0.5, **many),
        _row(FedFace, "zero r0.5", scale, rate=0.5, **zero),
        _row(FedFace, "many zero r0.5", scale, rate=0.5, **(many | zero)),
        _row(FedFace, "all the way r0.5", scale, rate=0.5, target=1.0),
        _row(FedFace, "r2", scale, rate=2.0),
        _row(FedFace, "r4", scale, rate=4.0),
        _row(FedFace, "all the way r1", scale, rate=1.0, target=1.0),
        _row(FedFace, "all the way r2", scale, rate=2.0, target=1.0),
        _row(FedFace, "all the way zero r1", scale, rate=1.0, target=1.0, **zero),
        _row(FedFace, "all the way zero r2", scale, rate=2.0, target=1.0, **zero),
        _row(SearchedFedFV, "", scale),
        _row(SearchedFedFV, "slow", scale, embedding_rate=0.1),
        _row(SearchedFedFV, "confused", scale, repel=1.0),
        _row(SearchedFedFV, "r0.02", scale, rate=0.02),
        _row(SearchedFedFV, "r0.01", scale, rate=0.01),
        _row(SearchedFedFV, "weak r0.1", scale, rate=0.1, scale=4.0),
        _row(SearchedFedFV, "slow r0.02", scale, rate=0.02, **slow),
        _row(SearchedFedFV, "random slow r0.02", scale, rate=0.02, init="random", **slow),
        _row(SearchedFedFV, "random weak slow r0.1", scale, rate=0.1, init="random", scale=4.0, **slow),
        _row(SearchedChorus, "", scale, **ours),
        _row(SearchedChorus, "slow", scale, embedding_rate=0.1, **ours),
        _row(SearchedChorus, "confused", scale, repel=1.0, **ours),
        _row(SearchedChorus, "anchors", scale, all_anchors=True, **ours),
        _row(SearchedChorus, "R3", scale, groupings=3, **ours),
        _row(SearchedChorus, "slow R3", scale, embedding_rate=0.1, groupings=3, **ours),
        _row(SearchedChorus, "slow r0.1", scale, rate=0.1, embedding_rate=0.1, **ours),
        _row(SearchedChorus, "R3 r0.02", scale, rate=0.02, groupings=3, **ours),
        _row(SearchedChorus, "R3 r0.01", scale, rate=0.01, groupings=3, **ours),
        _row(SearchedChorus, "R3 weak r0.1", scale, rate=0.1, groupings=3, scale=4.0, margin=0.1),
        _row(SearchedChorus, "R3 slow r0.02", scale, rate=0.02, groupings=3, **slow, **ours),
        _row(SearchedChorus, "R3 random slow r0.02", scale, rate=0.02, groupings=3, init="random", **slow, **ours),
        _row(
            SearchedChorus,
            "R3 random weak slow r0.1",
            scale,
            rate=0.1,
            groupings=3,
            init="random",
            scale=4.0,
            margin=0.1,
            **slow,
        ),
        _row(SearchedChorus, "R3 anchors r0.02", scale, rate=0.02, groupings=3, all_anchors=True, **ours),
        _row(SearchedChorus, "k8 R4 r0.02", scale, rate=0.02, choir=8, groupings=4, **ours),
    ]


def real_rows(scale: Scale) -> list[Row]:
    """Real people."""
    ours: dict[str, Any] = {"margin": 0.1}
    rounds = scale.run.rounds.rounds
    tail = replace(scale.run.training, rate_drops=((rounds * 3 // 5, 0.3), (rounds * 17 // 20, 0.3)))
    return [
        Row("start"),
        Row("central", central=True),
        _row(SearchedFedFV, "", scale),
        _row(SearchedFedFV, "slow", scale, embedding_rate=0.1),
        _row(FedFace, "r0.2", scale, rate=0.2),
        _row(SearchedChorus, "", scale, **ours),
        _row(SearchedChorus, "confused", scale, repel=1.0, **ours),
        _row(SearchedChorus, "alone", scale, repel=1.0, push="alone", **ours),
        _row(SearchedChorus, "R2", scale, groupings=2, **ours),
        _row(SearchedChorus, "R3", scale, groupings=3, **ours),
        _row(SearchedChorus, "k8 R4", scale, choir=8, groupings=4, **ours),
        _row(SearchedChorus, "slow", scale, embedding_rate=0.1, **ours),
        _row(SearchedChorus, "less slow", scale, embedding_rate=0.3, **ours),
        _row(SearchedChorus, "slow R3", scale, embedding_rate=0.1, groupings=3, **ours),
        _row(SearchedChorus, "s24", scale, scale=24.0, **ours),
        _row(SearchedChorus, "anchors", scale, all_anchors=True, **ours),
        _row(SearchedChorus, "k3", scale, choir=3, **ours),
        Row("chorus longer tail", SearchedChorus(**ours), training=tail),
        _row(SearchedChorus, "k8 R4 anchors", scale, choir=8, groupings=4, all_anchors=True, **ours),
    ]


def drawn_rows(scale: Scale) -> list[Row]:
    """Real people, for methods whose targets are drawn and not found: from a good start, do they ever gain?"""
    rates = (0.005, 0.05, 0.2, 1.0)
    rows = [_row(kind, f"r{rate:g}", scale, rate=rate) for kind in (FedUV, FedAwS, RandomTargets) for rate in rates]
    by_features = [_row(FedUV, f"by features r{rate:g}", scale, rate=rate, similarity="embedding") for rate in rates]
    slow = _row(FedAwS, "mean features r0.05", scale, rate=0.05, init="mean_feature")
    return [Row("start"), Row("central", central=True), *rows, *by_features, slow]


@dataclass
class RealSearch(real_lfw.RealBench):
    """(a) or (b) with some of the clients kept for validation."""

    people: tuple[str, ...] = ("cfp", "celeba")  # (b) has those of CFP alone

    def split(self) -> tuple[FaceSet, FaceSet]:
        """Those who train, and those who are looked at; the same for every seed."""
        faces = real_lfw.joined([self.photographs.people(name) for name in self.people])
        order = torch.randperm(len(faces), generator=seeding.generator(0, "validation")).tolist()
        return faces.subset(order[HELD_OUT:]), faces.subset(order[:HELD_OUT])

    def bench(self) -> Bench:
        """One seed."""
        training, kept = self.split()
        world, run = self._world(training), self._run(training)
        public = replace(world, public=self._synthetic())
        start, _ = self._experiment(self.run, self.out / "start", public).start()
        if "celeba" not in self.people:
            start = self._on_celeba(start)
        kept = FaceSet(kept.images.to(self.device), kept.offsets)
        tests = lambda net, device, seed: {"validation": Verification(net, kept, 6000, seed)}  # noqa: E731
        return Bench(run, tests, self.out, self.device, self.progress, self.command, {run.data: world}, start)


def main() -> None:
    """Measure the variants that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=("scratch", "tuning", "real", "drawn", "drawn-b", "table"))
    parser.add_argument("--variants", nargs="+", help="labels; all if left out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11])
    parser.add_argument("--rounds", type=int, default=0, help="0: as many as the table's, half of them for real people")
    parser.add_argument("--data", type=Path, help="packs of photographs, for real")
    parser.add_argument("--cache", type=Path, default=Path("out/photographs"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/search"))
    options = parser.parse_args()
    if options.world == "table":
        write_table(options.out, Path("results"))
        return
    device = torch.device(options.device)
    with Progress(quiet=True) as progress:
        for seed in options.seeds:
            out = options.out / options.world / f"seed{seed}"
            if options.world in ("real", "drawn", "drawn-b"):
                scale = real_lfw.SCALES["paper"]
                rounds = options.rounds or scale.run.rounds.rounds // 2
                run = real_lfw._run(64, "feduv_cnn", 512, rounds, 12)
                scale = replace(scale, run=replace(run, seed=seed))
                photographs = real_lfw.Photographs(options.data, options.cache, 64)
                people = ("cfp",) if options.world == "drawn-b" else ("cfp", "celeba")
                bench = RealSearch(scale.run, photographs, out, device, progress, "search", people).bench()
                rows = real_rows(scale) if options.world == "real" else drawn_rows(scale)
            else:
                scale = (fedfv if options.world == "scratch" else fedface).SCALES["cpu"]
                scale = replace(scale, test_people=200)
                run = replace(scale.run, seed=seed)
                tests = partial(_validation, scale)
                bench = Bench(run, tests, out, device, progress, "search")
                drawn = synthetic.draw_faceset(0, 200, 1, 32, 99, CONDITIONS[run.data.difficulty], str(device))
                SERVERS_OWN["net"] = Net(run.model, run.numerics, embedding=run.embedding, size=run.data.size)
                SERVERS_OWN["images"] = drawn.images
                rows = scratch_rows(scale) if options.world == "scratch" else tuning_rows(scale)
            if options.variants:
                unknown = set(options.variants) - {row.label for row in rows}
                if unknown:
                    raise SystemExit(f"no variant {sorted(unknown)}")
                rows = [row for row in rows if row.label in options.variants]
            for row in rows:
                measured = bench.measure([row])[row.label]
                told = {
                    name: {score: round(value, 4) for score, value in scores.items() if score != "roc"}
                    for name, scores in measured["scores"].items()
                }
                made = {key: measured["made"][key] for key in ("commit", "date", "hardware")}
                line = {"world": options.world, "seed": seed, "variant": row.label, **told, "made": made}
                print(json.dumps(line), flush=True)
                found = options.out / "found" / f"{options.world}-{seed}-{row.label.replace(' ', '_')}.json"
                found.parent.mkdir(parents=True, exist_ok=True)
                found.write_text(json.dumps(line) + "\n")


WORLDS = {
    "real": "Real people, (a): from a server that saw synthetic faces only; 100 people kept for validation, 250 rounds",
    "drawn": "The same people, methods that draw their targets; 100 people kept for validation, 250 rounds",
    "drawn-b": "The same in (b): from a server that saw CelebA too; 100 people of CFP kept for validation, 250 rounds",
    "tuning": "Synthetic people, from a start that knows 40 of them (as in fedface-table1, CPU size)",
    "scratch": "Synthetic people, from scratch (as in fedfv-table3, CPU size)",
}


def write_table(out: Path, results: Path) -> None:
    """Everything found under a folder, the best first."""
    found = [json.loads(file.read_text()) for file in sorted(out.rglob("found/*.json"))]
    if not found:
        raise SystemExit(f"nothing was found under {out}: run scratch, tuning or real first, or name another --out")
    lines = [
        "# Settings of the one-identity methods, on validation people",
        "",
        "Nobody here is in a test, and seeds are not those of the tables. One seed each: differences of a point or two "
        "are noise. What a variant is stands in `benchmarks/one_identity_search.py`.",
    ]
    for world, words in WORLDS.items():
        mine = [row for row in found if row["world"] == world]
        if not mine:
            continue
        tests = [name for name in mine[0] if isinstance(mine[0][name], dict) and name != "made"]
        header = [
            "variant",
            *(f"{test}: {what}" for test in tests for what in ("accuracy", "TAR@1%")),
            "effective rank",
        ]
        mine.sort(key=lambda row: -sum(row[test]["accuracy"] for test in tests))
        rows = []
        for row in mine:
            numbers = [f"{100 * row[test][score]:.1f}" for test in tests for score in ("accuracy", "tar@0.01")]
            rows.append([row["variant"], *numbers, f"{row[tests[0]]['effective_rank']:.1f}"])
        lines += ["", f"## {words}", "", markdown_table(rows, header)]
    places = sorted({f"{row['made']['hardware']}, commit {row['made']['commit']}" for row in found})
    lines += ["", f"`python benchmarks/one_identity_search.py WORLD` on {'; '.join(places)}.", ""]
    (results / "one_identity_search.json").write_text(json.dumps({"found": found}, indent=1) + "\n")
    (results / "one_identity_search.md").write_text("\n".join(lines))


def _validation(scale: Scale, *about: Any) -> Mapping[str, Any]:
    """People of the numbers after the tables' test people."""
    net, device, seed = about
    return unseen(scale, net, device, seeding.derive(seed, "validation"))


if __name__ == "__main__":
    main()
