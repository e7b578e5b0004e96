"""What a reproduction leaves behind: result.json, the table beside the paper's, and the figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coalface.config import to_json
from coalface.report import figures as pictures
from coalface.report.tables import markdown_table
from coalface.reproduce.artefact import Artefact, Figures, ScaleName
from coalface.reproduce.bench import Row
from coalface.store import write_atomically

Measured = dict[str, dict[str, Any]]  # label -> a row's measurements, of one seed


def as_result(
    artefact: Artefact,
    scale: ScaleName,
    rows: Sequence[Row],
    by_seed: dict[int, Measured],
    command: str,
) -> dict[str, Any]:
    """All seeds of an artefact as plain JSON values; no scores of single pairs, no embeddings."""
    columns = {heading: artefact.column(scale, heading) for heading in artefact.columns}
    first = next(iter(by_seed.values()))
    return {
        "what": artefact.what,
        "scale": scale,
        "remarks": artefact.remarks,
        "command": command,
        "seeds": list(by_seed),
        "columns": list(columns),
        "printed_columns": list(artefact.printed_columns),
        "between": dict(artefact.between),
        "rows": [
            {
                "label": row.label,
                "printed": list(row.printed),
                "ours": {
                    heading: [row.score(measured[row.label], test, score) for measured in by_seed.values()]
                    for heading, (test, score) in columns.items()
                },
                "effective_rank": [
                    next(iter(measured[row.label]["scores"].values()))["effective_rank"]
                    for measured in by_seed.values()
                ],
                "public_used": [
                    measured[row.label]["scores"].get("public", {}).get("used") for measured in by_seed.values()
                ],
                "images": first[row.label].get("images"),
                "seconds": [measured[row.label].get("seconds") for measured in by_seed.values()],
                "engine": first[row.label].get("engine"),
                "roc": {test: scores["roc"] for test, scores in first[row.label]["scores"].items() if "roc" in scores},
                "class_cosines": first[row.label].get("class_cosines"),
                "settings_sha256": row.fingerprint(artefact.scales[scale].run),
            }
            for row in rows
        ],
        "run": to_json(artefact.scales[scale].run),
        "made": machines(by_seed),
    }


def write(artefact: Artefact, result: dict[str, Any], folder: Path) -> str:
    """Write everything into a folder; the table as text."""
    return save(folder, as_markdown(result), json.dumps(result, indent=1), result, artefact.figures)


def save(folder: Path, table: str, data: str, result: dict[str, Any], figures: Figures | None) -> str:
    """The table as text, its numbers as JSON ``data``, and its figures; gives the table back."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "result.json", f"{data}\n".encode())
    write_atomically(folder / "table.md", table.encode())
    if figures is not None and pictures.available():
        for name, figure in figures(result).items():
            pictures.save(figure, folder / f"{name}.svg")
            pictures.save(figure, folder / f"{name}.png")
    return table


def as_markdown(result: dict[str, Any]) -> str:
    """Ours beside the paper's, the gain recovered where there is one, and how it was made."""
    printed = result["printed_columns"]
    header = ["", *result["columns"], *(f"paper: {heading}" for heading in printed), "effective rank"]
    gains = _gains(result)
    if gains:
        header.append("gain recovered")
    rows = []
    for row in result["rows"]:
        theirs = ["–" if value is None else f"{value:.2f}" for value in row["printed"]] or ["–"] * len(printed)
        line = [row["label"], *(cell(row["ours"][heading]) for heading in result["columns"]), *theirs]
        line.append(f"{statistics.mean(row['effective_rank']):.1f}")
        if gains:
            line.append(gains.get(row["label"], "–"))
        rows.append(line)
    seeds = ", ".join(map(str, result["seeds"]))
    spread = "mean ± standard deviation" if len(result["seeds"]) > 1 else "one seed: no spread"
    about = f"Seeds {seeds} ({spread}), scale {result['scale']}. {result['remarks']}".strip()
    machine = "; ".join(places(result["made"]))
    table = markdown_table(rows, header)
    return f"## {result['what']}\n\n{table}\n\n{about}\n\n`{result['command']}` on {machine}.\n"


def machines(by_seed: dict[int, Measured]) -> list[dict[str, Any]]:
    """Where, when and by which version the rows were measured: each one once."""
    found = {json.dumps(row["made"], sort_keys=True): row["made"] for rows in by_seed.values() for row in rows.values()}
    return list(found.values())


def places(machines: list[dict[str, Any]]) -> list[str]:
    """Each machine and day once, with the commits that ran there."""
    commits: dict[str, list[str]] = {}
    for made in machines:
        known = commits.setdefault(f"{made['hardware']}, {made['date']}", [])
        if made["commit"] not in known:
            known.append(made["commit"])
    return [f"{place}, commit {', '.join(several)}" for place, several in commits.items()]


def _gains(result: dict[str, Any]) -> dict[str, str]:
    """(row − start) / (central − start) of the means, in the first column; empty where the ends are not both there."""
    if not result["between"]:
        return {}
    heading = result["columns"][0]
    means = {row["label"]: statistics.mean(row["ours"][heading]) for row in result["rows"]}
    gains: dict[str, str] = {}
    for prefix, (start, central) in result["between"].items():
        room = means.get(central, 0.0) - means.get(start, 1.0)
        if room > 0:
            mine = {label: mean for label, mean in means.items() if label.startswith(prefix)}
            gains |= {label: f"{(mean - means[start]) / room:.2f}" for label, mean in mine.items()}
    return gains


def cell(given: Sequence[float | None]) -> str:
    """Mean ± standard deviation over the seeds, in percent."""
    values = [value for value in given if value is not None]
    if len(values) < len(given):
        return "–"  # too few pairs for this rate
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean
