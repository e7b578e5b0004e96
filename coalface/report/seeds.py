"""Several seeds of one run: mean and spread, as a file and as a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coalface.report.reading import MODELS, rates
from coalface.report.tables import markdown_table

# What all seeds have in common, in the order of result.json.
ABOUT = (
    "command", "method", "model", "rounds", "clients", "cohort", "engine",
    "device", "hardware", "threads", "date", "commit", "versions",
)  # fmt: skip


def write_summary(results: Sequence[dict[str, Any]], folder: Path) -> str:
    """Write summary.json and summary.md over seeds into a folder; the table as text."""
    summary = summarise(results)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    table = as_markdown(summary)
    (folder / "summary.md").write_text(table)
    return table


def summarise(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of each headline number of start, method and central, and of the gain."""
    first = results[0]
    models = {
        model: {
            score: _spread([rates(result["metrics"][model])[score].value for result in results])
            for score in first["gain_recovered"]
        }
        for model in MODELS
    }
    # The gain of the means: a mean of ratios would be ruled by the seed with the smallest room.
    gain = {score: _gain(models, score) for score in models["start"]}
    about = {key: first[key] for key in ABOUT}
    each = [
        {key: result[key] for key in ("seed", "gain_recovered", "checkpoint_sha256", "seconds")} for result in results
    ]
    return {"seeds": [r["seed"] for r in results], "scores": models, "gain_recovered": gain, **about, "each": each}


def as_markdown(summary: dict[str, Any]) -> str:
    """The table of a summary, with its command and machine below."""
    method, gains = summary["method"], summary["gain_recovered"]
    rows = [
        [score, *(_cell(summary["scores"][model][score]) for model in MODELS), _share(gains[score])]
        for score in summary["scores"]["start"]
    ]
    table = markdown_table(rows, ["", "start", method, "central", "gain recovered"])
    machine = f"{summary['hardware']}, {summary['date']}, commit {summary['commit']}"
    seeds = ", ".join(map(str, summary["seeds"]))
    note = f"Mean ± standard deviation over seeds {seeds}; each seed has its own people."
    return f"{table}\n\n{note}\n\n`{summary['command']}` on {machine}.\n"


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "spread": statistics.stdev(values)}


def _gain(models: dict[str, Any], score: str) -> float | None:
    start, method, central = (models[model][score]["mean"] for model in MODELS)
    return (method - start) / (central - start) if central > start else None


def _cell(value: dict[str, float]) -> str:
    return f"{100 * value['mean']:.1f} ± {100 * value['spread']:.1f}"


def _share(gain: float | None) -> str:
    return "–" if gain is None else f"{gain:.2f}"
