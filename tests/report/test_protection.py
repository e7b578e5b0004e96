"""The page says how sums were protected, and never more than that."""

from __future__ import annotations

from typing import Any

import pytest

from coalface.config import to_json
from coalface.privacy.settings import DP, Privacy
from coalface.report.protection import protection


def said(privacy: Privacy, **told: float) -> str:
    rounds = [{"round": n, "void": False, "privacy": {"epsilon": 1.0 * n}} for n in (1, 2)] if told else []
    drawn = lambda name, caption, draw: f"[{name}]"  # noqa: E731
    return protection({"privacy": {**to_json(privacy), **told}}, rounds, drawn)


@pytest.mark.parametrize(
    ("privacy", "told", "says", "does_not_say"),
    [
        (Privacy(), {}, ["in the open"], ["ε", "masks"]),
        (Privacy(secure_sum=True), {}, ["under masks", "sums of 16 clients or more"], ["ε", "in the open"]),
        (
            Privacy(dp=DP(noise=1.5, budget=9.0)),
            {"epsilon": 7.25, "clip": 0.5},
            ["in the open", "trusted", "7.25", "δ = 1e-05", "budget", "[ε by round]"],
            ["shares", "for the server, which"],
        ),
        (
            Privacy(secure_sum=True, dp=DP(noise=1.5, where="distributed")),
            {"epsilon": 7.25, "epsilon_server": 11.5, "clip": 0.5},
            ["under masks", "in shares", "11.5"],
            ["trusted", "budget"],
        ),
        (Privacy(dp=DP(noise=1.0, summed_only=True)), {"clip": 0.5}, ["there is no ε"], ["for those who get"]),
    ],
)
def test_what_the_page_says(privacy: Privacy, told: dict[str, Any], says: list[str], does_not_say: list[str]) -> None:
    text = said(privacy, **told)
    assert not [words for words in says if words not in text]
    assert not [words for words in does_not_say if words in text]


def test_a_result_without_privacy_has_no_section() -> None:
    assert protection({}, [], lambda *_: "") == ""
