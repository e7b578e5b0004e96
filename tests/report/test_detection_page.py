"""The page of a run of attack detection, held to what every page must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coalface.protocols.leave_one_out import Scored
from coalface.report import figures
from coalface.report.detection_page import page
from tests.report.test_page import read


def judged(sources: list[str], hter: float) -> dict[str, Any]:
    rates = {
        "hter": hter, "eer": 0.1, "auc": 0.95, "acer": 0.3, "bpcer": 0.2, "apcer": {"print": 0.25, "replay": 0.5},
        "threshold": 0.4, "threshold_origin": "EER on dev", "live": 40, "attacks": {"print": 30, "replay": 10},
        "subjects": 10, "intervals": {"hter": [hter - 0.05, hter + 0.05]},
    }  # fmt: skip
    bars = {"live": [0, 1, 3, 9], "attack": [9, 3, 1, 0]}
    both = {"frame": rates, "video": rates}
    return {"target": "M", "sources": sources, **both, "roc": [[0, 0.1, 1], [0, 0.9, 1]], "histogram": bars}


RESULT: dict[str, Any] = {
    "title": "fedpad, O&C → <M>", "method": "fedpad", "model": "resnet18", "clients": 2, "rounds": 3, "seed": 0,
    "command": "coalface run fedpad", "bytes": {"up": 10, "down": 10, "up_per_client": 1, "down_per_client": 1},
    "metrics": {
        "fedpad": [judged(["O", "C"], 0.3)], "single": [judged(["O"], 0.4), judged(["C"], 0.5)],
        "all": [judged(["O", "C"], 0.2)],
    },
    "disclosure": {"up": [{"field": "detector", "seen": "summed", "what": "change", "type": "Weights"}]},
}  # fmt: skip
ROUNDS = [{"round": number, "void": False, "seconds": 1.0, "losses": {"loss": 1 / number}} for number in (1, 2, 3)]


def test_the_page_says_how_it_ended_and_what_left() -> None:
    """Single is the mean of 40 and 50 %."""
    parsed = read(page(RESULT, ROUNDS, frames={"live": torch.zeros(2, 3, 8, 8, dtype=torch.uint8)}))
    assert "the half total error rate is 30.0 %" in parsed.text and "one centre's own, mean 45.0 %" in parsed.text
    for words in ("fedpad, by frame", "30.0 [25.0–35.0]", "single, C, by video", "50.0 %", "Nobody here exists"):
        assert words in parsed.text
    assert "What leaves a client" in parsed.text and "<M>" in parsed.text


def test_without_matplotlib_the_numbers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "available", lambda: False)
    parsed = read(page(RESULT, ROUNDS))
    assert "svg" not in parsed.tags and "Not drawn: ROC" in parsed.text and "30.0 [25.0–35.0]" in parsed.text


def test_curves_tell_no_single_score() -> None:
    """Two live frames and one attack; the live one at 0.91 beats it, the one at 0.31 does not."""
    told = Scored(
        torch.tensor([0.91, 0.31, 0.51]), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2])
    ).curves()
    assert told["roc"] == [[0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0]]
    assert [place for place, count in enumerate(told["histogram"]["live"]) if count] == [12, 36]  # of 40 bins
    assert sum(told["histogram"]["attack"]) == told["histogram"]["attack"][20] == 1
