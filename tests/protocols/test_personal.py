"""The personal protocol, on two people whose cosines can be read off their angles, and against a plain count."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from coalface.metrics import rates
from coalface.protocols.personal import BLOCK_SCORES, enrol, enrolled_auc, identify, identify_as_released, verify


def at(*degrees: float) -> Tensor:
    """Unit vectors in the plane."""
    radians = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], dim=1)


# Two people of the client, at about 0° and 90°, two probes each; and four probes of others.
OWN, LABELS, OTHERS = at(0, 20, 90, 132), torch.tensor([0, 0, 1, 1]), at(30, 60, 180, 240)


def test_pairs_by_hand() -> None:
    """Genuine: 20° and 42° apart. Impostors with others: 10, 30, 30, 40, 48, …; within: 70, 90, 112, 132.

    16 pairs with others: at FMR 1/16 one is allowed, the threshold is just above cos 30°, and 20° passes. At 4/16 the
    fifth nearest, 48°, is out, and both pass. With the client's own four there are 20 pairs.
    """
    both = verify(OWN, LABELS, OTHERS, [1 / 16, 0.25])
    assert [point.tar for point in both["others"].at_fmr] == [0.5, 1.0]
    assert (both["others"].genuine_pairs, both["others"].impostor_pairs) == (2, 16)
    assert (both["release"].genuine_pairs, both["release"].impostor_pairs) == (2, 20)
    assert math.cos(math.radians(30)) < both["others"].at_fmr[0].threshold < math.cos(math.radians(29.9))
    # 20° is beaten by one impostor of 16, 42° by four; the client's own four are farther than both.
    assert both["others"].auc == pytest.approx((15 / 16 + 12 / 16) / 2)
    assert both["release"].auc == pytest.approx((19 / 20 + 16 / 20) / 2)


def test_an_fmr_that_the_pairs_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="needs at least 100 impostor pairs, got 16"):
        verify(OWN, LABELS, OTHERS, [0.01])
    with pytest.raises(ValueError, match="two probes of somebody"):
        verify(OWN[1:3], LABELS[1:3], OTHERS, [0.25])


def test_a_gallery_is_the_mean_of_normalised_features() -> None:
    gallery = enrol(5 * at(0, 60, 90), torch.tensor([0, 0, 1]), 2)
    assert gallery[0].tolist() == pytest.approx([0.75, math.sqrt(3) / 4])  # of length cos 30°
    assert gallery[1].tolist() == pytest.approx([0, 1])
    with pytest.raises(ValueError, match="person 1 of 2 has no image"):
        enrol(at(0), torch.tensor([0]), 2)


def test_identification_by_hand() -> None:
    """Enrolled at 0° and 60°. Probes of person 0 at 10° and 40° (nearer to 60°), of person 1 at 50° and 100°.

    Strangers at 75°, 180°, 240°, 265°: best matches 15°, 120°, 120°, 95° away. At FPIR ¼ one may pass, so that the
    threshold is just above cos 95°: 10°, 50° and 100° are right, 40° is the wrong person.
    """
    gallery, own, labels, strangers = at(0, 60), at(10, 40, 50, 100), torch.tensor([0, 0, 1, 1]), at(75, 180, 240, 265)
    (found,) = identify(gallery, own, labels, strangers, [0.25])
    assert (found.tpir, found.mated, found.strangers, found.reliable) == (0.75, 4, 4, False)
    assert found.threshold == pytest.approx(math.cos(math.radians(95)))
    with pytest.raises(ValueError, match="needs at least 10"):
        identify(gallery, own, labels, strangers, [0.1])


def test_the_release_counts_otherwise() -> None:
    """All wrong comparisons, nearest first: 15° (75° to 60°), 20° (40° to 60°), 50°, 50°, …, of eight probes.

    FPIR ⅛ takes the first: right comparisons are 10°, 40°, 10° and 40° away, so two lie above cos 15°. FPIR ¼ takes
    the second, cos 20°. FPIR ½ takes the fourth, cos 50°, and all four pass: also the one whose best match is wrong.
    """
    gallery, own, labels, strangers = at(0, 60), at(10, 40, 50, 100), torch.tensor([0, 0, 1, 1]), at(75, 180, 240, 265)
    found = identify_as_released(gallery, own, labels, strangers, [1 / 8, 1 / 4, 1 / 2])
    assert [one.tpir for one in found] == [0.5, 0.5, 1.0]
    assert [one.threshold for one in found] == pytest.approx([math.cos(math.radians(a)) for a in (15, 20, 50)])
    short = identify_as_released(gallery * torch.tensor([[0.1], [1.0]]), own, labels, strangers, [1 / 8])
    assert short[0].tpir == 0.25  # lengths count here: person 0 scores a tenth


def test_a_rank_is_not_one_too_high_by_rounding() -> None:
    """0.07 · 100 is a little more than 7: the threshold is still the seventh highest of 100 wrong comparisons."""
    gallery, own, labels, strangers = at(0), at(10), torch.tensor([0]), at(*range(50, 149))
    (found,) = identify_as_released(gallery, own, labels, strangers, [0.07])
    assert found.threshold == pytest.approx(math.cos(math.radians(56)))


def test_auroc_against_the_enrolled_by_hand() -> None:
    """One person at 0°; own probes 10° and 50° away, strangers 30° and 90°: three of four comparisons in order."""
    assert enrolled_auc(at(0), at(10, 50), torch.tensor([0, 0]), at(30, 90)) == 0.75


@pytest.mark.parametrize("block", [7, 100, 10_000])
def test_blocks_change_nothing(block: int) -> None:
    generator = torch.Generator().manual_seed(3)
    own, others = torch.randn(24, 5, generator=generator), torch.randn(50, 5, generator=generator)
    labels = torch.arange(24) % 4
    gallery = enrol(own, labels, 4)
    unit, foreign = (torch.nn.functional.normalize(rows, dim=1) for rows in (own, others))
    cosines, crossed = unit @ unit.T, (unit @ foreign.T).flatten()
    upper = torch.ones(24, 24).triu(1).bool()
    same = labels[:, None] == labels
    genuine, within = cosines[upper & same], cosines[upper & ~same]
    found = verify(own, labels, others, [0.01, 0.1], block_scores=block)
    for reading, impostor in (("others", crossed), ("release", torch.cat([crossed, within]))):
        assert found[reading].impostor_pairs == len(impostor)
        assert found[reading].auc == pytest.approx(rates.auc(impostor, genuine), abs=1e-9)
        expected = [rates.fnmr_at_fmr(impostor, genuine, fmr).tar for fmr in (0.01, 0.1)]
        assert [point.tar for point in found[reading].at_fmr] == expected
    for count in (identify, identify_as_released):
        (found,), (whole,) = (count(gallery, own, labels, others, [0.1], scores) for scores in (block, BLOCK_SCORES))
        assert found.threshold == pytest.approx(whole.threshold, abs=1e-6)  # products of other shapes round otherwise
        assert replace(found, threshold=whole.threshold) == whole
    scores = torch.nn.functional.normalize(gallery, dim=1) @ torch.cat([unit, foreign]).T
    right = torch.cat([torch.arange(4)[:, None] == labels, torch.zeros(4, 50).bool()], dim=1)
    assert enrolled_auc(gallery, own, labels, others, block) == pytest.approx(rates.auc(scores[~right], scores[right]))


def test_two_million_pairs_of_a_client_do_not_stand_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block of scores is larger than it was allowed to be."""
    from coalface.protocols import personal

    largest = 0

    class Noting(personal._Tally):
        def add(self, impostor: Tensor) -> None:
            nonlocal largest
            largest = max(largest, len(impostor))
            super().add(impostor)

    monkeypatch.setattr(personal, "_Tally", Noting)
    generator = torch.Generator().manual_seed(0)
    own, others = torch.randn(40, 4, generator=generator), torch.randn(50_000, 4, generator=generator)
    found = verify(own, torch.arange(40) // 4, others, [1e-5], block_scores=100_000)
    assert found["others"].impostor_pairs == 2_000_000 and largest == 100_000
    assert found["others"].at_fmr[0].reliable
