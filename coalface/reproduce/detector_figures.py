"""The figures of FedGPAD's paper from a result file: ROC curves by user, and t-SNE of the features."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coalface.report.drawing import CENTRAL, GRID, INK, METHOD, SERIES, START, Figure, canvas

STYLES = ("-", (0, (5, 2)), (0, (1, 1.4)))
SHADES = (METHOD, START, CENTRAL, "#cc79a7")  # a domain's; the last is the users'


def roc(result: dict[str, Any], by: str, user: str) -> Figure:
    """Share of live frames that pass against share of attacks that pass, of the rows with this user; first seed.

    ``by`` names the part of a row that its colour stands for: "method" or "centres".
    """
    rows = [row for row in result["rows"] if row["user"] == user]
    hues = list(dict.fromkeys(row[by] for row in rows))
    others = list(dict.fromkeys(row["centres" if by == "method" else "method"] for row in rows))
    with canvas(4.8, 3.9) as (figure, [axes]):
        for row in rows:
            passed, tar = row["roc"]
            other = others.index(row["centres" if by == "method" else "method"]) % len(STYLES)
            name = row["method"] if row["method"] != "Single" else f"Single, {row['centres']}"
            axes.plot(
                passed,
                tar,
                color=SERIES[hues.index(row[by]) % len(SERIES)],
                linestyle=STYLES[other],
                label=name if by == "method" else f"{row['method']}, {row['centres']}",
                linewidth=1.6,
            )
        axes.plot([0, 1], [0, 1], color=GRID, linewidth=1)
        axes.set_xlabel("attacks that pass (APCER, kinds pooled)")
        axes.set_ylabel("live that pass (1 − BPCER)")
        axes.set_title(f"→ {user}", loc="left", fontsize=9.5, color=INK)
        axes.legend(fontsize=7.5, loc="lower right")
    return figure


def tsne(row: dict[str, Any]) -> Figure:
    """Features of one detector in two dimensions: a colour for each domain, ○ live, × attack; the users' are last."""
    points = _embedded(row["features"]["points"])
    centres = row["centres"].split("&")
    with canvas(4.4, 3.9) as (figure, [axes]):
        first = 0
        for group, count in row["features"]["groups"].items():
            name, kind = group.split(" ")
            mine, first = points[first : first + count], first + count
            if name not in (*centres, row["user"]):
                continue
            shade = SHADES[-1] if name == row["user"] else SHADES[centres.index(name) % 3]
            marker = {"marker": "o", "facecolors": "none"} if kind == "live" else {"marker": "x"}
            colour = {"edgecolors": shade} if kind == "live" else {"color": shade}
            label = f"{name}, {'user, ' if name == row['user'] else ''}{kind}"
            axes.scatter(mine[:, 0], mine[:, 1], s=14, linewidths=0.9, label=label, **marker, **colour)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(f"{row['method']}, {row['centres']} → {row['user']}", loc="left", fontsize=9.5, color=INK)
        axes.legend(fontsize=7, ncols=2)
    return figure


def _embedded(points: list[list[float]]) -> Any:
    try:
        manifold, numpy = import_module("sklearn.manifold"), import_module("numpy")
    except ImportError as error:
        raise ImportError("t-SNE needs scikit-learn: pip install scikit-learn") from error
    perplexity = min(30, max(2, len(points) // 8))
    return manifold.TSNE(perplexity=perplexity, random_state=0, init="pca").fit_transform(numpy.array(points))
