"""Sections of the page about how well it works: the outcome, and what there is to believe it by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

import torch
from torch import Tensor

from coalface.data.contact_sheet import contact_sheet
from coalface.report import figures, reading, tables
from coalface.report.markup import section, table
from coalface.report.png import data_uri, encode_png
from coalface.report.reading import MODELS, Rate, Row
from coalface.report.words import DASH, rate_text, share_text

Draw = Callable[[], str]
Add = Callable[[str, str, Draw], str]  # name, caption, how to draw it → markup

SHOWN_ROUNDS = 30  # rows of the table behind the curves
SHOWN_MONITORS = 12
SHEET_BYTES = 1_000_000  # of pixels: keeps a page under 2 MB


def headline(result: Row) -> str:
    """The outcome in a sentence, and as three numbers and a share."""
    key = reading.headline_key(result) or ""
    method = str(result.get("method", "method"))
    about = [result.get("model"), _counted(result, "clients", "clients"), _counted(result, "rounds", "rounds")]
    kind = " · ".join(str(part) for part in about if part)
    by_model = reading.all_rates(result)
    tiles = [
        _tile(model, method if model == "method" else model, rate)
        for model in MODELS
        if (rate := by_model[model].get(key)) is not None
    ]
    recovered = reading.gain(result, key)
    if tiles and recovered is not None:
        tiles.append(f'<div class="tile"><span>gain recovered</span><b>{share_text(recovered)}</b></div>')
    caution = reading.caution(result)
    return (
        f'<header><p class="kind">{escape(kind)}</p><h1>{escape(str(result.get("title") or method))}</h1>'
        f'<p class="lead">{escape(reading.headline(result))}</p>'
        + (f'<p class="note">{escape(caution)}</p>' if caution else "")
        + f'<div class="tiles">{"".join(tiles)}</div></header>'
    )


def summary(result: Row) -> str:
    """Start, method and central, with intervals, pairs and the gain recovered."""
    by_model = reading.all_rates(result)
    method = escape(str(result.get("method", "method")))
    rows = []
    for key in reading.measures(result):
        found = [by_model[model].get(key) for model in MODELS]
        one = next(rate for rate in found if rate is not None)
        doubt = "" if all(rate.reliable for rate in found if rate) else " · under ten false matches: unreliable"
        arrow = " ↓" if one.lower_is_better else ""
        main = ' class="main"' if key == reading.headline_key(result) else ""
        cells = "".join(f"<td>{_rate(rate)}</td>" for rate in found)
        rows.append(
            f"<tr{main}><th>{escape(one.name)}{arrow}<small>{escape(one.pairs + doubt)}</small></th>"
            f"{cells}<td>{share_text(reading.gain(result, key))}</td></tr>"
        )
    head = (
        f'<tr><th></th><th class="start">start</th><th class="method">{method}</th>'
        '<th class="central">central</th><th>gain recovered</th></tr>'
    )
    words = (
        "Start is the model before the first federated round; central is the same model, trained on everybody's faces "
        "in one place. Gain recovered is (method − start) / (central − start). Brackets are 95 % intervals. The "
        "threshold of accuracy comes from other folds; TAR is 1 − FNMR at the threshold that gives the FMR named."
    )
    body = f'<table class="numbers summary"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
    body = f'<div class="wide">{body}</div>'
    return section("Between the two ends", body if rows else '<p class="note">Nothing was measured.</p>', words)


def personal(result: Row) -> str:
    """How well each model knows the clients' own people; empty if no images were kept for it."""
    if not result.get("personal"):
        return ""
    words = (
        "Each client's own people, on images kept from training, among everybody else's: means over clients ± the "
        "standard deviation between them. Generic is the server's model, own a client's, local the same without the "
        "map behind it. 'Others' and 'standard' are the paper's and the standard's reading, 'release' is what FedFR's "
        "code counts."
    )
    return section("Personal", table(tables.personal_header(result), tables.personal_table(result), "numbers"), words)


def by_round(result: Row, rounds: Sequence[Row], add: Add) -> str:
    """A curve for the headline rate, and for accuracy, with start and central as lines."""
    by_model = reading.all_rates(result)
    scores = reading.series(rounds, "scores")
    main = reading.headline_key(result) or ""
    keys = [key for key in dict.fromkeys([main, "accuracy"]) if key in scores]
    if not keys:
        return ""
    void = reading.void_rounds(rounds)
    method = str(result.get("method", "method"))
    drawn = ""
    for key in keys:
        ends = [by_model[model].get(key) for model in ("start", "central")]
        name = next((rate.name for rate in (by_model["method"].get(key), *ends) if rate is not None), key)
        draw = _later(figures.curve, scores[key], name, method, *ends, void)
        drawn += add(f"{name} by round", "", draw)
    behind = _rounds_table(rounds, [key for key in scores if reading.is_rate_key(key)])
    words = "After each evaluated round, between start and central; bands are the intervals of these two."
    return section("Round by round", f'<div class="figures">{drawn}</div>{behind}', words if drawn else "")


def error_curves(result: Row, scores: Mapping[str, tuple[Tensor, Tensor]], add: Add) -> str:
    """DET and ROC of all models on the test pairs."""
    if not scores:
        return ""
    method = str(result.get("method", "method"))
    drawn = add("DET", "DET: lower left is better.", lambda: figures.det(scores, method))
    drawn += add("ROC", "ROC: upper left is better.", lambda: figures.roc(scores, method))
    words = "Every threshold at once, on the test pairs. In the grey strip fewer than ten impostor pairs decide."
    words += _whose_model(result)
    return section("Errors at every threshold", f'<div class="figures">{drawn}</div>', words) if drawn else ""


def similarity(result: Row, scores: Mapping[str, tuple[Tensor, Tensor]], add: Add) -> str:
    """How alike pairs look before and after."""
    shown = {name: pair for name, pair in scores.items() if name != "central"}
    if not shown:
        return ""
    by_model, key = reading.all_rates(result), reading.headline_key(result) or ""
    rate_of = {name: by_model["start" if name == "start" else "method"].get(key) for name in shown}
    thresholds = {name: rate for name, rate in rate_of.items() if rate is not None}
    method = str(result.get("method", "method"))
    drawn = "".join(
        add(f"similarity of pairs, {name}", "", _later(figures.histogram, shown, method, thresholds, name))
        for name in shown
    )
    words = (
        "Cosine similarity of the test pairs before and after. Pairs of one person (genuine) should move right, "
        "pairs of two people (impostor) should stay left; less overlap is better." + _whose_model(result)
    )
    return section("How alike pairs look", f'<div class="figures">{drawn}</div>', words) if drawn else ""


def monitors(rounds: Sequence[Row], add: Add) -> str:
    """Losses, collapse monitors, and anything else that was recorded by round."""
    found = {f"{key} (training)": points for key, points in reading.series(rounds, "losses").items()}
    scores = reading.series(rounds, "scores")
    found |= {key: points for key, points in scores.items() if not reading.is_rate_key(key)}
    found |= reading.series(rounds, "monitors")
    if not found:
        return ""
    shown = list(found.items())[:SHOWN_MONITORS]
    readable = {name: name.replace("_", " ") for name in found}
    drawn = "".join(add(readable[name], "", _later(figures.lines, {name: p}, readable[name])) for name, p in shown)
    first_last = [[readable[n], f"{p[0][1]:.4g}", f"{p[-1][1]:.4g}"] for n, p in found.items()]
    left_out = f" The first {SHOWN_MONITORS} of {len(found)} are drawn." if len(found) > SHOWN_MONITORS else ""
    words = (
        "Losses are means over the clients that counted. A mean cosine near 1, or an effective rank near 1, "
        "would be collapse: every face in one place." + left_out
    )
    numbers = table(["", "first", "last"], first_last, style="numbers")
    body = (
        f'<div class="figures small">{drawn}</div><details><summary>First and last values</summary>{numbers}</details>'
    )
    return section("Losses and collapse monitors", body if drawn else numbers, words)


def sample_faces(faces: Tensor | None) -> str:
    """One contact sheet of people who do not exist; real faces never enter a report."""
    if faces is None or faces.numel() == 0:
        return ""
    if faces.ndim != 5 or faces.shape[2] != 3 or faces.dtype != torch.uint8:
        raise ValueError(f"faces must be uint8 [rows, columns, 3, H, W], not {faces.dtype} {list(faces.shape)}")
    rows, columns = faces.shape[:2]
    images = faces.flatten(0, 1).cpu()
    while images.numel() > SHEET_BYTES and min(images.shape[2:]) >= 2:
        images = torch.nn.functional.avg_pool2d(images.float(), 2).round().to(torch.uint8)
    sheet = contact_sheet(images, columns)
    picture = (
        f'<img alt="{rows} rows of {columns} synthetic faces" width="{sheet.shape[2]}" height="{sheet.shape[1]}" '
        f'src="{data_uri(encode_png(sheet))}">'
    )
    caption = f"{rows} people who do not exist, one to a row, in {columns} photographs each."
    body = f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"
    return section("Sample faces", body)


def _whose_model(result: Row) -> str:
    personal = reading.is_personal((result.get("metrics") or {}).get("method"))
    return " Each client has a model of its own; one of them is drawn." if personal else ""


def _tile(model: str, name: str, rate: Rate) -> str:
    return (
        f'<div class="tile {model}"><span>{escape(name)}</span><b>{rate_text(rate.value, 3)}</b>'
        f"<small>{escape(tables.beside(rate))}</small></div>"
    )


def _rate(rate: Rate | None) -> str:
    return DASH if rate is None else f"{rate_text(rate.value)}<small>{escape(tables.beside(rate))}</small>"


def _counted(result: Row, key: str, unit: str) -> str:
    return f"{result[key]:,} {unit}" if isinstance(result.get(key), int) else ""


def _rounds_table(rounds: Sequence[Row], keys: list[str]) -> str:
    evaluated = [row for row in rounds if row.get("scores") and not row.get("void")]
    step = -(-len(evaluated) // SHOWN_ROUNDS) or 1
    shown = evaluated[::-1][::step][::-1]  # counted from the end: the last round is the headline
    rows = []
    for row in shown:
        scores = reading.by_rate_key(row["scores"])
        rows.append([str(row["round"]), str(row.get("counted", DASH)), *(rate_text(scores.get(key)) for key in keys)])
    numbers = table(["round", "clients counted", *keys], rows, style="numbers")
    return f"<details><summary>The numbers behind it</summary>{numbers}</details>"


def _later(draw: Callable[..., str], *arguments: object) -> Draw:
    return lambda: draw(*arguments)
