"""Intervals against textbook numbers, and the weighted bootstrap against people that are really copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coalface.metrics import intervals, rates
from coalface.metrics.bootstrap import curve_statistics, genuine_histogram, impostor_histogram, score_grid


def test_wilson_by_hand() -> None:
    # 0 of 10: the upper end is z² / (n + z²) = 3.8415 / 13.8415.
    assert intervals.wilson(0, 10).low == pytest.approx(0.0)
    assert intervals.wilson(0, 10).high == pytest.approx(0.27753, abs=1e-5)
    half = intervals.wilson(50, 100)
    assert (half.low, half.high) == (pytest.approx(0.40383, abs=1e-5), pytest.approx(0.59617, abs=1e-5))
    with pytest.raises(ValueError, match="11 of 10"):
        intervals.wilson(11, 10)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423)]
)
def test_student_table(freedom: int, t: float) -> None:
    assert intervals.student_quantile(0.975, freedom) == pytest.approx(t, abs=1e-4)


def test_fold_interval_by_hand() -> None:
    # Mean 0.8, standard error 0.1/√3; t for 2 degrees of freedom is 4.3027: ± 0.2484, cut at 1.
    interval = intervals.fold_interval([0.7, 0.8, 0.9])
    assert interval.low == pytest.approx(0.55159, abs=1e-4)
    assert interval.high == 1.0


def test_replicates_draw_every_identity_equally_often() -> None:
    drawn = intervals.resampled_identities(5, 2000, torch.Generator().manual_seed(0))
    assert drawn.shape == (5, 2000)
    assert bool((drawn.sum(0) == 5).all())
    assert drawn.mean(1).tolist() == pytest.approx([1.0] * 5, abs=0.1)
    assert float(drawn.var()) == pytest.approx(1 - 1 / 5, abs=0.05)  # binomial(5, 1/5)


def _small_world() -> tuple[torch.Tensor, torch.Tensor]:
    """Scores between 11 images of 4 identities, rounded so that ties abound."""
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3])
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(11, 11, generator=generator) + 0.3 * (labels.unsqueeze(1) == labels)
    return ((scores + scores.T) * 5).round() / 10, labels


@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (2, 0, 1, 1), (0, 3, 1, 0), (1, 1, 2, 0)])
@pytest.mark.parametrize("rows", [2, 11])
def test_weighted_histograms_equal_copied_people(counts: tuple[int, ...], rows: int) -> None:
    scores, labels = _small_world()
    weights = torch.tensor(counts, dtype=torch.float32).unsqueeze(1)
    upper = torch.ones(11, 11).triu(1).bool()
    left, right = labels.unsqueeze(1).expand(11, 11)[upper], labels.expand(11, 11)[upper]
    own = left == right
    genuine, impostor = scores[upper][own], scores[upper][~own]
    grid = score_grid(genuine, impostor, [3])
    assert set(grid.tolist()) == set(scores[upper].tolist())  # few distinct scores: each is a level

    impostor_bins = sum(
        impostor_histogram(scores[r : r + rows, r:].contiguous(), labels[r : r + rows], labels[r:], grid, weights)
        for r in range(0, 11, rows)
    )
    found = curve_statistics(genuine_histogram(genuine, left[own], grid, weights), impostor_bins, [0.1])

    people = torch.tensor(counts)
    copied_genuine = genuine.repeat_interleave(people[left[own]])
    copied_impostor = impostor.repeat_interleave(people[left[~own]] * people[right[~own]])
    assert float(found["auc"]) == pytest.approx(rates.auc(copied_impostor, copied_genuine))
    assert float(found["eer"]) == pytest.approx(rates.eer(copied_impostor, copied_genuine))
    far, tar = rates.roc_curve(copied_impostor, copied_genuine)
    last = int((far <= 0.1).nonzero()[-1])
    by_line = np.interp(0.1, far[last : last + 2].numpy(), tar[last : last + 2].numpy())
    assert float(found["tar@0.1"]) == pytest.approx(by_line)


def test_resample_without_pairs_is_left_out() -> None:
    values = torch.tensor([0.4, float("nan"), 0.6])
    interval = intervals.percentile_interval(values, level=0.5)
    assert (interval.low, interval.high) == (pytest.approx(0.45), pytest.approx(0.55))
    with pytest.raises(ValueError, match="2 of 3 resamples"):
        intervals.percentile_interval(torch.tensor([0.4, float("nan"), float("nan")]))


def test_accuracy_interval_follows_people_not_pairs() -> None:
    # One hundred same pairs: in `shared` they belong to 10 people who are wholly right or wholly wrong.
    correct = torch.arange(100) % 10 < 7
    many = torch.arange(100)
    shared = torch.arange(100) % 10
    wide = intervals.accuracy_interval(correct, shared, shared, seed=0)
    narrow = intervals.accuracy_interval(correct, many, many, seed=0)
    assert narrow.low < 0.7 < narrow.high
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * (0.7 * 0.3 / 100) ** 0.5, abs=0.03)
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * (0.7 * 0.3 / 10) ** 0.5, abs=0.08)


def test_accuracy_interval_is_a_function_of_the_seed() -> None:
    correct, left, right = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 1, 2, 1, 2])
    assert intervals.accuracy_interval(correct, left, right, seed=4) == intervals.accuracy_interval(
        correct, left, right, seed=4
    )
