from __future__ import annotations

import pytest
import torch

from coalface.metrics.attack import apcer, attack_rates, hter, threshold_at_eer, with_intervals
from coalface.metrics.rates import Threshold

# Four live faces, four prints, two replays; one print and one live face tie at 0.5.
SCORES = torch.tensor([0.9, 0.8, 0.5, 0.3, 0.5, 0.2, 0.1, 0.4, 0.7, 0.6], dtype=torch.float64)
ATTACK = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 4, 4])
AT = Threshold(0.5, "a test")


def test_rates_by_hand() -> None:
    rates = attack_rates(SCORES, ATTACK, AT)
    assert rates.bpcer == 0.25  # of 0.9, 0.8, 0.5, 0.3 only the last is below; the tie passes
    assert rates.apcer == {"print": 0.25, "replay": 1.0}  # the tie passes here too; both replays do
    assert rates.hter == (3 / 6 + 0.25) / 2  # three of six attacks pass, whatever their kind
    assert rates.acer == (1.0 + 0.25) / 2  # the worst kind, not the mean of kinds
    # live above attacks: 6 (0.9) + 6 (0.8) + 3½ (0.5: ties with one, above 0.2, 0.1, 0.4) + 2 (0.3) of 4 × 6
    assert rates.auc == pytest.approx(17.5 / 24)
    assert (rates.live, rates.attacks) == (4, {"print": 4, "replay": 2})
    assert "a test" in str(rates) and rates.as_dict()["threshold_origin"] == "a test"


def test_single_rates() -> None:
    fake, real = SCORES[ATTACK != 0], SCORES[ATTACK == 0]
    assert hter(fake, real, 0.0) == hter(fake, real, 1.0) == 0.5
    assert hter(fake, real, 0.75) == 0.25  # no attack passes, two of four live faces fail
    assert apcer(SCORES, ATTACK, 0.65) == {"print": 0.0, "replay": 0.5}


def test_eer_threshold_names_its_origin() -> None:
    scores, attack = torch.tensor([0.1, 0.2, 0.6, 0.4, 0.8, 0.9]), torch.tensor([1, 2, 3, 0, 0, 0])
    threshold = threshold_at_eer(scores, attack, "dev of C")
    # at 0.6 one of three attacks passes and one of three live faces fails
    assert threshold.value == pytest.approx(0.6) and threshold.origin == "EER on dev of C"


def test_intervals_resample_subjects() -> None:
    n = 40
    generator = torch.Generator().manual_seed(0)
    subject = torch.arange(n).repeat_interleave(10)
    attack = torch.tensor([0, 1]).repeat(n * 5)
    # Each subject is wholly right or wholly wrong: ten frames say no more than one.
    wrong = torch.rand(n, generator=generator)[subject] < 0.3
    scores = torch.where((attack == 0) ^ wrong, 0.9, 0.1) + 0.001 * torch.arange(10 * n) / n
    rates = attack_rates(scores, attack, AT)
    share = float(wrong.double().mean())
    assert rates.hter == pytest.approx(share)
    told = with_intervals(rates, scores, attack, subject, seed=0)
    assert told.intervals is not None and told.subjects == n
    interval = told.intervals["hter"]
    half = 1.96 * (share * (1 - share) / n) ** 0.5  # of 40 subjects, not of 400 frames
    assert interval.low == pytest.approx(share - half, abs=0.04)
    assert interval.high == pytest.approx(share + half, abs=0.04)
    assert told.intervals["eer"].low <= rates.eer <= told.intervals["eer"].high
    assert told.intervals["auc"].low <= rates.auc <= told.intervals["auc"].high
    frames = with_intervals(rates, scores, attack, torch.arange(10 * n), seed=0).intervals
    assert frames is not None and frames["hter"].high - frames["hter"].low < 0.5 * (interval.high - interval.low)


def test_one_kind_of_presentation_is_refused() -> None:
    with pytest.raises(ValueError, match="need live presentations and attacks, got 2 and 0"):
        attack_rates(torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), AT)
    with pytest.raises(ValueError, match=r"need scores \[n\]"):
        attack_rates(torch.tensor([0.1, 0.2]), torch.tensor([0]), AT)
