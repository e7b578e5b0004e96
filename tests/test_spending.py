"""What a client's owner allows is counted whatever becomes of a round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coalface.config import ConfigError
from coalface.offer import Declined
from coalface.registry import Limits
from coalface.spending import Purse


def test_a_round_that_fails_is_spent_as_one_that_succeeds(tmp_path: Path) -> None:
    purse = Purse(tmp_path, Limits(rounds=2))
    with pytest.raises(RuntimeError, match="spoiled"), purse.round():
        raise RuntimeError("spoiled")
    with purse.round() as bill:
        bill.sent = 3_000_000
    assert (purse.spent().rounds, purse.spent().megabytes) == (2, 3.0) and purse.spent().minutes > 0
    with pytest.raises(Declined, match="limit"), purse.round():
        pytest.fail("a third round began")
    assert purse.spent().rounds == 2  # what is declined costs nothing


def test_a_round_is_written_down_before_it_begins(tmp_path: Path) -> None:
    """A process that is killed in it writes nothing afterwards."""
    with Purse(tmp_path, Limits()).round():
        assert json.loads((tmp_path / "spent.json").read_text())["rounds"] == 1


def test_what_would_pass_a_limit_is_not_sent(tmp_path: Path) -> None:
    purse = Purse(tmp_path, Limits(megabytes=5.0))
    for _ in range(2):
        with purse.round() as bill:
            bill.sent = 2_000_000
    with pytest.raises(Declined, match="limit"), purse.round() as bill:
        bill.sent = 2_000_000  # 6 MB in all
    with pytest.raises(Declined, match="limit"):
        purse.check()


def test_minutes_are_spent_by_a_round_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 90.0])  # seconds
    monkeypatch.setattr("coalface.spending.time.perf_counter", lambda: next(now))
    purse = Purse(tmp_path, Limits(minutes=1.0))
    with pytest.raises(RuntimeError), purse.round():
        raise RuntimeError
    assert purse.spent().minutes == 1.5
    with pytest.raises(Declined, match="limit"):
        purse.check()


@pytest.mark.parametrize("damage", ['{"rounds": 3, "minu', '{"rounds": -3}', '{"minutes": NaN}', "[]"])
def test_a_damaged_count_is_told_before_anybody_calls(damage: str, tmp_path: Path) -> None:
    (tmp_path / "spent.json").write_text(damage)
    with pytest.raises(ConfigError, match=r"spent\.json is damaged \(.+remove it to begin at nothing"):
        Purse(tmp_path, Limits(rounds=2))
