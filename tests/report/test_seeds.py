from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coalface.report import seeds


def result(seed: int, start: float, method: float, central: float) -> dict[str, Any]:
    accuracies = {"start": start, "method": method, "central": central}
    return {
        **dict.fromkeys(seeds.ABOUT, "x"),
        "seed": seed,
        "metrics": {name: {"accuracy": {"accuracy": value, "pairs": 100}} for name, value in accuracies.items()},
        "gain_recovered": {"accuracy": (method - start) / (central - start)},
        "checkpoint_sha256": "0",
        "seconds": {},
    }


def test_mean_spread_and_the_gain_of_the_means(tmp_path: Path) -> None:
    text = seeds.write_summary([result(0, 0.6, 0.7, 0.8), result(1, 0.8, 0.86, 0.9)], tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    # (0.7 + 0.86) / 2 = 0.78; their standard deviation is 0.16 / √2 = 0.1131
    assert summary["scores"]["method"]["accuracy"]["mean"] == pytest.approx(0.78)
    assert summary["scores"]["method"]["accuracy"]["spread"] == pytest.approx(0.1131, abs=1e-4)
    assert summary["gain_recovered"]["accuracy"] == pytest.approx((0.78 - 0.7) / (0.85 - 0.7))
    assert "78.0 ± 11.3" in text and "seeds 0, 1" in text
    assert (tmp_path / "summary.md").read_text() == text


def test_no_gain_without_room(tmp_path: Path) -> None:
    flat = [result(0, 0.6, 0.7, 0.7), result(1, 0.6, 0.5, 0.4)]
    assert seeds.summarise(flat)["gain_recovered"]["accuracy"] is None
