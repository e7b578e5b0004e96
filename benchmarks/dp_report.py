"""Tables and figure of benchmarks/dp_accuracy.py, from what was measured."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from dp_plan import CLIENTS, EPSILONS, IMAGES, IMAGES_A_ROUND, METHODS, REVEAL, ROUNDS, STILL, WORLD, epsilon

from coalface.report.drawing import INK, SERIES, Figure, canvas
from coalface.report.figures import save
from coalface.report.tables import markdown_table

FREE = 300.0  # where ∞ stands in the figure
Rows = list[dict[str, Any]]


def collect(parts: Path, out: Path, images: Path) -> None:
    """One row for each method, number of clients and noise; seeds together. And the search beside it."""
    found = [json.loads(path.read_text()) for path in sorted(parts.glob("*_*_*_*.json"))]
    if not found:
        raise SystemExit(f"nothing was measured in {parts}: measure a seed first")
    for row in found:
        row["epsilon"] = epsilon(row["method"], row["clients"], row["noise"], row["rounds"], row["most"])
    made = [row.pop("made") for row in found]
    found.sort(key=lambda row: (row["clients"], METHODS.index(row["method"]), row["noise"], row["seed"]))
    report = {
        "command": "`python benchmarks/dp_accuracy.py --seed S --device cuda` for S = 0, 1, 2, then `--collect`",
        "what": f"{ROUNDS} rounds of 1,000 clients (FedFV: 500 of 1,000), who take a step on {IMAGES_A_ROUND} of their "
        f"{IMAGES} photographs; the server begins with feduv_cnn_small (406 thousand parameters, 32 pixels), "
        f"which knows 40 public people under {WORLD.split(':')[0]} conditions, everybody else's are "
        f"{WORLD.split(':')[1]}; δ is a tenth of one over the clients",
        "cells": found,
        "hardware": sorted({entry["hardware"] for entry in made}),
        "commit": sorted({entry["commit"] for entry in made}),
        "date": max(entry["date"] for entry in made),
    }
    out.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[int, str, float], Rows] = {}
    for row in found:
        groups.setdefault((row["clients"], row["method"], row["target"]), []).append(row)
    header = ["clients", "method", "rate", "clip", "noise, in clips", "ε", "accuracy, %", "over the start", "TAR@1 %",
              "over the start"]  # fmt: skip
    cells = [
        [f"{clients:,}", method, f"{rows[0]['rate']:g}", f"{rows[0]['clip'] or '–'}", f"{rows[0]['noise']:g}",
         spoken(rows), *both(rows, "accuracy"),
         *both(rows, "tar@0.01"), str(len(rows))]
        for (clients, method, _), rows in groups.items()
    ]  # fmt: skip
    text = f"# Accuracy against ε\n\n{report['what']}. Verification of 300 people who take no part; mean and standard "
    text += "deviation over the seeds; gains are over each seed's own start, which `fedavg/positive-only` and `chorus` "
    text += f"share, as do `fedface` and `fedfv`; `{STILL}` has one of its own.\n\n"
    text += markdown_table(cells, [*header, "seeds"])
    controls = [row for path in sorted(parts.glob("control_*.json")) for row in json.loads(path.read_text())]
    text += control_table(controls) if controls else ""
    text += f"\n{report['command']}; on {', '.join(report['hardware'])}, {report['date']}, commit "
    (out / "dp_accuracy.md").write_text(f"{text}{', '.join(report['commit'])}.\n")
    report["noise alone"] = controls
    (out / "dp_accuracy.json").write_text(json.dumps(report, indent=1) + "\n")
    save(drawn(groups), images / "dp_accuracy.png")
    searched = [row for path in sorted(parts.glob("search_*.json")) for row in json.loads(path.read_text())]
    if searched:
        (out / "dp_search.json").write_text(json.dumps(searched, indent=1) + "\n")
        (out / "dp_search.md").write_text(search_table(searched))


def control_table(rows: Rows) -> str:
    """What the noise of all rounds does by itself."""
    groups: dict[tuple[int, float], Rows] = {}
    for row in rows:
        groups.setdefault((row["clients"], row["target"]), []).append(row)
    cells = [
        [f"{clients:,}", f"{target:g}", f"{several[0]['spread']:.2g}",
         *(f"{statistics.mean(of):+.1f} ± {statistics.stdev(of):.1f}"
           for of in (moved(several, name) for name in ("accuracy", "tar@0.01")))]
        for (clients, target), several in groups.items()
    ]  # fmt: skip
    made, seeds = rows[0]["made"], sorted({row["seed"] for row in rows})
    text = "\n## Noise alone\n\nThe start with the noise of all rounds of `fedavg/positive-only` on each weight, and "
    text += f"nobody's changes. Seeds {seeds}, three draws each; `--control --seed S`, on {made['hardware']}, commit "
    text += f"{made['commit']}.\n\n"
    header = ["clients", "ε", "on each weight", "accuracy, over the start", "TAR@1 %, over the start"]
    return text + markdown_table(cells, header) + "\n"


def moved(rows: Rows, score: str) -> list[float]:
    return [100 * (row["end"][score] - row["start"][score]) for row in rows]


def drawn(groups: dict[tuple[int, str, float], Rows]) -> Figure:
    """Gain against ε, a panel for each number of clients; dashed: the same noise, and no ε. ∞ is without noise."""
    with canvas(5.2, 5.6, len(CLIENTS)) as (figure, panels):
        for clients, axes in zip(CLIENTS, panels, strict=True):
            for colour, method in zip(SERIES, METHODS, strict=False):
                found = {at: rows for (n, name, at), rows in groups.items() if (n, name) == (clients, method)}
                points = sorted((target or FREE, gains(rows)) for target, rows in found.items())
                middle = [statistics.mean(values) for _, values in points]
                around = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in points]
                line = "o--" if method in (*REVEAL, STILL) else "o-"
                axes.errorbar(
                    [at for at, _ in points], middle, around, fmt=line, color=colour, label=method, linewidth=1.4,
                    markersize=3.5, capsize=2,
                )  # fmt: skip
            axes.axhline(0, color=INK, linewidth=0.6)
            axes.set_xscale("log")
            shown = sorted({target for several in EPSILONS.values() for target in several})
            axes.set_xticks([*shown, FREE], [*(f"{target:g}" for target in shown), "∞"])
            axes.minorticks_off()
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("ε")
            axes.set_title(f"{clients:,} clients", fontsize=9)
            axes.set_ylabel("accuracy over the start, points")
        panels[0].legend(frameon=False, fontsize=7)
    return figure


def gains(rows: Rows) -> list[float]:
    return [100 * (row["curve"][str(ROUNDS)]["accuracy"] - row["start"]["accuracy"]) for row in rows]


def search_table(rows: Rows) -> str:
    """What the settings were chosen from: of each method and noise the best is bold."""
    groups: dict[tuple[str, float, float, float], Rows] = {}
    for row in rows:
        groups.setdefault((row["method"], row["rate"], row["clip"], row["target"]), []).append(row)
    best: dict[tuple[str, float], tuple[str, float, float, float]] = {}
    for key, found in groups.items():  # without noise, of what has no clip
        wanted = best.get((key[0], key[3]))
        if (key[3] or not key[2]) and (wanted is None or mean_gain(found) > mean_gain(groups[wanted])):
            best[key[0], key[3]] = key
    targets = [0.0, *sorted({row["target"] for row in rows} - {0.0}, reverse=True)]
    cells = []
    for method, rate, clip in dict.fromkeys(key[:3] for key in groups):
        line = [method, f"{rate:g}", f"{clip:g}" if clip else "none"]
        for target in targets:
            found = groups.get((method, rate, clip, target), [])
            words = f"{both(found, 'accuracy')[1]}, {both(found, 'tar@0.01')[1]}" if found else "–"
            chosen = found and best[method, target] == (method, rate, clip, target)
            line.append(f"**{words}**" if chosen else words)
        norms = [row["norms in the last round"] for row in groups.get((method, rate, clip, 0.0), [])]
        middle, most = (statistics.mean(norm[at] for norm in norms) if norms else float("nan") for at in (1, 2))
        cells.append([*line, f"{middle:.2g}, {most:.2g}" if norms else "–"])
    made, seeds = [row["made"] for row in rows], sorted({row["seed"] for row in rows})
    header = ["method", "rate", "clip", *("no noise" if not at else f"noise of ε = {at:g}" for at in targets)]
    text = "# Rates and clips for accuracy against ε\n\n"
    text += (
        f"{rows[0]['clients']:,} clients of seeds that no table has ({seeds}), all called, {ROUNDS} rounds: points of "
    )
    text += (
        "accuracy, and of TAR@1 %, over the start, on 300 people who take no part. Bold: the most accuracy for this "
    )
    text += (
        "method and noise, which is what [dp_accuracy.md](dp_accuracy.md) uses. The noises are those of 1,000 clients; "
    )
    text += (
        "10,000 have nearly the same on the mean at ε = 8, 2 and 0.5. *Norms*: of changes in the last round, without "
    )
    text += "noise, median and 90 %.\n\n"
    text += markdown_table(cells, [*header, "norms"])
    text += (
        f"\n`python benchmarks/dp_accuracy.py --search METHOD --seed {seeds[0]} --device cuda`, then `--collect`; on "
    )
    text += f"{made[0]['hardware']}, {made[0]['date']}, commit "
    return f"{text}{', '.join(sorted({entry['commit'] for entry in made}))}.\n"


def mean_gain(rows: Rows) -> float:
    return statistics.mean(gains(rows))


def both(rows: Rows, score: str) -> tuple[str, str]:
    """The mean at the end, and what was gained, in points."""
    ends = [100 * row["curve"][str(ROUNDS)][score] for row in rows]
    gains = [end - 100 * row["start"][score] for end, row in zip(ends, rows, strict=True)]
    around = f" ± {statistics.stdev(gains):.1f}" if len(gains) > 1 else ""
    return f"{statistics.mean(ends):.1f}", f"{statistics.mean(gains):+.1f}{around}"


def spoken(rows: Rows) -> str:
    """The ε of some seeds, in words where there is no number."""
    if not rows[0]["noise"]:
        return "∞: no clip, no noise"
    if rows[0]["epsilon"] is None:
        return "none: chords are told" if rows[0]["method"] == STILL else "none: it reveals"
    return f"{max(row['epsilon'] for row in rows):.1f}"
