"""Figures as matplotlib objects. No pyplot, no global state: each function builds one figure and returns it.

Start, method and central have one colour and one line style each, everywhere; the colours are safe for colour-blind
readers, and the styles carry the meaning in black and white. Backgrounds are transparent, text is mid-grey.
"""

# ruff: noqa: PLC0415  (matplotlib is optional, so it is imported where it is used)

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from coalface.metrics.rates import RELIABLE_ERRORS, det_curve, roc_curve
from coalface.report.reading import Rate
from coalface.report.words import fmr_text

REMEDY = "figures need matplotlib: pip install 'coalface[app]'"

INK, GRID, IMPOSTOR = "#6b6b6b", "#dcdcdc", "#9b9b9b"
START, METHOD, CENTRAL = "#c77700", "#0072b2", "#009e73"
STYLES: dict[str, tuple[str, Any]] = {"start": (START, (0, (1, 1.4))), "central": (CENTRAL, (0, (5, 2)))}
SERIES = (METHOD, START, CENTRAL, "#cc79a7", "#7a5cc0", INK)  # of figures that do not compare the three models

CURVE_POINTS = 400  # of a DET or ROC curve, however many scores there are
LINE_POINTS = 500  # of anything drawn by round
BINS = 80

Figure = Any  # matplotlib.figure.Figure: matplotlib is optional, and so are its types
Pairs = Mapping[str, tuple[Tensor, Tensor]]
Points = Sequence[tuple[int, float]]


def draw_curve(
    points: Points, name: str, method: str, start: Rate | None, central: Rate | None, void: Sequence[int] = ()
) -> Figure:
    """A rate by round between its two ends, which are horizontal lines with their intervals; × marks a void round."""
    with canvas(5.2, 3.1) as (figure, [axes]):
        thin = _thinned(points)
        if start is not None:
            thin = [(0, start.value), *thin]
        for rate, label in ((start, "start"), (central, "central")):
            if rate is not None:
                colour, dashes = STYLES[label]
                axes.axhline(rate.value, color=colour, linestyle=dashes, linewidth=1.5, label=label)
                if rate.low is not None and rate.high is not None:
                    axes.axhspan(rate.low, rate.high, color=colour, alpha=0.10, linewidth=0)
        marker = "o" if len(thin) <= 40 else None
        axes.plot(*zip(*thin, strict=True), color=METHOD, linewidth=2, marker=marker, markersize=3.5, label=method)
        if void:
            bottom = axes.get_xaxis_transform()
            axes.plot(sorted(set(void)), [0.03] * len(set(void)), "x", color=INK, transform=bottom, label="void round")
        axes.set_xlabel("round")
        axes.set_ylabel(name)
        _whole_rounds(axes)
        _legend(axes)
    return figure


def draw_det(scores: Pairs, method: str) -> Figure:
    """FNMR against FMR on logarithmic axes: lower left is better."""
    with canvas(5.2, 3.9) as (figure, [axes]):
        floor = 1.0
        for name, (impostor, genuine) in scores.items():
            curve = det_curve(impostor, genuine, CURVE_POINTS).for_log_axes()
            _model_line(axes, name, method, curve.fmr, curve.fnmr)
            floor = min(floor, *curve.fnmr.tolist(), 0.5)
        _fmr_axis(axes, scores)
        axes.set_yscale("log")
        axes.set_ylim(floor * 0.8, 1)
        _decades(axes.yaxis)
        axes.set_ylabel("FNMR")
        _legend(axes)
    return figure


def draw_roc(scores: Pairs, method: str) -> Figure:
    """TAR (1 − FNMR) against FMR on a logarithmic axis: upper left is better."""
    with canvas(5.2, 3.9) as (figure, [axes]):
        for name, (impostor, genuine) in scores.items():
            fmr, tar = roc_curve(impostor, genuine, CURVE_POINTS)
            above_zero = fmr > 0
            _model_line(axes, name, method, fmr[above_zero], tar[above_zero])
        _fmr_axis(axes, scores)
        axes.set_ylim(0, 1.01)
        axes.set_ylabel("TAR = 1 − FNMR")
        _legend(axes)
    return figure


def draw_histogram(
    scores: Pairs, method: str, thresholds: Mapping[str, Rate] | None = None, only: str | None = None
) -> Figure:
    """How alike genuine and impostor pairs look to each model; the line is the threshold of the rate given for it.

    ``only`` draws one model, on the axes that all of them share: figures of several models can then stand side by side.
    """
    densities = {name: [_density(values) for values in pair] for name, pair in scores.items()}
    tallest = max(max(bars) for pair in densities.values() for bars, _ in pair)
    extremes = torch.stack([torch.stack(values.float().aminmax()) for pair in scores.values() for values in pair]).cpu()
    shown = list(scores) if only is None else [only]
    with canvas(5.2, 0.85 + 1.45 * len(shown), rows=len(shown)) as (figure, panels):
        for axes, name in zip(panels, shown, strict=True):
            colour, _ = _style(name)
            for (density, edges), shade, label in zip(
                densities[name], (IMPOSTOR, colour), ("impostor", "genuine"), strict=True
            ):
                axes.stairs(density, edges, color=shade, fill=True, alpha=0.35)
                axes.stairs(density, edges, color=shade, linewidth=1.3, label=label)
            rate = (thresholds or {}).get(name)
            if rate is not None and rate.threshold is not None:
                at = f"threshold, {rate.name.removeprefix('TAR@')}"
                axes.axvline(rate.threshold, color=INK, linewidth=1, linestyle=(0, (2, 2)), label=at)
            axes.set_title(_label(name, method), loc="left", fontsize=9.5, color=colour)
            axes.set_yticks([])
            axes.set_ylim(0, 1.08 * tallest)
            _legend(axes)
        panels[-1].set_xlabel("cosine similarity")
        panels[-1].set_xlim(max(-1.0, float(extremes.min()) - 0.02), min(1.0, float(extremes.max()) + 0.02))
    return figure


def draw_lines(lines: Mapping[str, Points], title: str = "") -> Figure:
    """Anything by round: losses, collapse monitors."""
    with canvas(3.5, 2.1) as (figure, [axes]):
        for number, (name, points) in enumerate(lines.items()):
            thin = _thinned(points)
            marker = "o" if len(thin) <= 30 else None
            colour = SERIES[number % len(SERIES)]
            axes.plot(*zip(*thin, strict=True), color=colour, linewidth=1.6, marker=marker, markersize=2.5, label=name)
        axes.set_title(title, loc="left", fontsize=9.5, color=INK)
        axes.set_xlabel("round")
        _whole_rounds(axes)
        if len(lines) > 1:
            _legend(axes)
    return figure


# --- shared looks ---------------------------------------------------------------------------------------------------


@contextmanager
def canvas(width: float, height: float, rows: int = 1) -> Iterator[tuple[Any, Any]]:
    """An empty figure of so many inches, in the looks of all our figures, and its panels."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as NewFigure
    except ImportError as error:
        raise ImportError(REMEDY) from error
    looks: dict[Any, Any] = {
        "font.size": 9.5,
        "font.sans-serif": ["DejaVu Sans"],
        "text.color": INK,
        "text.parse_math": False,  # a method's name is text, dollar signs and all
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "lines.solid_capstyle": "round",
        "legend.frameon": False,
        "legend.fontsize": 8.5,
    }
    with mpl.rc_context(looks):
        figure = NewFigure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0.0)
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for axes in panels:
            axes.patch.set_alpha(0.0)
        yield figure, list(panels)


def _style(name: str) -> tuple[str, Any]:
    return STYLES.get(name, (METHOD, "-"))


def _label(name: str, method: str) -> str:
    return name if name in STYLES else method


def _model_line(axes: Any, name: str, method: str, x: Tensor, y: Tensor) -> None:
    colour, dashes = _style(name)
    label = _label(name, method) + ("" if len(x) else " (no errors)")
    axes.plot(x.tolist(), y.tolist(), color=colour, linestyle=dashes, linewidth=1.8, label=label)


def _fmr_axis(axes: Any, scores: Pairs) -> None:
    impostors = min(impostor.numel() for impostor, _ in scores.values())
    axes.set_xscale("log")
    axes.set_xlim(1 / impostors, 1)
    axes.set_xlabel("FMR")
    _decades(axes.xaxis)
    if impostors > RELIABLE_ERRORS:
        hint = f"under {RELIABLE_ERRORS} false matches"
        axes.axvspan(1 / impostors, RELIABLE_ERRORS / impostors, color=INK, alpha=0.08, linewidth=0, label=hint)


def _decades(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: fmr_text(value)))
    axis.set_minor_formatter(NullFormatter())


def _whole_rounds(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", handlelength=2.2, borderaxespad=0.2)


def _density(values: Tensor) -> tuple[list[float], list[float]]:
    flat = values.detach().flatten().float().cpu().clamp(-1, 1)
    counts = torch.histc(flat, bins=BINS, min=-1, max=1)
    return (counts / counts.sum() * BINS / 2).tolist(), torch.linspace(-1, 1, BINS + 1).tolist()


def _thinned(points: Points) -> list[tuple[int, float]]:
    """At most LINE_POINTS of them, evenly, the last always among them."""
    step = max(1, math.ceil(len(points) / LINE_POINTS))
    kept = list(points[::step])
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]
