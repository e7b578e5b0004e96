"""The report of a run of attack detection: one HTML file, like that of a recognition run.

A model's place has rows: one, or one for each data centre if every centre has a detector of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torch import Tensor

from coalface.data.contact_sheet import contact_sheet
from coalface.report import disclosed, figures, reading
from coalface.report.detection_drawing import draw_roc, draw_scores
from coalface.report.markup import note, section, table
from coalface.report.page import Pictures, document
from coalface.report.png import data_uri, encode_png
from coalface.report.reading import Row

RATES = ("hter", "eer", "auc", "acer", "bpcer")
ENDS = {"single": "single: one centre's own, mean", "all": "all: every recording in one place"}
PLACES = {"single": "start", "all": "central"}  # which of the recognition page's colours an end has


def page(
    result: Row, rounds: Sequence[Row] = (), ledger: Sequence[Row] = (), frames: Mapping[str, Tensor] | None = None
) -> str:
    """The page as text. ``frames`` are synthetic, uint8 [n, 3, H, W] by kind of attack."""
    pictures = Pictures(drawable=figures.available())
    sections = [
        _headline(result),
        _rates(result),
        _kinds(result),
        _curves(result, pictures),
        _scores(result, pictures),
        _by_round(rounds, pictures),
        _frames(frames or {}),
        disclosed.disclosure(result),
        disclosed.traffic(result, rounds, ledger),
        disclosed.run_again(result),
        pictures.missing_note(),
    ]
    return document(str(result["title"]), sections)


def _headline(result: Row) -> str:
    """The outcome in a sentence, and a tile for the method and each of its ends."""
    means = {name: _mean(rows, "frame", "hter") for name, rows in result["metrics"].items()}
    users, mine = result["metrics"][result["method"]][0]["target"], _percent(means[result["method"]])
    lead = f"On users of {users}, whom no data centre has seen, the half total error rate is {mine}."
    tiles = "".join(
        f'<div class="tile {PLACES.get(name, "method") if name != result["method"] else "method"}">'
        f"<span>{escape(ENDS.get(name, name))}</span><b>{_percent(mean)}</b><small>HTER of frames</small></div>"
        for name, mean in means.items()
    )
    kind = f"{result['model']} · {result['clients']} data centres · {result['rounds']:,} rounds"
    return (
        f'<header><p class="kind">{escape(kind)}</p><h1>{escape(str(result["title"]))}</h1>'
        f'<p class="lead">{escape(lead)}</p><div class="tiles">{tiles}</div></header>'
    )


def _rates(result: Row) -> str:
    """Every rate of every detector, with its interval, by frame and by recording."""
    rows = []
    for name, judged in result["metrics"].items():
        for row in judged:
            alone = f", {'&'.join(row['sources'])}" if len(judged) > 1 else ""
            for unit in ("frame", "video"):
                rows.append([f"{name}{alone}, by {unit}", *(_with_interval(row[unit], rate) for rate in RATES)])
    words = (
        "In percent; brackets are 95 % intervals, by resampling the users' subjects. HTER, ACER and BPCER are taken at "
        "the threshold where the data centres' own dev subjects have equal errors; EER and AUC need none. A detector "
        "that a centre trained alone has that centre's threshold. By video, the scores of a recording are averaged "
        "first: the two are not comparable."
    )
    return section("Errors on the users' domain", table(["", *(r.upper() for r in RATES)], rows, "numbers"), words)


def _kinds(result: Row) -> str:
    """APCER of each kind of attack."""
    kinds = list(next(iter(result["metrics"].values()))[0]["frame"]["apcer"])
    rows = [
        [name, *(_percent(statistics.mean(row["frame"]["apcer"][kind] for row in judged)) for kind in kinds)]
        for name, judged in result["metrics"].items()
    ]
    one = next(iter(result["metrics"].values()))[0]["frame"]
    counts = ", ".join(f"{one['attacks'][kind]:,} of {kind}" for kind in kinds)
    words = f"APCER: the share of frames of a kind that pass as live ({counts}; {one['live']:,} live)."
    return section("By kind of attack", table(["", *kinds], rows, "numbers"), words)


def _curves(result: Row, pictures: Pictures) -> str:
    drawn = pictures.add("ROC", "Upper left is better.", lambda: figures.svg(draw_roc(result)))
    words = "Every threshold at once, on the users' frames; the first centre's, where each has a detector of its own."
    return section("At every threshold", f'<div class="figures">{drawn}</div>', words) if drawn else ""


def _scores(result: Row, pictures: Pictures) -> str:
    drawn = "".join(
        pictures.add(f"scores, {name}", "", lambda name=name: figures.svg(draw_scores(result, name)))  # type: ignore[misc]
        for name in result["metrics"]
    )
    words = (
        "What the detector says of the users' live frames and attacks: attacks should lie on the left of the "
        "threshold, live frames on its right. A good AUC with a bad HTER is a threshold that does not carry over."
    )
    return section("Scores", f'<div class="figures">{drawn}</div>', words) if drawn else ""


def _by_round(rounds: Sequence[Row], pictures: Pictures) -> str:
    found = {f"{name} (training)": points for name, points in reading.series(rounds, "losses").items()}
    found |= reading.series(rounds, "scores") | reading.series(rounds, "monitors")
    if not found:
        return ""
    drawn = "".join(
        pictures.add(name, "", lambda name=name: figures.lines({name: found[name]}, name))  # type: ignore[misc]
        for name in found
    )
    rows = [[name, f"{points[0][1]:.4g}", f"{points[-1][1]:.4g}"] for name, points in found.items()]
    numbers = table(["", "first", "last"], rows, "numbers")
    body = f'<div class="figures small">{drawn}</div>' if drawn else ""
    return section("Round by round", f"{body}<details><summary>First and last values</summary>{numbers}</details>")


def _frames(frames: Mapping[str, Tensor]) -> str:
    """The users' frames: one row for each kind."""
    pictures = ""
    for kind, images in frames.items():
        sheet = contact_sheet(images, len(images))
        size = f'width="{sheet.shape[2]}" height="{sheet.shape[1]}"'
        picture = f'<img alt="synthetic frames, {escape(kind)}" {size} src="{data_uri(encode_png(sheet))}">'
        pictures += f"<figure>{picture}<figcaption>{escape(kind)}</figcaption></figure>"
    return section("Frames of users", pictures + note("Nobody here exists.")) if pictures else ""


def _mean(rows: Sequence[Row], unit: str, rate: str) -> float:
    return float(statistics.mean(row[unit][rate] for row in rows))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _with_interval(rates: Mapping[str, Any], rate: str) -> str:
    interval = rates["intervals"].get(rate)
    beside = f" [{100 * interval[0]:.1f}–{100 * interval[1]:.1f}]" if interval else ""
    return f"{100 * rates[rate]:.1f}{beside}"
