"""Linkage: members are found where their photographs stand out, and nobody is found by luck."""

from __future__ import annotations

import pytest
import torch

from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedfv import FedFV, fuse
from coalface.privacy.audits import linkage, simulate


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_scores_by_hand() -> None:
    """A photograph with cosine 0.6 to w1: 0.6/√2 to the mean of w1 and w2, and 0.6 to their span."""
    axes = torch.eye(4)
    photo = torch.tensor([[0.6, 0.0, 0.0, 0.8]])
    pair = fuse(axes, torch.tensor([[0, 1]]))
    torch.testing.assert_close(linkage.against_directions(pair)(photo), torch.tensor([0.6 / 2**0.5]))
    mixtures = torch.tensor([[1.0, 2.0], [-3.0, 1.0], [0.5, 0.5]]) @ axes[:2]
    torch.testing.assert_close(linkage.against_spans(mixtures[None], voices=2)(photo), torch.tensor([0.6]))


def test_absent_equivalents_do_not_count() -> None:
    bank = torch.cat([torch.eye(3)[:1], torch.zeros(2, 3)])
    assert linkage.against_directions(bank)(-torch.eye(3)[:1]).tolist() == [-1]


@pytest.mark.parametrize("fused", [2, 5])
def test_fedfv_gives_members_away(fused: int) -> None:
    draw = drawn()
    people = simulate.embeddings(500 + 20_000, 512, draw)
    photos = simulate.moved(people, 0.7, draw)
    sent = simulate.fedfv(FedFV(fused=fused), people[:500], 1, 8, draw)
    score = linkage.against_directions(sent.broadcasts[0])
    found = linkage.linkage(score, photos[500:], photos[sent.mixed[0]], "fedfv", fpr=1e-3)
    assert found.success > 0.95 and found.chance == 1e-3 and found.details["attained_fpr"] <= 1e-3
    assert found.details["reliable"] and found.details["outsiders"] == 20_000


def test_sums_of_many_hide_membership_and_mixtures_do_not() -> None:
    draw = drawn()
    people = simulate.embeddings(160 + 20_000, 512, draw)
    photos = simulate.moved(people, 0.7, draw)
    outsiders, members = photos[160:], photos[:160]
    sums = simulate.choirs(Chorus(choir=40), people[:160], 1, draw).chords[0]
    mixtures = simulate.choirs(Chorus(choir=8, parts=16), people[:160], 1, draw).chords[0]
    hidden = linkage.linkage(linkage.against_directions(sums[:, 0]), outsiders, members, "sums", 1e-3)
    told = linkage.linkage(linkage.against_spans(mixtures, 8), outsiders, members, "mixtures", 1e-3)
    assert hidden.success < 0.5 and told.success == 1
    assert told.details["median_member"] > 0.7 and told.details["median_outsider"] < 0.3


def test_people_who_are_not_in_the_bank_are_found_by_luck_alone() -> None:
    draw = drawn()
    photos = simulate.moved(simulate.embeddings(60_000, 64, draw), 0.7, draw)
    score = linkage.against_directions(simulate.embeddings(50, 64, draw))
    found = linkage.linkage(score, photos[:30_000], photos[30_000:], "strangers", fpr=1e-2)
    assert found.success == pytest.approx(0.01, abs=0.003)


def test_a_rate_that_outsiders_cannot_carry_is_refused() -> None:
    photos = simulate.embeddings(100, 16, drawn())
    score = linkage.against_directions(photos[:10])
    with pytest.raises(ValueError, match="at least 10,000 impostor pairs, got 90"):
        linkage.linkage(score, photos[10:], photos[:10], "too few", fpr=1e-4)
    assert linkage.strictest_rate(10_000) == 1e-4 and linkage.strictest_rate(9_999) == 1e-3
    with pytest.raises(ValueError, match="at least 1,000"):
        linkage.strictest_rate(999)
