"""The section of the page about how the sums were protected, and what they told all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from coalface.report import figures, reading
from coalface.report.evidence import Add
from coalface.report.markup import section, table
from coalface.report.reading import Row

SECURE = (
    "Sums were made under masks: the server held uploads as noise, and unmasked sums of {min_cohort} clients or more. "
    "Weights, counts and losses were summed inside."
)
OPEN = "Sums were made in the open: the server kept nobody's upload, and could have looked at every one of them."
CENTRAL = "The server added the noise, and is trusted to have done so: ε is for everybody else."
DISTRIBUTED = "The clients added the noise in shares, under the masks: the server never had the sum without it."
NO_EPSILON = "Beside the noise fields of each client, or sums of small groups, are told without any: there is no ε."


def protection(result: Row, rounds: Sequence[Row], add: Add) -> str:
    """Masks, noise, and ε by round; empty for a result that does not say."""
    privacy: Mapping[str, Any] = result.get("privacy") or {}
    if not privacy:
        return ""
    dp: Mapping[str, Any] = privacy.get("dp") or {}
    words = [SECURE.format(**privacy) if privacy.get("secure_sum") else OPEN]
    body = ""
    if dp.get("noise"):
        words.append(CENTRAL if dp["where"] == "central" else DISTRIBUTED)
        if "epsilon" not in privacy:
            words.append(NO_EPSILON)
        body = table(["", ""], _facts(privacy, dp), style="numbers")
        body += _curve(rounds, add)
    sentences = "".join(f"<p>{escape(text)}</p>" for text in words)
    return section("How the sums were protected", sentences + body)


def _facts(privacy: Mapping[str, Any], dp: Mapping[str, Any]) -> list[list[str]]:
    delta = f"at δ = {dp['delta']:g}"
    named = [
        ("epsilon", f"ε {delta}, for those who get the model; a user's data replaced by another's"),
        ("epsilon_server", f"ε {delta}, for the server, which knows who was called"),
        ("clip", "clip of the last round, L2 norm of an upload"),
    ]
    rows = [[words, f"{privacy[key]:.4g}"] for key, words in named if key in privacy]
    rows.append(["noise on the sum, in clips", f"{dp['noise']:g}"])
    if dp.get("budget"):
        rows.append(["budget: the run stops before ε passes it", f"{dp['budget']:g}"])
    return rows


def _curve(rounds: Sequence[Row], add: Add) -> str:
    points = reading.series(rounds, "privacy").get("epsilon")
    if not points:
        return ""
    return f'<div class="figures small">{add("ε by round", "", lambda: figures.lines({"ε": points}, "ε"))}</div>'
