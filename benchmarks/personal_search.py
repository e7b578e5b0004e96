"""Which settings of FedFR, FedFS and chorus/personal train best, on seeds that are in no table.

    python benchmarks/personal_search.py fedfr-table1 --rows "FedFR, all parts" --tries "training.rate=0.02"
    python benchmarks/personal_search.py table --out out/search

A try is a list of settings ``a.b=c``, divided by spaces, of a row's run; ``--set`` changes what all tries
start from, faces and pre-training included. Each try of each row and seed leaves one JSON file; ``table`` puts all that
was found into results/personal_search.json and .md. Synthetic people of another seed are other people.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import torch

from coalface import config
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table
from coalface.reproduce import ARTEFACTS
from coalface.reproduce.artefact import Artefact, ScaleName
from coalface.reproduce.bench import Row, measured_file

NEVER = range(10)  # seeds of tables


def tried(artefact: Artefact, scale: ScaleName, label: str, settings: str) -> Row:
    """A row of the artefact with other settings, from the same start."""
    chosen = artefact.scales[scale]
    row = next(row for row in artefact.rows(chosen) if row.label == label)
    if row.method is None:
        return row
    run = config.override(row.of(chosen.run), settings.split())
    return replace(
        row,
        label=f"{label} | {settings}" if settings else label,
        method=run.method,
        training=run.training,
        rounds=run.rounds.rounds,
        data=run.data if row.data or run.data != chosen.run.data else None,
        trained_as="",
    )


def told(measured: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a row without its curves."""
    return {
        test: {score: round(value, 4) for score, value in scores.items() if isinstance(value, float)}
        for test, scores in measured["scores"].items()
    }


def public_share(out: Path, row: Row) -> list[float]:
    """The share of public images among those trained on, in the first and in the last round."""
    file = measured_file(out, row).parent / "rounds.jsonl"
    rounds = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    found = [entry["losses"]["public_share"] for entry in rounds if "public_share" in entry["losses"]]
    return [round(found[0], 3), round(found[-1], 3)] if found else []


def search(options: argparse.Namespace) -> None:
    """Measure every try."""
    if set(options.seeds) & set(NEVER):
        raise SystemExit(f"seeds 0 to {NEVER[-1]} are the tables': choose others")
    artefact = ARTEFACTS[options.artefact]
    assert isinstance(artefact, Artefact)
    if options.set:
        artefact = artefact.changed(options.scale, options.set)
    base, began = " ".join(options.set), time.perf_counter()
    place = f"{options.artefact}-{options.scale}-{hashlib.sha256(base.encode()).hexdigest()[:8]}"
    with Progress(quiet=True) as progress:
        for seed in options.seeds:
            out = options.out / place / f"seed{seed}"
            bench = artefact.bench(options.scale, seed, out, torch.device(options.device), progress, "search")
            for settings in options.tries:
                for label in options.rows:
                    if time.perf_counter() - began > options.stop_after:
                        return
                    row = tried(artefact, options.scale, label, settings)
                    measured = bench.measure([row])[row.label]
                    line = {
                        "artefact": options.artefact,
                        "scale": options.scale,
                        "base": base,
                        "row": label,
                        "settings": "" if row.method is None else settings,
                        "seed": seed,
                        "scores": told(measured),
                        "seconds": round(measured.get("seconds", 0.0), 1),
                        "public_share": public_share(out, row),
                        "made": measured["made"],
                    }
                    print(json.dumps(line), flush=True)
                    name = hashlib.sha256(f"{place} {seed} {row.label}".encode()).hexdigest()[:16]
                    found = options.out / "found" / f"{name}.json"
                    found.parent.mkdir(parents=True, exist_ok=True)
                    found.write_text(json.dumps(line) + "\n")


FEDFR: dict[str, tuple[str | None, str]] = {  # heading -> test (None: the first), score
    "1:1 TAR@1e-4": (None, "tar@0.0001"),
    "1:1 TAR@1e-3": (None, "tar@0.001"),
    "personal, Θ_g": ("personal, generic", "tar@0.001"),
    "personal, Θ_l": ("personal, local", "tar@0.001"),
    "personal, own": ("personal", "tar@0.001"),
    "public used": ("public", "used"),
}
FEDFS: dict[str, tuple[str | None, str]] = {
    "AUROC, own": ("personal", "auroc"),
    "AUROC, global": ("personal, generic", "auroc"),
    "AUROC of pairs": ("personal", "auroc_pairs"),
}
COLUMNS = {"fedfr-table1": FEDFR, "fedfr-table2": FEDFR, "chorus-personal": FEDFR, "fedfs-table1": FEDFS}


def write_table(out: Path, results: Path) -> None:
    """Everything found under a folder; a table for each commit, as scales change between them."""
    found = [json.loads(file.read_text()) for file in sorted(out.rglob("found/*.json"))]
    lines = [
        "# Settings of FedFR, FedFS and chorus/personal, on validation seeds",
        "",
        "No seed here is in a table. Numbers in per cent, the mean where a row was measured more than once (each "
        "process trains its own start); one seed moves by a point or two. Settings are changes to the scale at the "
        "commit given.",
    ]
    for world in sorted({_world(one) for one in found}):
        mine = [one for one in found if _world(one) == world]
        columns, rows = COLUMNS[world[1]], []
        share = ["public of a client's images, first → last round"] if columns is FEDFR else []
        for row, settings in sorted({(one["row"], one["settings"]) for one in mine}):
            same = [one for one in mine if (one["row"], one["settings"]) == (row, settings)]
            cells = [_mean([_score(one, *column) for one in same]) for column in columns.values()]
            if columns is FEDFR:
                cells.append(" → ".join(f"{100 * part:.0f}" for part in same[0].get("public_share", ())) or "–")
            rows.append(
                [row, settings or "as it stands", *cells, ", ".join(sorted({str(one["seed"]) for one in same}))]
            )
        commit, artefact, scale, base, hardware = world
        title = f"`{artefact} --scale {scale}`" + (f" with `{base}`" if base else "")
        made = f"Commit {commit}, {hardware}."
        lines += ["", f"## {title}", "", made, "", markdown_table(rows, ["row", "settings", *columns, *share, "seeds"])]
    lines += ["", "`python benchmarks/personal_search.py ARTEFACT --rows … --tries …`", ""]
    (results / "personal_search.json").write_text(json.dumps({"found": found}, indent=1) + "\n")
    (results / "personal_search.md").write_text("\n".join(lines))


def _world(one: dict[str, Any]) -> tuple[str, ...]:
    return one["made"]["commit"], one["artefact"], one["scale"], one["base"], one["made"]["hardware"]


def _score(one: dict[str, Any], test: str | None, score: str) -> float | None:
    scores = one["scores"]
    found: float | None = scores.get(test or next(iter(scores)), {}).get(score)
    return found


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * sum(known) / len(known):.1f}" if known else "–"


def main() -> None:
    """Search, or tell what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artefact", choices=(*COLUMNS, "table"))
    parser.add_argument("--scale", default="cpu")
    parser.add_argument("--rows", nargs="+", default=[], help="labels of rows")
    parser.add_argument(
        "--tries", nargs="+", default=[""], help="settings divided by spaces; an empty text is the scale"
    )
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="for all tries and their start")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--stop-after", type=float, default=inf, metavar="SECONDS", help="begin no try after so long")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/search"))
    options = parser.parse_args()
    if options.artefact == "table":
        write_table(options.out, Path("results"))
    else:
        search(options)


if __name__ == "__main__":
    main()
