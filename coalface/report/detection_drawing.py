"""Figures of attack detection from what a result tells of scores: curves and counts, never single ones."""

from __future__ import annotations

from typing import Any

from coalface.report.drawing import CENTRAL, GRID, IMPOSTOR, INK, METHOD, START, Figure, canvas

LOOKS: dict[str, tuple[str, Any]] = {"single": (START, (0, (1, 1.4))), "all": (CENTRAL, (0, (5, 2)))}


def draw_roc(result: Any) -> Figure:
    """Live frames that pass against attacks that pass, of the method and its ends."""
    with canvas(5.2, 3.9) as (figure, [axes]):
        axes.plot([0, 1], [0, 1], color=GRID, linewidth=1)
        for name, rows in result["metrics"].items():
            colour, dashes = _looks(result, name)
            passed, live = rows[0]["roc"]
            axes.plot(passed, live, color=colour, linestyle=dashes, linewidth=1.8, label=name)
        axes.set_xlabel("attacks that pass (APCER, kinds pooled)")
        axes.set_ylabel("live that pass (1 − BPCER)")
        axes.legend(loc="lower right")
    return figure


def draw_scores(result: Any, name: str) -> Figure:
    """How many frames have which score, live and attack, each kind as a share; the line is the threshold."""
    row = result["metrics"][name][0]
    colour, _ = _looks(result, name)
    with canvas(5.2, 2.3) as (figure, [axes]):
        for kind, shade in (("attack", IMPOSTOR), ("live", colour)):
            counts = row["histogram"][kind]
            edges = [place / len(counts) for place in range(len(counts) + 1)]
            shares = [count / max(1, sum(counts)) for count in counts]
            axes.stairs(shares, edges, color=shade, fill=True, alpha=0.35)
            axes.stairs(shares, edges, color=shade, linewidth=1.3, label=kind)
        axes.axvline(row["frame"]["threshold"], color=INK, linewidth=1, linestyle=(0, (2, 2)), label="threshold")
        axes.set_title(name, loc="left", fontsize=9.5, color=colour)
        axes.set_xlabel("score: probability of live")
        axes.set_xlim(0, 1)
        axes.set_yticks([])
        axes.legend(loc="best")
    return figure


def _looks(result: Any, name: str) -> tuple[str, Any]:
    return (METHOD, "-") if name == result["method"] else LOOKS.get(name, (INK, "-"))
