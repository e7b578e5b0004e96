"""Sections of the page about what it cost: what left the clients, traffic, outcomes, and how to run it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from coalface.report import reading, tables
from coalface.report.markup import note, section, table
from coalface.report.reading import Row
from coalface.report.words import DASH, bytes_text, count_text, finite, seconds_text, share_text
from coalface.wire import TOLD_APART

SHOWN_OUTCOMES = 15
SHORT_FACT = 36  # characters; a longer one has a line of its own
LONG = ' class="long"'
STAGES = {"pretrain": "pre-training", "federated": "federated rounds", "central": "central training"}
# Shown in sections of their own; any other plain value of result.json is a line in "Run it again".
ELSEWHERE = {"title", "command", "metrics", "gain_recovered", "bytes", "seconds", "versions", "disclosure"}
ELSEWHERE |= {"engine", "engine_form", "images_per_second", "central_images_per_second", "share_of_central_speed"}
ELSEWHERE |= {"outside_training", "peak_memory", "privacy"}
NAMES = {
    "private_sha256": "clients' private state SHA-256",
    "cohort": "clients in a round",
    "clients": "clients registered",
}


def disclosure(result: Row) -> str:
    """Field by field: what leaves a client and who sees it, then what every client is sent."""
    given: Mapping[str, Sequence[Row]] = result.get("disclosure") or {}
    leaving = [(row, when) for part, when in (("once", "once"), ("up", "each round")) for row in given.get(part) or ()]
    if not leaving and not given.get("down"):
        return ""
    revealed = [str(row["field"]) for row, _ in leaving if row.get("seen") == "REVEALED"]
    apart = [str(row["field"]) for row, _ in leaving if TOLD_APART in str(row.get("seen"))]
    verdict = f"Revealed to the server, client by client: {', '.join(revealed)}. " if revealed else ""
    if apart:
        verdict += f"Summed, but even a sum over a cohort tells one client's part: {', '.join(apart)}."
    if not verdict:
        verdict = "Nothing is revealed client by client, except counts: tensors reach the server only as a sum."
    words = f'<p class="verdict{" alarm" if revealed or apart else ""}">{escape(verdict.strip())}</p>'
    up = _fields([_leaving(row, when) for row, when in leaving], ["field", "who sees it", "what it is", "when"])
    down = _fields(
        [
            "".join(["<tr>", _field(row), f"<td>{escape(str(row.get('what') or ''))}</td></tr>"])
            for row in given.get("down") or ()
        ],
        ["field", "what it is"],
    )
    body = f"{words}<h3>Leaves a client</h3>{up}"
    body += f"<h3>Is broadcast to clients</h3>{down}" if given.get("down") else ""
    return section("What leaves a client", body + note("Whatever is not listed stays on its client."))


def traffic(result: Row, rounds: Sequence[Row], ledger: Sequence[Row]) -> str:
    """Bytes, and what became of every upload and every round."""
    parts = []
    if result.get("bytes"):
        parts.append(table(["bytes", "per client per round", "in all"], tables.traffic_rows(result), style="numbers"))
    found = reading.outcomes(rounds, ledger)
    if found:
        total = sum(count for _, count, _ in found)
        rows = [
            [outcome, count_text(count), f"{100 * count / total:.1f} %", remark]
            for outcome, count, remark in found[:SHOWN_OUTCOMES]
        ]
        if rest := found[SHOWN_OUTCOMES:]:
            others = sum(count for _, count, _ in rest)
            rows.append([f"{len(rest)} further reasons", count_text(others), f"{100 * others / total:.1f} %", ""])
        parts.append("<h3>Uploads</h3>" + table(["outcome", "uploads", "share", ""], rows, style="outcomes"))
    if rounds:
        parts.append(note(_rounds_in_words(rounds)))
    return section("Traffic and outcomes", "".join(parts)) if parts else ""


def speed(result: Row) -> str:
    """The engine, how fast it was beside central training, and what it took."""
    memory: Mapping[str, Any] = result.get("peak_memory") or {}
    texts = {
        "engine": ", ".join(str(result[key]) for key in ("engine", "engine_form") if result.get(key)),
        "images a second": count_text(result.get("images_per_second")),
        "central training, images a second": count_text(result.get("central_images_per_second")),
        "share of the speed of central training": share_text(finite(result.get("share_of_central_speed"))),
        "share of a round outside local training": share_text(finite(result.get("outside_training"))),
        "peak memory of the process": bytes_text(memory.get("host")),
        "peak memory of the GPU": bytes_text(memory.get("gpu")),
    }
    rows = [[name, text] for name, text in texts.items() if text not in ("", DASH)]
    words = "Evaluation and checkpoints are not in these times. Central training takes batches of its own size."
    return section("Speed", table(["", ""], rows, style="numbers"), words) if rows else ""


def run_again(result: Row) -> str:
    """The command, and everything that the numbers depend on."""
    command = f"<pre>{escape(str(result['command']))}</pre>" if result.get("command") else ""
    facts = []
    for key, value in result.items():
        text = _plain(key, value)
        if key not in ELSEWHERE and text:
            exact = key == "commit" or key.endswith("sha256")
            shown = f"<code>{escape(text)}</code>" if exact else escape(text)
            facts.append((NAMES.get(key, key.replace("sha256", "SHA-256").replace("_", " ")), shown))
    seconds: Mapping[str, Any] = result.get("seconds") or {}
    times = [f"{STAGES.get(stage, stage)} {seconds_text(s)}" for stage, s in seconds.items() if finite(s) is not None]
    versions = [f"{name} {version}" for name, version in (result.get("versions") or {}).items()]
    facts += [(name, escape(", ".join(items))) for name, items in (("time", times), ("versions", versions)) if items]
    rows = "".join(
        f"<div{LONG if len(shown) > SHORT_FACT else ''}><dt>{escape(name)}</dt><dd>{shown}</dd></div>"
        for name, shown in facts
    )
    body = f'{command}<dl class="facts">{rows}</dl>'
    return section("Run it again", body) if command or facts else ""


def _leaving(row: Row, when: str) -> str:
    seen = str(row.get("seen") or "")
    style = ' class="revealed"' if seen == "REVEALED" or TOLD_APART in seen else ""
    who = f'<span class="badge">{escape(seen)}</span><small>{escape(tables.SEEN.get(seen, ""))}</small>'
    what = escape(str(row.get("what") or ""))
    return f'<tr{style}>{_field(row)}<td>{who}</td><td>{what}</td><td class="when">{when}</td></tr>'


def _field(row: Row) -> str:
    return f"<th><code>{escape(str(row['field']))}</code><small>{escape(str(row.get('type') or ''))}</small></th>"


def _fields(rows: Sequence[str], header: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    return f'<table class="fields"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _rounds_in_words(rounds: Sequence[Row]) -> str:
    void = len(reading.void_rounds(rounds))
    good = [row for row in rounds if not row.get("void")]
    times = [s for row in rounds if (s := finite(row.get("seconds"))) is not None]
    mean = f", {seconds_text(sum(times) / len(times))} each on average" if times else ""
    voids = f"; {void} void, and repeated" if void else "; none was void"
    return f"{len(good):,} rounds counted{voids}{mean}."


def _plain(key: str, value: Any) -> str:
    """A value of result.json as text; nothing for an empty one, and for what is no plain value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, (_plain(key, item) for item in value)))
    number = finite(value)
    if number is None:
        return ""
    return (
        str(value) if key == "seed" else f"{number:,.0f}" if number == int(number) or number >= 100 else f"{number:g}"
    )
