"""What a reproduction of attack detection leaves behind: result.json, our rates beside the paper's, and the figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coalface.config import to_json
from coalface.report.tables import markdown_table
from coalface.reproduce.artefact import ScaleName
from coalface.reproduce.detectors import DetectorArtefact, Row
from coalface.reproduce.writing import Measured, cell, machines, places, save

RATES = ("hter", "eer", "auc")
HEADINGS = [rate.upper() for rate in RATES]
# Methods are held against it, user by user and seed by seed; those at home against it at home too.
REFERENCE = "FedGPAD"


def as_result(
    artefact: DetectorArtefact,
    scale: ScaleName,
    rows: Sequence[Row],
    by_seed: dict[int, Measured],
    command: str,
) -> dict[str, Any]:
    """All seeds of an artefact as plain JSON values; no scores of single frames."""
    first = next(iter(by_seed.values()))

    def seeds(row: Row, unit: str, rate: str) -> list[Any]:
        return [measured[row.label]["tested"][unit][rate] for measured in by_seed.values()]

    return {
        "what": artefact.what,
        "scale": scale,
        "remarks": artefact.remarks,
        "command": command,
        "seeds": list(by_seed),
        "rows": [
            {
                "label": row.label,
                "method": row.shown,
                "centres": row.trained_on,
                "user": row.target,
                "printed": list(row.printed),
                "ours": {rate: seeds(row, "frame", rate) for rate in RATES},
                "by_video": {rate: seeds(row, "video", rate) for rate in RATES},
                "acer": seeds(row, "frame", "acer"),
                "apcer": seeds(row, "frame", "apcer"),
                "bpcer": seeds(row, "frame", "bpcer"),
                "hter_interval": [found["hter"] for found in seeds(row, "frame", "intervals")],
                "counts": {kind: first[row.label]["tested"]["frame"][kind] for kind in ("live", "attacks", "subjects")},
                "dev_eer": [_dev_eer(measured[row.label]["dev"]) for measured in by_seed.values()],
                "frames": first[row.label]["frames"],
                "rounds": first[row.label]["rounds"],
                "seconds": [measured[row.label]["seconds"] for measured in by_seed.values()],
                "engine": first[row.label]["engine"],
                "roc": first[row.label]["tested"]["roc"],
                "features": first[row.label]["features"] if artefact.shows_features else None,
            }
            for row in rows
        ],
        "run": to_json(artefact.scales[scale]),
        "made": machines(by_seed),
    }


def write(artefact: DetectorArtefact, result: dict[str, Any], folder: Path) -> str:
    """Write everything into a folder; the table as text."""
    return save(folder, as_markdown(result), json.dumps(result), result, artefact.figures)


def as_markdown(result: dict[str, Any]) -> str:
    """Means over the users first, then every row; ours beside the paper's, and how it was made."""
    rows = [
        [row["method"], row["centres"], row["user"], *_numbers([row]), cell(row["by_video"]["hter"])]
        for row in result["rows"]
    ]
    header = ["", "data centres", "user", *HEADINGS, *(f"paper: {rate}" for rate in HEADINGS), "HTER of videos"]
    parts = [f"## {result['what']}", markdown_table(rows, header)]
    if means := _means(result):
        over = [f"HTER over {REFERENCE}'s", "over its at home"]
        if all(row[-1] == "–" for row in means):
            means, over = [row[:-1] for row in means], over[:1]
        parts.insert(1, markdown_table(means, [header[0], "rows", *header[3:], *over]))
    seeds = ", ".join(map(str, result["seeds"]))
    spread = "mean ± standard deviation" if len(result["seeds"]) > 1 else "one seed: no spread"
    data, rounds = result["run"]["data"], result["run"]["rounds"]["rounds"]
    parts.append(
        f"In percent, of frames. Threshold of HTER: EER on the data centres' own dev subjects. Seeds {seeds} "
        f"({spread}), scale {result['scale']}: {data['size']} × {data['size']} pixels, networks of width "
        f"{result['run']['width']}, {rounds} rounds. {result['remarks']}".strip()
    )
    if any("of" in row[-1] or "of" in row[-2] for row in means):
        parts.append(
            f"Over {REFERENCE}'s: mean difference in points ± its standard error over pairs of the same user and seed, "
            "and in how many of them it is above."
        )
    parts.append(f"`{result['command']}` on {'; '.join(places(result['made']))}.")
    return "\n\n".join(parts) + "\n"


def _means(result: dict[str, Any]) -> list[list[str]]:
    """The mean over several users of each method, seed by seed; nothing where methods have other users."""
    methods = dict.fromkeys(row["method"] for row in result["rows"])
    mine = {name: [row for row in result["rows"] if row["method"] == name] for name in methods}
    users = [{row["user"] for row in rows} for rows in mine.values()]
    if len(users[0]) < 2 or any(here != users[0] for here in users):
        return []
    reference, at_home = mine.get(REFERENCE, []), mine.get(f"{REFERENCE} at home", [])
    return [
        [
            name, str(len(rows)), *_numbers(rows), cell(_over_rows(rows, "by_video", "hter")),
            _over(rows, reference), _over(rows, at_home if name.endswith("at home") else []),
        ]
        for name, rows in mine.items()
    ]  # fmt: skip


def _over(rows: Sequence[dict[str, Any]], reference: Sequence[dict[str, Any]]) -> str:
    """By how many points the HTER of these rows is above the reference's, in pairs of the same user and seed."""
    if not reference or rows == reference:
        return "–"
    pairs = []
    for user in dict.fromkeys(row["user"] for row in rows):
        mine, theirs = (
            _over_rows([row for row in some if row["user"] == user], "ours", "hter") for some in (rows, reference)
        )
        pairs += [100 * (a - b) for a, b in zip(mine, theirs, strict=True)]
    error = statistics.stdev(pairs) / len(pairs) ** 0.5
    return f"{statistics.mean(pairs):+.1f} ± {error:.1f} ({sum(pair > 0 for pair in pairs)} of {len(pairs)})"


def _numbers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Means over these rows: ours with the spread over seeds, then the paper's."""
    ours = [cell(_over_rows(rows, "ours", rate)) for rate in RATES]
    printed = [row["printed"] for row in rows]
    theirs = [f"{statistics.mean(column):.2f}" for column in zip(*printed, strict=True)] if all(printed) else []
    return ours + (theirs or ["–"] * len(RATES))


def _over_rows(rows: Sequence[dict[str, Any]], unit: str, rate: str) -> list[float]:
    return [statistics.mean(values) for values in zip(*(row[unit][rate] for row in rows), strict=True)]


def _dev_eer(dev: dict[str, Any]) -> float:
    """The mean over the centres of their own dev subjects' EER: what settings may be chosen by."""
    return float(statistics.mean(centre["frame"]["eer"] for centre in dev.values()))
