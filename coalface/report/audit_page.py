"""The page of an audit: what was tried, what came of it under each protection, and pictures of synthetic people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coalface.data.contact_sheet import contact_sheet
from coalface.privacy.audits.result import AuditResult
from coalface.report import disclosed
from coalface.report.markup import section
from coalface.report.page import document
from coalface.report.png import data_uri, encode_png
from coalface.store import write_atomically

TRIED = {
    "template leak": "a face template, cosine 0.95 or more, from the change of the last layer",
    "recovery": "a class embedding, cosine above 0.9, from what is revealed or broadcast over the rounds",
    "codeword": "99 % or more of the bits of a secret codeword, from the change of the code head",
    "gradient inversion": "a picture of the person from one update, by which another network recognises them",
    "template inversion": "a picture of the person from a template, by which another network recognises them",
    "membership, person": "that a person took part in the round, from another photograph of theirs",
    "membership, image": "that a photograph was trained on in the round",
}
ENLARGED = 2


def write_audit_page(path: Path, report: Mapping[str, Any], results: Sequence[AuditResult]) -> None:
    """Write the page in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, audit_page(report, results).encode("utf-8"))


def audit_page(report: Mapping[str, Any], results: Sequence[AuditResult]) -> str:
    """The page as text; ``report`` is audit.json."""
    title = f"Audit of {report['method']}"
    return document(title, [_headline(title, report, results), _matrix(results), _pictures(results), _again(report)])


def _headline(title: str, report: Mapping[str, Any], results: Sequence[AuditResult]) -> str:
    parts = []
    for view in dict.fromkeys(result.view for result in results):
        tried = [result for result in results if result.view == view]
        worked = sum(not result.at_chance for result in tried)
        parts.append(f"{view}: {worked} of {len(tried)}")
    about = f"{report['clients']} clients · {report['cohort']} in a round · {report['rounds']} rounds recorded"
    lead = f"Attacks that do better than luck. {'; '.join(parts)}."
    words = (
        f"Uploads are those of real rounds. Plain: the server sees every upload. Secure sum: it sees only the sum "
        f"over {report['cohort']} clients. DP: each upload is clipped, and the sum has Gaussian noise of "
        f"{report['noise']:g} times the clip."
    )
    return (
        f'<header><p class="kind">{escape(about)}</p><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>'
        f'<p class="note">{escape(words)}</p></header>'
    )


def _matrix(results: Sequence[AuditResult]) -> str:
    views = list(dict.fromkeys(result.view for result in results))
    rows = []
    for attack in dict.fromkeys(result.attack for result in results):
        found = {result.view: result for result in results if result.attack == attack}
        cells = "".join(_cell(found.get(view)) for view in views)
        what = next((words for name, words in TRIED.items() if attack.startswith(name)), "")
        rows.append(f"<tr><th>{escape(attack)}<small>{escape(what)}</small></th>{cells}</tr>")
    head = "<th></th>" + "".join(f"<th>{escape(view)}</th>" for view in views)
    body = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    words = (
        "Share of people (or photographs) against whom the attack succeeded, with its 95 % interval, and the share "
        "that luck reaches. Red: the interval is above that of luck. A small number of people makes wide intervals: "
        "not red does not mean safe."
    )
    return section("What was tried", f'<div class="wide">{body}</div>', words)


def _cell(result: AuditResult | None) -> str:
    if result is None:
        return "<td>–</td>"
    low, high = 100 * result.interval.low, 100 * result.interval.high
    value = f"{100 * result.success:.0f} %"
    mark = value if result.at_chance else f'<span class="revealed"><span class="badge">{value}</span></span>'
    beside = f"[{low:.0f}, {high:.0f}] · luck {100 * result.chance:.1f} % · n {result.details['people']}"
    return f"<td>{mark}<small>{escape(beside)}</small></td>"


def _pictures(results: Sequence[AuditResult]) -> str:
    parts = []
    for attack in dict.fromkeys(result.attack for result in results if result.pictures is not None):
        shown = {r.view: r.pictures for r in results if r.attack == attack and r.pictures is not None}
        rows = min(len(pictures) for pictures in shown.values())
        first = next(iter(shown.values()))
        columns = [first[:rows, 0], *(pictures[:rows, 1] for pictures in shown.values())]
        sheet = _sheet(torch.stack(columns, dim=1))
        names = ", ".join(shown)
        parts.append(
            f"<h3>{escape(attack)}</h3><figure>{sheet}<figcaption>One person to a row, who does not exist: a "
            f"photograph, then the attacker's picture under {escape(names)}.</figcaption></figure>"
        )
    words = "Synthetic people only: pictures of real ones are never kept."
    return section("Pictures", "".join(parts), words) if parts else ""


def _sheet(faces: Tensor) -> str:
    rows, columns = faces.shape[:2]
    larger = faces.flatten(0, 1).cpu().repeat_interleave(ENLARGED, 2).repeat_interleave(ENLARGED, 3)
    sheet = contact_sheet(larger, columns)
    return (
        f'<img alt="{rows} rows of {columns} pictures" style="width:auto" width="{sheet.shape[2]}" '
        f'height="{sheet.shape[1]}" src="{data_uri(encode_png(sheet))}">'
    )


def _again(report: Mapping[str, Any]) -> str:
    return disclosed.run_again({key: value for key, value in report.items() if key != "results"})
