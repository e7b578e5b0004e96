"""The papers' figures from a result file, as matplotlib figures; colours and lines as in the reports."""

from __future__ import annotations

import re
import statistics
from typing import Any

import torch

from coalface.report.drawing import INK, SERIES, Figure, canvas
from coalface.reproduce.bench import COSINE_BINS


def by_setting(result: dict[str, Any], name: str) -> Figure:
    """Each column against the number in the rows' labels, on a logarithmic axis; the band is the spread over seeds."""
    settings = [float(found[-1]) if (found := re.findall(r"\d+", row["label"])) else 0.0 for row in result["rows"]]
    shown = [(at, row) for at, row in zip(settings, result["rows"], strict=True) if "FedFace" not in row["label"]]
    with canvas(5.2, 3.2) as (figure, [axes]):
        for colour, heading in zip(SERIES, result["columns"], strict=False):
            points = [(at, [100 * value for value in row["ours"][heading]]) for at, row in shown]
            at, middle = [x for x, _ in points], [statistics.mean(values) for _, values in points]
            axes.plot(at, middle, "o-", color=colour, label=heading, linewidth=1.6, markersize=3.5)
            low, high = ([pick(values) for _, values in points] for pick in (min, max))
            axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel("%")
        axes.legend(frameon=False, fontsize=8)
    return figure


def roc(result: dict[str, Any], test: str) -> Figure:
    """TAR against FMR of each row, first seed."""
    with canvas(4.6, 3.4) as (figure, [axes]):
        for colour, row in zip(SERIES, result["rows"], strict=False):
            fmr, tar = row["roc"][test]
            axes.plot(fmr, tar, color=colour, label=row["label"], linewidth=1.6)
        axes.set_xscale("log")
        axes.set_xlim(1e-4, 1)
        axes.set_xlabel("FMR")
        axes.set_ylabel("TAR")
        axes.set_title(test, fontsize=9)
        axes.legend(frameon=False, fontsize=8)
    return figure


def class_cosines(result: dict[str, Any]) -> Figure:
    """How alike the class embeddings are, of the rows where somebody holds them all; first seed."""
    middles = (torch.arange(COSINE_BINS) + 0.5) / COSINE_BINS * 2 - 1
    with canvas(5.2, 3.2) as (figure, [axes]):
        for colour, row in zip(SERIES, result["rows"], strict=False):
            counts = row["class_cosines"]
            if counts:
                shares = [100 * count / sum(counts) for count in counts]
                axes.plot(middles.tolist(), shares, color=colour, label=row["label"], linewidth=1.6)
        axes.set_xlabel("cosine of two class embeddings")
        axes.set_ylabel("% of pairs")
        axes.legend(frameon=False, fontsize=8)
    return figure


def thresholds(result: dict[str, Any], heading: str, used: str) -> Figure:
    """A rate, and the public images that were used, against the threshold of hard negatives.

    Lines are its two ends; the band is the spread over seeds.
    """
    rows = {
        row["label"]: {name: [100 * value for value in row["ours"][name]] for name in (heading, used)}
        for row in result["rows"]
    }
    found = [(float(label.split("=")[1]), row) for label, row in rows.items() if "=" in label]
    at, ends = [threshold for threshold, _ in found], [item for item in rows.items() if "=" not in item[0]]
    with canvas(5.2, 4.4, rows=2) as (figure, panels):
        for axes, name, colour in zip(panels, (heading, used), SERIES, strict=False):
            low, middle, high = ([pick(row[name]) for _, row in found] for pick in (min, statistics.mean, max))
            axes.plot(at, middle, "o-", color=colour, linewidth=1.6, markersize=3.5)
            axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
            for (label, row), dashes in zip(ends, ("--", ":"), strict=False):
                axes.axhline(statistics.mean(row[name]), color=INK, linestyle=dashes, linewidth=1.2, label=label)
            axes.set_ylabel(f"{name}, %")
        panels[0].legend(frameon=False, fontsize=8)
        panels[-1].set_xlabel("threshold of hard negatives")
    return figure


def people_each(result: dict[str, Any], heading: str) -> Figure:
    """A rate against the number of people that a client holds, for each method; lines are the two ends."""
    rows = [(row["label"].partition(", "), [100 * value for value in row["ours"][heading]]) for row in result["rows"]]
    with canvas(5.2, 3.2) as (figure, [axes]):
        for colour, method in zip(SERIES, dict.fromkeys(name for (name, comma, _), _ in rows if comma), strict=False):
            points = sorted((int(each), values) for (name, _, each), values in rows if name == method)
            at = [each for each, _ in points]
            axes.plot(at, [statistics.mean(values) for _, values in points], "o-", color=colour, label=method)
            low, high = ([pick(values) for _, values in points] for pick in (min, max))
            axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
        ends = [(name, values) for (name, comma, _), values in rows if not comma]
        for (name, values), dashes in zip(ends, (":", "--"), strict=False):
            axes.axhline(statistics.mean(values), color=INK, linestyle=dashes, linewidth=1.2, label=name)
        axes.set_xscale("log")
        axes.set_xticks(at, [str(each) for each in at])
        axes.minorticks_off()
        axes.set_xlabel("people of a client")
        axes.set_ylabel(f"{heading}, %")
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.0, 0.93))  # under central's line
    return figure


def frontier(result: dict[str, Any], heading: str) -> Figure:
    """A rate of chorus against what the server can guess of a voice: the cosine √(R / k(1 + σ²)); lines are others."""
    found = {row["label"]: [100 * value for value in row["ours"][heading]] for row in result["rows"]}
    with canvas(5.2, 3.6) as (figure, [axes]):
        for label, values in found.items():
            numbers = re.search(r"choirs of (\d+)(?:, (\d+) groupings)?(?:, noise ([\d.]+))?", label)
            if numbers is None:
                continue
            choir, groupings, noise = int(numbers[1]), int(numbers[2] or 1), float(numbers[3] or 0)
            at = (groupings / choir / (1 + noise**2)) ** 0.5
            axes.plot([at] * 2, [min(values), max(values)], color=SERIES[noise > 0], linewidth=1.2, alpha=0.5)
            axes.plot(at, statistics.mean(values), "o", color=SERIES[noise > 0], markersize=4)
            words = f"{choir}, {groupings}" + (f", σ = {noise:g}" if noise else "")
            left = groupings == 1 or noise > 0  # so that names of points above each other stand apart
            axes.annotate(
                words,
                (at, statistics.mean(values)),
                (-5 if left else 5, -3),
                textcoords="offset points",
                ha="right" if left else "left",
                fontsize=7,
            )
        ends = [(label, values) for label, values in found.items() if "choirs" not in label]
        for (label, values), dashes in zip(ends, (":", "-.", "--"), strict=False):
            axes.axhline(statistics.mean(values), color=INK, linestyle=dashes, linewidth=1.2, label=label)
        axes.margins(x=0.15)
        axes.set_xlabel("cosine of the server's best guess to a voice, √(R / k(1 + σ²))")
        axes.set_ylabel(f"{heading}, %")
        axes.legend(frameon=False, fontsize=8)
    return figure
