"""Recovery: it solves what can be solved, and fails where there is nothing to solve."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedfv import FedFV, fuse
from coalface.privacy.audits import chords, equivalents, recovery, simulate

AXES = torch.eye(4)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sums_of_parts(parts_TCRK: Tensor, voices_CKD: Tensor) -> Tensor:
    """Chords as the server makes them, for choirs and parts that chorus itself refuses."""
    return parts_TCRK @ voices_CKD / math.sqrt(parts_TCRK.shape[2])


# FedFV


def test_a_triangle_of_pairs_is_solved_by_hand() -> None:
    """w_12 + w_13 − w_23 = (w1 + w2 + w1 + w3 − w2 − w3) / √2 = √2 w1."""
    pairs = torch.tensor([[0, 1], [0, 2], [1, 2]])
    sent = fuse(AXES[:3], pairs)
    by_hand = F.normalize(sent[0] + sent[1] - sent[2], dim=0)
    torch.testing.assert_close(by_hand, AXES[0])
    torch.testing.assert_close(equivalents.solved(sent, pairs), AXES[:3], atol=1e-5, rtol=0)


def test_lost_lengths_are_found_again() -> None:
    """Three embeddings that are not orthogonal: sums have lengths other than √2, and the solver finds them."""
    truth = F.normalize(torch.tensor([[1.0, 0.3, 0.0], [0.0, 1.0, 0.4], [0.2, 0.0, 1.0]]), dim=1)
    pairs = torch.tensor([[0, 1], [0, 2], [1, 2]])
    rough = equivalents.solved(fuse(truth, pairs), pairs, refinements=0)
    fine = equivalents.solved(fuse(truth, pairs), pairs, refinements=50)
    off = [float((1 - (found * truth).sum(dim=1)).max()) for found in (rough, fine)]
    assert off[1] < 1e-5 < off[0]


def test_an_even_cycle_is_not_determined() -> None:
    """Of a square of pairs, w ± (1, −1, 1, −1) fits as well: the attack must not pretend to know."""
    square = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
    assert float((equivalents.solved(fuse(AXES, square), square) * AXES).sum(dim=1).max()) < 0.9


@pytest.mark.parametrize("fused", [2, 3])
def test_what_fedfv_sends_is_solved(fused: int) -> None:
    draw = drawn()
    truth = simulate.embeddings(100, 256, draw)
    sent = simulate.fedfv(FedFV(fused=fused, equivalents=50), truth, 12, 4, draw)
    found = recovery.from_equivalents(sent.broadcasts, fused, truth[torch.cat(sent.mixed).unique()], draw)
    assert found.success > 0.95 and found.details["median_cosine"] > 0.99
    assert found.chance == 0 and found.interval.low > 0.9
    assert found.details["equivalents"] == 600
    json.dumps(found.as_dict())


def test_the_same_attack_on_shuffled_equivalents_finds_nobody() -> None:
    draw = drawn()
    truth = simulate.embeddings(100, 256, draw)
    sent = torch.cat(simulate.fedfv(FedFV(equivalents=50), truth, 12, 4, draw).broadcasts)
    order = torch.rand(sent.shape, generator=draw).argsort(dim=0)
    found = recovery.from_equivalents([F.normalize(sent.gather(0, order), dim=1)], 2, truth, draw)
    assert found.success == 0 and found.details["median_cosine"] < 0.4


def test_people_who_have_something_in_common_are_solved_too() -> None:
    draw = drawn()
    truth = simulate.embeddings(100, 256, draw, mean_cosine=0.3)
    sent = simulate.fedfv(FedFV(equivalents=50), truth, 12, 4, draw)
    found = recovery.from_equivalents(sent.broadcasts, 2, truth[torch.cat(sent.mixed).unique()], draw)
    assert found.success > 0.95


# Chorus, sums


@pytest.mark.parametrize("choir", [4, 16])
def test_a_sum_has_cosine_one_over_root_k_to_each_voice(choir: int) -> None:
    voices = torch.eye(2 * choir)
    sung = simulate.choirs(Chorus(choir=choir), voices, rounds=3, generator=drawn())
    found = recovery.from_sums(sung.chords, voices.view(2, choir, -1), drawn())
    assert found.details["median_cosine"] == pytest.approx(choir**-0.5) == found.details["largest_cosine"]
    assert found.success == 0


def test_a_sum_of_one_would_be_found_out() -> None:
    """The control: the same audit on choirs of one, which hide nobody."""
    voices = simulate.embeddings(20, 64, drawn())[:, None]
    assert recovery.from_sums(voices[None], voices, drawn()).success == 1


def test_all_but_one_unmask_the_last() -> None:
    truth = simulate.embeddings(40, 128, drawn(), mean_cosine=0.1)
    sung = simulate.choirs(Chorus(choir=4), truth, 1, drawn())
    found = recovery.from_sums_by_members(sung.chords, truth.view(10, 4, 128), drawn())
    assert found.success == 1 and found.details["median_cosine"] > 0.9999 and found.chance == 0


# Chorus, mixtures


def test_a_frame_that_agrees_has_unit_voices_and_the_same_products() -> None:
    axes = torch.diag(torch.tensor([1.5, 1.2, 0.9, 0.4], dtype=torch.float64).sqrt())
    frame = chords.agreeing(axes)
    torch.testing.assert_close(frame.T @ frame, axes.T @ axes)
    torch.testing.assert_close(frame.norm(dim=1), torch.ones(4, dtype=torch.float64))


def test_of_two_voices_the_frame_is_the_only_one() -> None:
    """Cosine 0.6: eigenvalues 1.6 and 0.4, eigenvectors w1 ± w2."""
    voices = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    values, columns = torch.linalg.eigh(voices.T @ voices)
    torch.testing.assert_close(values, torch.tensor([0.4, 1.6], dtype=torch.float64))
    frame = chords.agreeing(values.sqrt()[:, None] * columns.T)
    torch.testing.assert_close(recovery.best_match(frame, voices, signed=False), torch.ones(2, dtype=torch.float64))


def test_mixtures_of_two_are_broken() -> None:
    draw = drawn()
    voices = simulate.embeddings(40, 64, draw, mean_cosine=0.4).view(20, 2, 64)
    sent = sums_of_parts(torch.randn(100, 20, 16, 2, generator=draw), voices)
    found = recovery.from_mixtures(sent, voices, draw)
    assert found.success > 0.95 and found.details["median_cosine"] > 0.99 and found.success > found.chance + 0.2


@pytest.mark.parametrize("search", ["agreeing", "independent"])
def test_mixtures_of_eight_tell_no_more_than_their_span(search: recovery.Search) -> None:
    draw = drawn()
    truth = simulate.embeddings(160, 128, draw)
    sung = simulate.choirs(Chorus(choir=8, parts=16), truth, 10, draw)
    found = recovery.from_mixtures(sung.chords, truth.view(20, 8, 128), draw, search)
    assert found.success < 0.1 and abs(found.success - found.chance) < 0.06
    assert found.details["median_cosine"] == pytest.approx(found.details["chance_median_cosine"], abs=0.06)


def test_parts_that_are_not_gaussian_give_voices_away() -> None:
    """The control of the fourth moments: with parts of ±1 the same search finds every voice."""
    draw = drawn()
    voices = simulate.embeddings(80, 64, draw).view(10, 8, 64)
    signs = torch.randint(2, (100, 10, 16, 8), generator=draw) * 2.0 - 1
    found = recovery.from_mixtures(sums_of_parts(signs, voices), voices, draw, "independent")
    assert found.success > 0.95 and found.details["median_cosine"] > 0.99


def test_all_but_two_unmask_both_from_mixtures() -> None:
    draw = drawn()
    truth = simulate.embeddings(40, 64, draw, mean_cosine=0.4)
    sung = simulate.choirs(Chorus(choir=4, parts=16), truth, 60, draw)
    voices = truth.view(10, 4, 64)
    found = recovery.from_mixtures_by_members(sung.chords, sung.parts, voices, 2, draw)
    assert found.attack == "collusion" and found.success > 0.9 and found.details["people"] == 20
    alone = recovery.from_mixtures_by_members(sung.chords[:1], sung.parts[:1], voices, 3, draw)
    assert alone.details["median_cosine"] == pytest.approx(1, abs=1e-5)  # one voice left is what is left
    with pytest.raises(ValueError, match="from 1 to 3 of a choir of 4, not 4"):
        recovery.from_mixtures_by_members(sung.chords, sung.parts, voices, 4, draw)


def test_simulated_embeddings_are_as_asked() -> None:
    draw = drawn()
    people = simulate.embeddings(400, 512, draw, mean_cosine=0.25)
    cosines = people @ people.T
    assert float((cosines.sum() - 400) / (400 * 399)) == pytest.approx(0.25, abs=0.01)
    photos = simulate.moved(people, 0.7, draw)
    torch.testing.assert_close((people * photos).sum(dim=1), torch.full((400,), 0.7))
    with pytest.raises(ValueError, match="must fill choirs of 3"):
        simulate.choirs(Chorus(choir=3), people, 1, draw)
