"""Tables for a terminal and for Markdown: with rich where it is installed, aligned text otherwise."""

# ruff: noqa: PLC0415  (rich is optional, so it is imported where it is used)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coalface.report import reading
from coalface.report.reading import MODELS, Rate, Row
from coalface.report.words import DASH, bytes_text, interval_text, rate_text, share_text
from coalface.wire import TOLD_APART

Cells = list[list[str]]

SEEN = {
    "summed": "the server sees only the sum over the cohort",
    "summed in its group": "the server sees only the sum over a whole group of clients",
    f"summed, {TOLD_APART}": "the server uses only the sum over the cohort, and can work out one client's part of it",
    "REVEALED": "the server sees each client's own value",
    "count": "the server sees each client's own number",
}


def summary_header(result: Row) -> list[str]:
    """Column names of `summary_table`."""
    return ["", "start", str(result.get("method", "method")), "central", "gain recovered", "pairs"]


def summary_table(result: Row) -> Cells:
    """A row per measure: start, method and central with intervals, gain recovered, and the pairs that carry them."""
    by_model = reading.all_rates(result)
    rows = []
    for key in reading.measures(result):
        found = [by_model[model].get(key) for model in MODELS]
        known = [rate for rate in found if rate is not None]
        arrow = " ↓" if known[0].lower_is_better else ""
        doubt = "" if all(rate.reliable for rate in known) else " (unreliable)"
        gained = share_text(reading.gain(result, key))
        rows.append([known[0].name + arrow + doubt, *map(rate_cell, found), gained, known[0].pairs])
    return rows


def rate_cell(rate: Rate | None) -> str:
    """0.6312 [0.6107–0.6514], or ± where only a spread over folds is known."""
    if rate is None:
        return DASH
    return f"{rate_text(rate.value)} {beside(rate)}".rstrip()


def beside(rate: Rate) -> str:
    """What stands beside a rate: its interval, or else its spread."""
    if rate.low is not None and rate.high is not None:
        return interval_text(rate.low, rate.high)
    return "" if rate.spread is None else f"± {rate_text(rate.spread)}"


def personal_header(result: Row) -> list[str]:
    """Column names of `personal_table`: the models that were measured."""
    return ["personal", *(result.get("personal") or {})]


def personal_table(result: Row) -> Cells:
    """How well each model knows a client's own people, mean over clients ± the spread between them."""
    models = list((result.get("personal") or {}).values())
    rows: dict[str, list[str]] = {}
    for model in models:
        for name, value in _personal_rates(model).items():
            rows.setdefault(name, []).append(f"{rate_text(value['mean'])} ± {rate_text(value['spread'])}")
    return [[name, *cells] for name, cells in rows.items()]


def _personal_rates(model: Row) -> dict[str, Any]:
    rates = {}
    for reading_, verified in model["verification"].items():
        for point in verified["at_fmr"]:
            doubt = "" if point["reliable"] else ", unreliable"
            rates[f"1:1 TAR@FMR {point['target_fmr']:.0e} ({reading_}{doubt})"] = point["tar"]
        rates[f"1:1 AUC ({reading_})"] = verified["auc"]
    for reading_, identified in model["identification"].items():
        for point in identified:
            doubt = "" if point["reliable"] else ", unreliable"
            rates[f"1:N TPIR@FPIR {point['target_fpir']:.0e} ({reading_}{doubt})"] = point["tpir"]
    return {**rates, "AUC against the enrolled": model["enrolled_auc"]}


def traffic_rows(result: Row) -> Cells:
    """Bytes up and down: per client per round, and in all."""
    traffic = result.get("bytes") or {}
    return [
        [name, bytes_text(traffic.get(f"{way}_per_client")), bytes_text(traffic.get(way))]
        for way, name in (("up", "from clients to server"), ("down", "from server to clients"))
    ]


def disclosure_table(disclosure: Mapping[str, Sequence[Row]]) -> Cells:
    """When, field, who sees it, what it is, type; what leaves a client first, then what is broadcast to it."""
    rows = []
    for part, when in (("once", "once, up"), ("up", "each round, up"), ("down", "each round, down")):
        for entry in disclosure.get(part) or ():
            seen = "the client" if part == "down" else entry.get("seen")
            cells = (when, entry["field"], seen, entry.get("what"), entry.get("type"))
            rows.append(["" if cell is None else str(cell) for cell in cells])
    return rows


DISCLOSURE_HEADER = ["when", "field", "who sees it", "what it is", "type"]


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Rows as Markdown, columns aligned for readers of the source too."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (header, *rows)]
    widths = _widths(cells, least=3)
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def print_table(result: Row, console: Any = None) -> None:
    """The closing tables and the headline in words. ``console`` is a rich Console, or None for a new one."""
    title = str(result.get("title") or result.get("method") or "result")
    rows = summary_table(result)
    header = [*summary_header(result)[:-2], "gain"]
    _print(title, header, [row[:-1] for row in rows], console)
    for pairs in dict.fromkeys(row[-1] for row in rows if row[-1]):  # as a column they would break every other one
        _say(f"{', '.join(row[0] for row in rows if row[-1] == pairs)}: {pairs}", console)
    _say("", console)
    if result.get("personal"):
        _print("", personal_header(result), personal_table(result), console)
    _print("", ["traffic", "per client per round", "in all"], traffic_rows(result), console)
    _say(" ".join(part for part in (reading.headline(result), reading.caution(result)) if part), console)


def print_disclosure(disclosure: Mapping[str, Sequence[Row]], console: Any = None) -> None:
    """What leaves a client, and what it is sent."""
    rows = disclosure_table(disclosure)
    _print("what travels", DISCLOSURE_HEADER, rows, console)
    for seen, meaning in SEEN.items():
        if any(row[2] == seen for row in rows):
            _say(f"{seen}: {meaning}", console)


def _print(title: str, header: Sequence[str], rows: Cells, console: Any) -> None:
    console = _console(console)
    if console is None:
        print("\n".join(([title] if title else []) + [*plain_lines([list(header), *rows]), ""]))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Text objects, not strings: a method's name in [brackets] is a name, not markup.
    table = Table(
        title=Text(title) if title else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        revealed = any(cell.startswith("REVEALED") for cell in row)
        table.add_row(*(Text(cell) for cell in row), style="bold red" if revealed else None)
    console.print(table)


def _say(text: str, console: Any) -> None:
    console = _console(console)
    if console is None:
        print(text)
    else:
        console.print(text, markup=False, highlight=False)


def plain_lines(cells: Cells) -> list[str]:
    """Rows as aligned text under a ruled header."""
    widths = _widths(cells)
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _widths(cells: Sequence[Sequence[str]], least: int = 0) -> list[int]:
    return [max(least, *(len(cell) for cell in column)) for column in zip(*cells, strict=True)]


def _console(console: Any) -> Any:
    if console is not None:
        return console
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console()
