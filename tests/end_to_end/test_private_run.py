"""A run with noise as its owner meets it: ε everywhere, an end before the budget, and no other setting half-way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coalface.cli import main
from tests.end_to_end.conftest import small

NOISY = (
    "privacy.dp.noise=4",
    "privacy.dp.delta=1e-2",
    "rounds.cohort=0",
    "rounds.rounds=4",
    "training.images_per_round=1",
)


def test_epsilon_is_shown_each_round_and_the_run_ends_before_its_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With everybody called each time a budget of 2 has room for three rounds; a setting changed by hand is refused."""
    out = tmp_path / "run"
    assert main(["run", "fedavg/positive-only", *small(*NOISY, "privacy.dp.budget=2"), "--out", str(out)]) == 0
    rounds = [json.loads(line)["privacy"]["epsilon"] for line in (out / "rounds.jsonl").open()]
    assert rounds == sorted(rounds) and rounds[-1] <= 2 and len(rounds) < 4
    shown = capsys.readouterr()
    assert f"ε {rounds[-1]:.3f}" in shown.err
    assert f"stopped after {len(rounds)} rounds, as one more would pass ε = 2" in shown.err
    assert json.loads((out / "result.json").read_text())["privacy"]["epsilon"] == rounds[-1]
    assert f"{rounds[-1]:.3g}" in (out / "report.html").read_text()

    config = json.loads((out / "config.json").read_text())
    config["privacy"]["dp"]["noise"] = 8.0
    (out / "config.json").write_text(json.dumps(config))
    assert main(["resume", str(out)]) == 2
    assert "other settings" in capsys.readouterr().err
