from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from coalface.protocols.verification import all_pairs, lfw_folds
from coalface.report import reading, words


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (617_284, "617 kB"),
        (999_600, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (2e15, "2.0 PB"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_bytes(number: float | None, text: str) -> None:
    assert words.bytes_text(number) == text


def test_other_units() -> None:
    assert [words.seconds_text(s) for s in (0.416, 12.34, 59.96, 125, 11_070, math.inf)] == [
        "0.42 s",
        "12.3 s",
        "1 min 00 s",
        "2 min 05 s",
        "3 h 04 min",
        "–",
    ]
    assert [words.clock_text(s) for s in (0, 65.9, 3725)] == ["0:00", "1:05", "1:02:05"]
    assert [words.fmr_text(f) for f in (1e-3, 0.1, 1e-6, 0.002, 1.0)] == ["1e-3", "1e-1", "1e-6", "0.002", "1"]
    assert [words.share_text(s) for s in (0.876, -0.04, -0.001, None)] == ["88 %", "−4 %", "0 %", "–"]
    assert [words.count_text(n) for n in (1_234, 1_900_000, None)] == ["1,234", "1.9 M", "–"]


def test_decimals_grow_until_numbers_differ() -> None:
    assert words.told_apart([0.41, 0.63, 0.66]) == ["0.41", "0.63", "0.66"]
    assert words.told_apart([0.9912, 0.9934]) == ["0.991", "0.993"]
    assert words.told_apart([0.5, 0.5]) == ["0.50", "0.50"]


def test_rates_of_the_protocols_are_read_as_they_are() -> None:
    """`as_dict` of the two verification protocols, side by side in one entry."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(30, 16, generator=generator).repeat_interleave(6, 0)
    embeddings = centres + 0.8 * torch.randn(180, 16, generator=generator)
    pairs = all_pairs(embeddings, torch.arange(30).repeat_interleave(6), fmrs=(0.1, 0.01), replicates=20)
    same = torch.tensor([True, False]).repeat(50)
    folds = lfw_folds(same.float() + 0.4 * torch.randn(100, generator=generator), same)
    found = reading.rates(folds.as_dict() | pairs.as_dict())
    assert list(found) == ["accuracy", "tar@0.1", "tar@0.01", "eer", "auc"]
    assert found["accuracy"].value == folds.accuracy
    assert (found["accuracy"].low, found["accuracy"].pairs) == (folds.interval.low, "100 pairs")
    assert (found["tar@0.01"].value, found["tar@0.01"].name) == (pairs.at(0.01).tar, "TAR@FMR 1e-2")
    assert pairs.eer_interval is not None
    assert (found["eer"].value, found["eer"].high) == (pairs.eer, pairs.eer_interval.high)
    assert found["auc"].pairs == "450 genuine / 15,660 impostor pairs"  # 30 × C(6, 2); C(180, 2) − 450
    nested = reading.rates({"accuracy": folds.as_dict()} | pairs.as_dict())
    assert nested == found


def test_personal_models_are_judged_by_their_mean(result: dict[str, Any]) -> None:
    result["metrics"]["method"]["mean_over_clients"] = {"accuracy": 0.9, "tar@0.001": 0.5, "effective_rank": 12.0}
    found = reading.rates(result["metrics"]["method"])
    assert {key: rate.value for key, rate in found.items()} == {"accuracy": 0.9, "tar@0.001": 0.5}
    assert (found["accuracy"].low, found["accuracy"].pairs) == (None, "mean over clients, 6,000 pairs")
    assert "from 0.41 to 0.50" in reading.headline(result)
    assert reading.caution(result) == "No intervals were computed: the difference may be chance."


def test_the_headline_needs_pairs_that_carry_it(result: dict[str, Any]) -> None:
    assert reading.headline_key(result) == "tar@0.001"
    for model in ("start", "method"):
        result["metrics"][model]["tar"][1]["reliable"] = False
    assert reading.headline_key(result) == "tar@0.01"
    for model in ("start", "method"):
        result["metrics"][model]["tar"] = []
    assert reading.headline_key(result) == "accuracy"
    assert reading.headline_key({}) is None


def test_headlines_for_better_and_worse(result: dict[str, Any]) -> None:
    result["metrics"]["method"]["tar"][1]["tar"] = 0.35
    result["gain_recovered"]["tar@0.001"] = -0.24
    assert reading.headline(result) == (
        "fedavg/shared-head worsened TAR@FMR 1e-3 from 0.41 to 0.35; central training reaches 0.66: "
        "−24 % of the gain recovered."
    )
    result["metrics"]["method"]["tar"][1]["tar"] = 0.41
    result["gain_recovered"] = {}
    assert reading.headline(result) == (
        "fedavg/shared-head left TAR@FMR 1e-3 at 0.41; central training reaches 0.66: no gain to recover."
    )
    only_eer = {model: {"eer": rate} for model, rate in (("start", 0.2), ("method", 0.1))}
    assert reading.headline({"method": "m", "metrics": only_eer}) == (
        "m lowered EER from 0.20 to 0.10; central training was not run."
    )


def test_caution_where_intervals_overlap(result: dict[str, Any]) -> None:
    assert reading.caution(result) == ""
    result["metrics"]["method"]["tar"][1] |= {"tar": 0.43, "low": 0.40, "high": 0.45}  # start: 0.38 … 0.43
    assert reading.caution(result) == "The intervals before and after overlap: the difference may be chance."
    del result["metrics"]["method"]["tar"][1]["low"]
    assert "No intervals" in reading.caution(result)


def test_keys_of_rates_are_spelt_alike() -> None:
    assert reading.by_rate_key({"tar@1e-3": 0.5, "loss": 1, "x@y": 2.0, "bad": math.nan}) == {
        "tar@0.001": 0.5,
        "loss": 1.0,
        "x@y": 2.0,
    }


def test_series_skip_void_rounds_and_what_is_no_number(rounds: list[dict[str, Any]]) -> None:
    assert reading.series(rounds, "losses") == {"loss": [(1, 2.0), (2, 1.0), (3, 2 / 3), (4, 0.5)]}
    assert reading.void_rounds(rounds) == [2]
