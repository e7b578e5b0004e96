from __future__ import annotations

from math import log

import pytest
import torch

from coalface.objectives.detection import depth_error, live_cross_entropy
from coalface.objectives.disentanglement import difference, reconstruction_error


def test_cross_entropy_of_a_sure_and_an_unsure_detector() -> None:
    logits = torch.tensor([0.0, log(3.0), log(3.0)])  # probabilities of live: 1/2, 3/4, 3/4
    losses = live_cross_entropy(logits, torch.tensor([1.0, 1.0, 0.0]))
    assert losses.tolist() == pytest.approx([log(2), log(4 / 3), log(4)])


def test_depth_is_measured_from_zero_to_one() -> None:
    truth = torch.tensor([[[255, 0]], [[0, 0]]], dtype=torch.uint8)
    assert depth_error(torch.zeros(2, 1, 2), truth).tolist() == [0.5, 0.0]
    assert depth_error(torch.tensor([[[1.0, 0.0]], [[3.0, 1.0]]]), truth).tolist() == [0.0, 5.0]


def test_features_of_disjoint_supports_do_not_overlap() -> None:
    """Where one kind speaks of some frames and the other of the other frames, nothing is shared."""
    invariant = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    specific = torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    assert float(difference(invariant, specific)) == 0


def test_overlap_by_hand() -> None:
    """Rows at length 1: Z_I = (1, 0), Z_S = (0.6, 0.8); their products are 0.6, 0.8, 0 and 0."""
    found = difference(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    assert float(found) == pytest.approx((0.36 + 0.64) / 4, rel=1e-5)


def test_no_gradient_goes_through_the_lengths() -> None:
    """Along its own direction a feature would otherwise have none: its length would cancel out."""
    one = torch.tensor([[2.0, 0.0]], requires_grad=True)
    difference(one, torch.tensor([[3.0, 4.0]])).backward()
    assert one.grad is not None and float(one.grad[0, 0]) > 0.1


def test_reconstruction_is_a_mean_over_pixels() -> None:
    image = torch.zeros(2, 6, 2, 2)
    image[1] = 0.5
    assert reconstruction_error(torch.zeros_like(image), image).tolist() == [0.0, 0.25]
