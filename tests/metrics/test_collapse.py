"""Collapse monitors where the answer is known: orthogonal, simplex, collapsed."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coalface.metrics import collapse


def test_orthogonal_rows() -> None:
    found = collapse.collapse(torch.eye(7))
    assert found.mean_cosine == pytest.approx(0.0, abs=1e-7)
    assert found.max_cosine == 0.0
    assert found.effective_rank == pytest.approx(7.0)
    assert set(found.as_dict()) == {"mean_cosine", "max_cosine", "effective_rank"}


def test_one_direction_is_collapse() -> None:
    rows = torch.arange(1.0, 6.0).unsqueeze(1) * torch.tensor([3.0, 4.0])
    found = collapse.collapse(rows)
    assert found.mean_cosine == pytest.approx(1.0)
    assert found.max_cosine == pytest.approx(1.0)
    assert found.effective_rank == pytest.approx(1.0)


def test_effective_rank_by_hand() -> None:
    # Singular values 3 and 1: entropy of (¾, ¼).
    by_hand = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert collapse.effective_rank(torch.diag(torch.tensor([3.0, 1.0, 0.0]))) == pytest.approx(by_hand)


def test_participation_rank_by_hand() -> None:
    assert collapse.participation_rank(torch.eye(7)) == pytest.approx(7.0)
    assert collapse.participation_rank(torch.ones(5, 3)) == pytest.approx(1.0)
    # Two rows along one axis, one along another: σ² of 2 and 1, so 3² / (2² + 1²).
    rows = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    assert collapse.participation_rank(rows) == pytest.approx(9 / 5)
    assert collapse.of_every_round(rows) == pytest.approx((1 / 3, 1.0, 9 / 5))


def test_simplex_attains_the_bound() -> None:
    simplex = torch.eye(5) - 1 / 5
    assert collapse.mean_cosine(simplex) == pytest.approx(-1 / 4)
    assert collapse.max_cosine(simplex) == pytest.approx(-1 / 4)


@given(st.integers(2, 30), st.integers(1, 8), st.integers(0, 10_000))
def test_mean_cosine_never_falls_below_the_bound(count: int, width: int, seed: int) -> None:
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert collapse.mean_cosine(rows) >= -1 / (count - 1) - 1e-12


@pytest.mark.parametrize("block", [1, 3, 7, 20, 64])
def test_blocks_change_nothing(block: int) -> None:
    rows = torch.randn(20, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    unit = rows / rows.norm(dim=1, keepdim=True)
    gram = unit @ unit.T
    off = gram[~torch.eye(20).bool()]
    assert collapse.max_cosine(rows, block) == pytest.approx(float(off.max()))
    assert collapse.mean_cosine(rows) == pytest.approx(float(off.mean()))


def test_saturated_share() -> None:
    assert collapse.saturated_share(torch.tensor([0.95, 0.5, 0.25, 0.5]), margin=0.5) == 0.75


def test_bad_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"row 1 has length 0\.0"):
        collapse.mean_cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="row 0 has length nan"):
        collapse.max_cosine(torch.tensor([[math.nan, 0.0], [1.0, 0.0]]))
    with pytest.raises(ValueError, match="at least 2"):
        collapse.mean_cosine(torch.ones(1, 4))
    with pytest.raises(ValueError, match="all features are zero"):
        collapse.effective_rank(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"\(0, 1\) is inf"):
        collapse.effective_rank(torch.tensor([[0.0, math.inf]]))
