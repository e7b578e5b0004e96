"""Figures as SVG text, self-contained and the same for the same numbers; `drawing` has the figures themselves."""

# ruff: noqa: PLC0415  (matplotlib is optional, so it is imported where it is used)

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from coalface.report import drawing
from coalface.report.drawing import REMEDY, Figure, Pairs, Points
from coalface.report.reading import Rate


def available() -> bool:
    """Whether matplotlib is installed; without it a page has its tables only."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def curve(
    points: Points, name: str, method: str, start: Rate | None, central: Rate | None, void: Sequence[int] = ()
) -> str:
    """A rate by round between its two ends."""
    return svg(drawing.draw_curve(points, name, method, start, central, void))


def det(scores: Pairs, method: str) -> str:
    """FNMR against FMR on logarithmic axes."""
    return svg(drawing.draw_det(scores, method))


def roc(scores: Pairs, method: str) -> str:
    """TAR against FMR on a logarithmic axis."""
    return svg(drawing.draw_roc(scores, method))


def histogram(scores: Pairs, method: str, thresholds: Mapping[str, Rate] | None = None, only: str | None = None) -> str:
    """Similarity of genuine and impostor pairs, a panel for each model, or for one on the axes of all."""
    return svg(drawing.draw_histogram(scores, method, thresholds, only))


def lines(by_name: Mapping[str, Points], title: str = "") -> str:
    """Anything by round."""
    return svg(drawing.draw_lines(by_name, title))


def svg(figure: Figure) -> str:
    """A figure as SVG text: letters stay letters, nothing about the date or the machine."""
    import matplotlib as mpl

    text = io.StringIO()
    nothing: dict[str, str | None] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "coalface"}):
        figure.savefig(text, format="svg", metadata=nothing)
    return text.getvalue()


def inlined(text: str, prefix: str) -> str:
    """An SVG for use inside a page: no document header, no addresses, no style for the whole page, ids of its own."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", body)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", body)


def save(picture: str | Figure, path: Path) -> Path:
    """Write SVG text or a figure to ``path``, by its ending: .svg or, for a figure, .png."""
    ending = path.suffix.lower()
    if ending not in (".svg", ".png"):
        raise ValueError(f"{path.name}: a picture is saved as .svg or .png")
    if ending == ".png" and isinstance(picture, str):
        raise ValueError(f"{path.name}: SVG text cannot become a PNG; give the figure itself (drawing.draw_…)")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(picture, str) or ending == ".svg":
        path.write_text(picture if isinstance(picture, str) else svg(picture), encoding="utf-8")
    else:
        picture.savefig(path, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return path


__all__ = ["REMEDY", "available", "curve", "det", "histogram", "inlined", "lines", "roc", "save", "svg"]
