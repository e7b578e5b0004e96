"""The server's spread-out step: the sound form converges, the papers' and the release's do what their numbers say."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.metrics.collapse import max_cosine, mean_cosine
from coalface.objectives import spread_out
from coalface.objectives.spread_out import by_mean, by_row, by_sum, repulsion
from coalface.transfer import FEW

MARGIN = 0.3


def pair(cosine: float) -> Tensor:
    return torch.tensor([[1.0, 0.0], [cosine, (1 - cosine**2) ** 0.5]], dtype=torch.float64)


def around_one_point(classes: int, cosine: float, dimensions: int = 512) -> Tensor:
    """Unit rows whose cosines are all near ``cosine``: a common direction, and each its own."""
    drawn = torch.randn(classes + 1, dimensions, generator=torch.Generator().manual_seed(1))
    drawn = F.normalize(drawn, dim=1)
    return F.normalize(cosine**0.5 * drawn[0] + (1 - cosine) ** 0.5 * drawn[1:], dim=1)


def regulariser(w: Tensor) -> Tensor:
    """The definition, as in the papers: a sum over ordered pairs."""
    cosines = w @ w.T
    return (F.relu(cosines - MARGIN).square() * (1 - torch.eye(len(w), dtype=w.dtype))).sum()


def test_the_step_is_down_the_gradient_of_the_sum_over_pairs_of_cosines() -> None:
    w = around_one_point(12, 0.5, 16).double().requires_grad_()
    (gradient,) = torch.autograd.grad(regulariser(F.normalize(w, dim=1)), w)
    torch.testing.assert_close(by_sum(w.detach(), MARGIN, 0.1), F.normalize(w.detach() - 0.1 * gradient, dim=1))


@pytest.mark.parametrize("cosine", [0.31, 0.4, 0.6, 0.8, 0.95, 0.99])
def test_two_vectors_come_to_the_margin_and_never_below(cosine: float) -> None:
    w, seen = pair(cosine), []
    for _ in range(200):
        w, _ = by_row(w, MARGIN, 1, within=0.0)
        seen.append(float(w[0] @ w[1]))
    assert min(seen) >= MARGIN - 1e-3
    assert seen == sorted(seen, reverse=True)  # from above, without a swing
    assert seen[-1] == pytest.approx(MARGIN, abs=1e-3)
    assert w.norm(dim=1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("cosine", [0.35, 0.8, 0.99])
def test_a_thousand_collapsed_classes_separate(cosine: float) -> None:
    spread, _ = by_row(around_one_point(1000, cosine, 128), MARGIN, 100)
    assert max_cosine(spread) <= MARGIN + 0.011


def test_steps_that_are_not_looked_at_end_where_those_that_are_do(monkeypatch: pytest.MonkeyPatch) -> None:
    collapsed, apart = around_one_point(50, 0.6, 64), torch.eye(8)
    looked_at = [by_row(w, MARGIN, 60) for w in (collapsed, apart)]
    monkeypatch.setattr(spread_out, "_looks", lambda w, block: False)  # as on an accelerator
    for w, (spread, restless) in zip((collapsed, apart), looked_at, strict=True):
        unseen, then = by_row(w, MARGIN, 60)
        torch.testing.assert_close(unseen, spread)
        assert torch.equal(then, restless)


def test_what_is_spread_already_stays_bit_for_bit() -> None:
    w = torch.eye(8)
    assert torch.equal(by_row(w, MARGIN, 10)[0], w)
    assert torch.equal(by_sum(w, MARGIN, 10.0), w)


@pytest.mark.parametrize("step", [lambda w: by_row(w, MARGIN, 3)[0], lambda w: by_sum(w, MARGIN, 0.01)])
def test_turning_everything_turns_the_result(step: object) -> None:
    """What IPFed rests on: the step commutes with a rotation that the server does not know."""
    w = around_one_point(20, 0.6, 16).double()
    turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(2), dtype=w.dtype)).Q
    torch.testing.assert_close(step(w @ turn), step(w) @ turn)  # type: ignore[operator]
    torch.testing.assert_close(regulariser(w @ turn), regulariser(w))


@pytest.mark.parametrize("block", [1, 7, 49, 50, 64])
@pytest.mark.parametrize("nearest", [0, 5])
def test_tiles_are_exact(block: int, nearest: int) -> None:
    w = around_one_point(50, 0.4, 24).double()
    whole, tiled = (repulsion(w, MARGIN, nearest=nearest, block=b) for b in (1000, block))
    torch.testing.assert_close(tiled.push, whole.push, rtol=1e-12, atol=1e-14)
    assert torch.equal(tiled.active, whole.active)
    assert float(tiled.highest) == pytest.approx(float(whole.highest), abs=1e-14)


def test_nearest_of_all_is_all_and_nearest_one_is_the_closest() -> None:
    w = around_one_point(10, 0.5, 16).double()
    torch.testing.assert_close(repulsion(w, MARGIN, nearest=9).push, repulsion(w, MARGIN).push)
    cosines = (w @ w.T).fill_diagonal_(-2)
    closest, who = cosines.max(dim=1)
    torch.testing.assert_close(repulsion(w, MARGIN, nearest=1).push, (closest - MARGIN)[:, None] * w[who])


@pytest.mark.parametrize("classes", [0, 1])
def test_too_few_classes_are_left_alone(classes: int) -> None:
    w = torch.eye(4)[:classes]
    for spread in (by_row(w, MARGIN, 3)[0], by_sum(w, MARGIN, 1.0), by_mean(w, MARGIN)):
        assert torch.equal(spread, w)
    assert torch.equal(by_row(w, MARGIN, 3, nearest=2)[0], w)


def test_the_printed_step_of_ten_destroys_the_targets() -> None:
    """By hand: cosine 0.4, excess 0.1, a = 4·10·0.1 = 4, so w₁ goes to w₁ − 4·(w₂ − 0.4·w₁) = 2.6·w₁ − 4·w₂, which is
    √14.44 = 3.8 long: it is at 1/3.8 = 0.26 to where it was, and the pair at −11.696/14.44 = −0.81. λη = 0.01 keeps
    each at 0.999 to itself."""
    before = pair(0.4)
    after = by_sum(before, MARGIN, 10.0)
    assert float(after[0] @ after[1]) == pytest.approx(-11.696 / 14.44)
    assert (after * before).sum(dim=1).tolist() == pytest.approx([1 / 3.8] * 2)
    kept = by_sum(before, MARGIN, 0.01)
    assert float((kept * before).sum(dim=1).min()) > 0.999


def test_the_printed_step_never_separates_a_thousand_but_the_small_one_does() -> None:
    for step, separated in ((10.0, False), (0.01, True)):
        w = around_one_point(1000, 0.35, 512)
        for _ in range(20):
            w = by_sum(w, MARGIN, step)
        cosines = (w @ w.T).fill_diagonal_(-1)
        assert (float((cosines > MARGIN + 0.01).float().mean()) < 0.01) == separated


def test_the_release_moves_nothing() -> None:
    w = around_one_point(1000, 0.8, 64)
    assert abs(mean_cosine(by_mean(w, MARGIN)) - mean_cosine(w)) < 1e-3
    assert mean_cosine(by_row(w, MARGIN, 5)[0]) < mean_cosine(w) - 0.2  # where five sound steps move a lot


@pytest.mark.parametrize("nearest", [0, 3])
def test_a_tile_is_made_once_and_nothing_more_is_done_where_all_are_apart(
    nearest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty classes in tiles of ten: 4 + 3 + 2 + 1 tiles of 16, and two classes that are close."""
    tiles: list[tuple[int, int]] = []
    cosines = spread_out._cosines
    monkeypatch.setattr(
        spread_out,
        "_cosines",
        lambda w, rows, columns: [tiles.append((rows.start, columns.start)), cosines(w, rows, columns)][1],
    )
    w = torch.eye(40, dtype=torch.float64)
    w[25] = F.normalize(w[3] + w[25], dim=0)  # at √½ to class 3
    found = repulsion(w, MARGIN, nearest=nearest, block=10)
    assert len(tiles) == len(set(tiles)) == 10
    assert found.active.nonzero().flatten().tolist() == [3, 25]
    torch.testing.assert_close(found.push[3], (0.5**0.5 - MARGIN) * w[25])
    torch.testing.assert_close(found.push[25], (0.5**0.5 - MARGIN) * w[3])
    assert float(found.highest) == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("block", [7, 64])
@pytest.mark.parametrize("nearest", [0, 3])
def test_round_by_round_only_what_may_be_too_close_is_looked_at(block: int, nearest: int) -> None:
    """Of forty classes five move each round, some to each other's places; looking at all pairs gives the same."""
    generator = torch.Generator().manual_seed(0)
    some = everything = F.normalize(torch.randn(40, 96, generator=generator, dtype=torch.float64), dim=1)
    restless = torch.ones(40, dtype=torch.bool)
    looked_at = []
    for _ in range(12):
        moved = torch.randperm(40, generator=generator)[:5]
        to = F.normalize(torch.randn(5, 96, generator=generator, dtype=torch.float64) + 4 * everything[moved[0]], dim=1)
        restless[moved] = True
        looked_at.append(int(restless.sum()))
        some, restless = by_row(
            some.index_copy(0, moved, to), MARGIN, 9, restless_C=restless, nearest=nearest, block=block
        )
        everything, _ = by_row(everything.index_copy(0, moved, to), MARGIN, 9, nearest=nearest, block=block)
        torch.testing.assert_close(some, everything, rtol=0, atol=1e-12)
        too_close = (some @ some.T).fill_diagonal_(-1) > MARGIN
        assert not too_close[~restless][:, ~restless].any()
    assert looked_at[0] == 40 and 5 <= min(looked_at) < 30


@pytest.mark.parametrize("nearest", [0, 3])
def test_of_many_classes_a_few_are_looked_at(nearest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty classes, three of which have moved: one tile of 3 × 3, and four of 3 × (at most) 10."""
    cosines, pairs = spread_out._cosines, []
    monkeypatch.setattr(
        spread_out, "_cosines", lambda *given: [found := cosines(*given), pairs.append(found.numel())][0]
    )
    w = torch.eye(40, dtype=torch.float64)
    w[25] = F.normalize(w[3] + w[25], dim=0)  # at √½ to class 3
    among = torch.zeros(40, dtype=torch.bool)
    among[[7, 25, 30]] = True
    some, whole = (repulsion(w, MARGIN, among_C=a, nearest=nearest, block=10) for a in (among, None))
    assert pairs[:5] == [9, 30, 30, 30, 21]
    torch.testing.assert_close(some.push, whole.push)
    assert torch.equal(some.active, whole.active) and float(some.highest) == float(whole.highest)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="about a GPU")
@pytest.mark.parametrize("classes", [8, 2 * FEW])
def test_a_gpu_has_the_hosts_rows(classes: int) -> None:
    w = around_one_point(classes, 0.9).double()
    there, restless = by_row(w.cuda(), MARGIN, 5)
    here, restless_here = by_row(w, MARGIN, 5)
    assert there.is_cuda
    assert restless.is_cuda
    torch.testing.assert_close(there.cpu(), here)
    assert torch.equal(restless.cpu(), restless_here)


def test_where_nothing_has_moved_nothing_is_looked_at() -> None:
    w = pair(0.9)  # too close, but nobody says so
    spread, restless = by_row(w, MARGIN, 5, restless_C=torch.zeros(2, dtype=torch.bool))
    assert spread is w and not restless.any()
