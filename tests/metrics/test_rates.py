"""Rates against numbers worked by hand, and against scikit-learn on scores with many ties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from coalface.metrics import rates

# Six scores with one tie between the kinds. At 0.4: FMR 2/3, FNMR 0. At 0.6: FMR 1/3, FNMR 1/3.
IMPOSTOR = torch.tensor([0.1, 0.4, 0.6], dtype=torch.float64)
GENUINE = torch.tensor([0.4, 0.7, 0.9], dtype=torch.float64)

tied_scores = st.lists(st.integers(0, 12), min_size=1, max_size=60).map(lambda x: np.array(x, dtype=np.float64) / 4)


def test_score_on_the_threshold_is_accepted() -> None:
    assert rates.fmr(IMPOSTOR, 0.4) == 2 / 3
    assert rates.fnmr(GENUINE, 0.4) == 0.0
    assert rates.fmr(IMPOSTOR, 0.6) == 1 / 3
    assert rates.fnmr(GENUINE, 0.6) == 1 / 3
    assert rates.fmr(IMPOSTOR, 0.61) == 0.0


def test_eer_and_auc_by_hand() -> None:
    assert rates.eer(IMPOSTOR, GENUINE) == pytest.approx(1 / 3)
    # 0.4 beats one, ties one, loses to one: 1.5; the others beat all three.
    assert rates.auc(IMPOSTOR, GENUINE) == 7.5 / 9


def test_eer_on_a_slanted_piece() -> None:
    # The tie at 0.5 joins (FMR ½, FNMR 0) to (0, ½): the line crosses the diagonal at ¼.
    assert rates.eer(np.array([0.0, 0.5]), np.array([0.5, 1.0])) == pytest.approx(0.25)
    assert rates.auc(np.array([0.0, 0.5]), np.array([0.5, 1.0])) == 3.5 / 4


def test_eer_at_the_ends() -> None:
    low, high = torch.zeros(3), torch.ones(5)
    assert rates.eer(low, high) == 0.0
    assert rates.eer(high, low) == 1.0
    assert rates.eer(low, torch.zeros(7)) == 0.5
    assert rates.auc(low, torch.zeros(7)) == 0.5


@pytest.mark.parametrize(
    ("target", "above", "attained"),
    [(0.25, 0.2, 0.25), (0.5, 0.2, 0.25), (0.74, 0.2, 0.25), (0.75, 0.1, 0.75)],
)
def test_tied_impostors_are_rejected_together(target: float, above: float, attained: float) -> None:
    impostor = torch.tensor([0.2, 0.1, 0.3, 0.2], dtype=torch.float64)
    threshold = rates.threshold_at_fmr(impostor, target)
    assert threshold.value == math.nextafter(above, math.inf)
    assert rates.fmr(impostor, threshold) == attained
    assert rates.fmr(impostor, above) > target  # nothing smaller would do
    assert not threshold.reliable


def test_target_that_a_product_would_round_down() -> None:
    assert 0.29 * 100 < 29
    assert rates.allowed_false_matches(0.29, 100) == 29


def test_threshold_keeps_its_meaning_in_single_precision() -> None:
    impostor = torch.tensor([0.1, 0.2, 0.3, 0.4])
    threshold = rates.threshold_at_fmr(impostor, 0.5)
    assert int((impostor >= threshold.value).sum()) == 2  # torch compares in float32 here
    assert rates.fmr(impostor, threshold) == 0.5


@given(tied_scores, st.floats(0.01, 0.99))
def test_threshold_is_the_smallest_that_keeps_the_target(impostor: np.ndarray, target: float) -> None:
    if len(impostor) * target < 1:
        with pytest.raises(ValueError, match="impostor pairs"):
            rates.threshold_at_fmr(impostor, target)
        return
    threshold = rates.threshold_at_fmr(impostor, target).value
    assert rates.fmr(impostor, threshold) <= target
    assert rates.fmr(impostor, math.nextafter(threshold, -math.inf)) > target


def test_unsupported_fmr_names_the_count_needed() -> None:
    with pytest.raises(ValueError, match=r"FMR 0\.001 needs at least 1,000 impostor pairs, got 999"):
        rates.threshold_at_fmr(torch.rand(999), 1e-3)
    assert not rates.threshold_at_fmr(torch.rand(1000), 1e-3).reliable
    assert not rates.threshold_at_fmr(torch.rand(9999), 1e-3).reliable
    assert rates.threshold_at_fmr(torch.rand(10000), 1e-3).reliable


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, math.nan])
def test_target_outside_the_open_interval(target: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        rates.threshold_at_fmr(IMPOSTOR, target)


def test_operating_point_and_its_sentence() -> None:
    point = rates.fnmr_at_fmr(IMPOSTOR, GENUINE, 0.4)  # one false match of three allowed: threshold just above 0.4
    assert (point.fmr, point.fnmr, point.tar) == (1 / 3, 1 / 3, 1 - 1 / 3)
    assert str(point).startswith("TAR@FMR 0.4 = 0.6667, 3 genuine / 3 impostor pairs (unreliable")


def test_highest_scores_are_enough() -> None:
    generator = torch.Generator().manual_seed(1)
    impostor, genuine = torch.rand(5000, generator=generator), torch.rand(50, generator=generator) + 0.5
    whole = rates.fnmr_at_fmr(impostor, genuine, 0.01)
    assert rates.fnmr_at_fmr(impostor.topk(51).values, genuine, 0.01, impostors=5000) == whole
    with pytest.raises(ValueError, match="51 highest scores, got 50"):
        rates.fnmr_at_fmr(impostor.topk(50).values, genuine, 0.01, impostors=5000)


@settings(max_examples=60)
@given(tied_scores, tied_scores)
def test_agrees_with_scikit_learn(impostor: np.ndarray, genuine: np.ndarray) -> None:
    scores, same = np.concatenate([impostor, genuine]), np.repeat([0, 1], [len(impostor), len(genuine)])
    assert rates.auc(impostor, genuine) == pytest.approx(sk.roc_auc_score(same, scores))
    far, tar, threshold = sk.roc_curve(same, scores, drop_intermediate=False)
    our_far, our_tar = rates.roc_curve(impostor, genuine)
    np.testing.assert_allclose(our_far.numpy(), far)
    np.testing.assert_allclose(our_tar.numpy(), tar)
    curve = rates.det_curve(impostor, genuine)
    np.testing.assert_allclose(curve.threshold.flip(0)[1:].numpy(), threshold[1:])
    # Their polyline, cut finely, crosses FMR = FNMR where ours does.
    along = np.linspace(0, len(far) - 1, 20_001)
    fine_far = np.interp(along, np.arange(len(far)), far)
    fine_frr = 1 - np.interp(along, np.arange(len(far)), tar)
    nearest = np.abs(fine_far - fine_frr).argmin()
    assert rates.eer(impostor, genuine) == pytest.approx(fine_far[nearest], abs=0.01)


def test_thinned_curve_keeps_the_ends_and_the_tails() -> None:
    generator = torch.Generator().manual_seed(0)
    impostor = torch.randn(20_000, generator=generator, dtype=torch.float64)
    genuine = torch.randn(2_000, generator=generator, dtype=torch.float64) + 3
    whole, thin = rates.det_curve(impostor, genuine), rates.det_curve(impostor, genuine, points=100)
    assert len(whole.threshold) == 22_001
    assert 50 <= len(thin.threshold) <= 100
    assert (thin.fmr[0], thin.fnmr[0], thin.fmr[-1], thin.fnmr[-1]) == (1, 0, 0, 1)
    assert int(((thin.fmr > 0) & (thin.fmr < 1e-2)).sum()) > 20
    on_logs = thin.for_log_axes()
    assert float(on_logs.fmr.min()) > 0
    assert float(on_logs.fnmr.min()) > 0


def test_best_accuracy_threshold_lies_midway_and_takes_the_highest() -> None:
    scores = torch.tensor([0.1, 0.4, 0.6, 0.4, 0.7, 0.9], dtype=torch.float64)
    same = torch.tensor([0, 0, 0, 1, 1, 1])
    # Accepting from 0.4, or from 0.7: 4 and 5 of 6 right.
    assert rates.best_accuracy_threshold(scores, same).value == pytest.approx(0.65)
    # From 0.2 or from 0.4, three of four are right: the higher one, between 0.3 and 0.4, is taken.
    tied = rates.best_accuracy_threshold(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, True, False, True]))
    assert tied.value == pytest.approx(0.35)


def test_best_accuracy_threshold_at_the_ends() -> None:
    scores = np.array([0.2, 0.5])
    assert rates.best_accuracy_threshold(scores, np.array([1, 1])).value == 0.2
    assert rates.best_accuracy_threshold(scores, np.array([0, 0])).value == math.nextafter(0.5, 1)
    neighbours = np.array([0.5, math.nextafter(0.5, 1)])
    assert rates.best_accuracy_threshold(neighbours, np.array([0, 1])).value == neighbours[1]


def test_eer_threshold_takes_the_nearest_crossing() -> None:
    assert rates.eer_threshold(IMPOSTOR, GENUINE).value == 0.6


def test_bad_scores_are_refused_with_their_value() -> None:
    with pytest.raises(ValueError, match="impostor score 1 is nan"):
        rates.fmr(torch.tensor([0.1, math.nan]), 0.5)
    with pytest.raises(ValueError, match="genuine score 0 is inf"):
        rates.eer(IMPOSTOR, torch.tensor([math.inf]))
    with pytest.raises(ValueError, match="no genuine scores"):
        rates.auc(IMPOSTOR, torch.empty(0))
    with pytest.raises(ValueError, match="3 scores but 2 labels"):
        rates.best_accuracy_threshold(IMPOSTOR, torch.tensor([1, 0]))
