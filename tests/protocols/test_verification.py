"""Folds on a list that can be judged by eye; all pairs against the same rates on one big matrix."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from coalface.metrics import rates
from coalface.protocols.verification import all_pairs, lfw_folds, pair_scores, synthetic_pairs

# Two folds of four pairs. Fold 0 alone would choose 0.5 (all right), fold 1 alone 0.8 (all right).
SCORES = torch.tensor([0.6, 0.9, 0.1, 0.4, 0.9, 1.0, 0.3, 0.7], dtype=torch.float64)
SAME = torch.tensor([1, 1, 0, 0, 1, 1, 0, 0]).bool()


def test_folds_by_hand() -> None:
    result = lfw_folds(SCORES, SAME, folds=2)
    assert result.thresholds == pytest.approx((0.8, 0.5))  # each from the other fold
    assert result.per_fold == (0.75, 0.75)  # 0.6 is refused at 0.8; 0.7 is accepted at 0.5
    assert (result.accuracy, result.spread, result.pairs, result.genuine_pairs) == (0.75, 0.0, 8, 4)


def test_fold_numbers_may_be_given() -> None:
    shuffle = torch.tensor([5, 0, 3, 6, 1, 7, 2, 4])
    fold = torch.tensor([3, 3, 3, 3, 8, 8, 8, 8])
    assert lfw_folds(SCORES[shuffle], SAME[shuffle], fold[shuffle]) == lfw_folds(SCORES, SAME, 2)


def test_fold_spread_and_json() -> None:
    scores = torch.tensor([0.9, 0.1, 0.9, 0.1, 0.1, 0.9])  # the third fold is wrong throughout
    result = lfw_folds(scores, torch.tensor([1, 0, 1, 0, 1, 0]), folds=3)
    assert result.per_fold == (0.5, 0.5, 0.0)
    assert result.spread == pytest.approx((1 / 18) ** 0.5)
    assert result.standard_error == pytest.approx(1 / 6)
    plain = json.loads(result.to_json())
    assert plain["per_fold"] == [0.5, 0.5, 0.0]
    assert plain["interval"][0] == 0.0
    assert str(result).startswith("accuracy = 0.3333 ± 0.2357 [0.0000, 1.0000], 3 folds, 6 pairs")


def test_folds_that_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="at least 2 folds"):
        lfw_folds(SCORES, SAME, torch.zeros(8))
    with pytest.raises(ValueError, match="one kind of pair only"):
        lfw_folds(SCORES, SAME, SAME.long())
    with pytest.raises(ValueError, match="8 scores, 7 labels"):
        lfw_folds(SCORES, SAME[:7], 2)


def test_pair_scores_are_cosines() -> None:
    embeddings = torch.tensor([[3.0, 0.0], [5.0, 5.0], [0.0, -2.0]])
    found = pair_scores(embeddings, torch.tensor([[0, 0], [0, 1], [1, 2], [0, 2]]))
    assert found.tolist() == pytest.approx([1.0, 0.5**0.5, -(0.5**0.5), 0.0])
    with pytest.raises(ValueError, match="0 … 3, there are 3"):
        pair_scores(embeddings, torch.tensor([[0, 3]]))


def _people(identities: int = 40, each: int = 6, noise: float = 0.9, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(identities, 16, generator=generator, dtype=torch.float64)
    labels = torch.arange(identities).repeat(each) * 7  # labels neither sorted nor dense
    embeddings = centres.repeat(each, 1) + noise * torch.randn(identities * each, 16, generator=generator)
    return embeddings, labels


def test_all_pairs_equals_the_rates_of_the_whole_matrix() -> None:
    embeddings, labels = _people()
    unit = embeddings / embeddings.norm(dim=1, keepdim=True)
    upper = torch.ones(240, 240).triu(1).bool()
    scores, same = (unit @ unit.T)[upper], (labels.unsqueeze(1) == labels)[upper]
    result = all_pairs(embeddings, labels, replicates=0)
    assert (result.genuine_pairs, result.impostor_pairs) == (40 * 15, 240 * 239 // 2 - 600)
    assert (result.identities, result.images) == (40, 240)
    assert result.eer == pytest.approx(rates.eer(scores[~same], scores[same]))
    assert result.auc == pytest.approx(rates.auc(scores[~same], scores[same]))
    for fmr in (1e-3, 1e-2):
        expected = rates.fnmr_at_fmr(scores[~same], scores[same], fmr)
        found = result.at(fmr)
        assert (found.fmr, found.fnmr, found.reliable) == (expected.fmr, expected.fnmr, expected.reliable)
        assert found.threshold == pytest.approx(expected.threshold)
    assert result.at(1e-2).tar_interval is None


def test_blocks_change_nothing() -> None:
    embeddings, labels = _people()
    whole = all_pairs(embeddings, labels, replicates=100, keep_scores=True)
    blocked = all_pairs(embeddings, labels, replicates=100, keep_scores=True, block_scores=17 * 240)
    assert blocked.eer == pytest.approx(whole.eer)
    assert blocked.auc == pytest.approx(whole.auc)
    for one, other in zip(blocked.at_fmr, whole.at_fmr, strict=True):
        assert (one.fmr, one.tar) == (other.fmr, other.tar)
        assert one.tar_interval is not None
        assert other.tar_interval is not None
        assert one.tar_interval.low == pytest.approx(other.tar_interval.low, abs=1e-6)
    assert blocked.impostor_scores is not None
    assert whole.impostor_scores is not None
    torch.testing.assert_close(blocked.impostor_scores.sort().values, whole.impostor_scores.sort().values)
    assert len(whole.impostor_scores) == whole.impostor_pairs


def test_only_the_highest_impostor_scores_are_kept() -> None:
    embeddings, labels = _people()
    whole = all_pairs(embeddings, labels, replicates=0, keep_scores=True)
    # 28,080 impostor pairs, of which 3 × 280 + 1,000 are kept: most blocks must push lower scores out.
    thrifty = all_pairs(embeddings, labels, replicates=0, block_scores=5 * 240)
    assert thrifty.impostor_scores is None
    assert [p.tar for p in thrifty.at_fmr] == [p.tar for p in whole.at_fmr]
    assert [p.threshold for p in thrifty.at_fmr] == pytest.approx([p.threshold for p in whole.at_fmr])


def test_intervals_hold_the_point_and_narrow_with_more_people() -> None:
    def width(identities: int) -> float:
        result = all_pairs(*_people(identities), fmrs=(1e-2,), replicates=200)
        tar = result.at(1e-2).tar_interval
        assert tar is not None
        assert result.eer_interval is not None
        assert result.auc_interval is not None
        assert tar.low < result.at(1e-2).tar < tar.high
        assert result.eer_interval.low < result.eer < result.eer_interval.high
        assert result.auc_interval.low < result.auc < result.auc_interval.high
        return tar.high - tar.low

    assert width(160) < 0.75 * width(20)


def test_bootstrap_is_a_function_of_the_seed() -> None:
    embeddings, labels = _people(12)
    one, again = (all_pairs(embeddings, labels, (1e-2,), seed=5, replicates=50) for _ in range(2))
    other = all_pairs(embeddings, labels, (1e-2,), seed=6, replicates=50)
    assert one == again
    assert one.auc == other.auc
    assert one.auc_interval != other.auc_interval


def test_result_prints_counts_and_plain_json() -> None:
    result = all_pairs(*_people(), replicates=20)
    first = str(result).splitlines()[0]
    assert first.startswith("TAR@FMR 0.001 = 0.")
    assert first.endswith("600 genuine / 28,080 impostor pairs")
    plain = json.loads(result.to_json())
    assert plain["at_fmr"][0]["target_fmr"] == 1e-3
    assert len(plain["at_fmr"][0]["tar_interval"]) == 2
    assert plain["impostor_pairs"] == 28_080


def test_all_pairs_refuses_what_the_pairs_cannot_carry() -> None:
    embeddings, labels = _people(4, 3)  # 12 images: 54 impostor pairs
    with pytest.raises(ValueError, match="needs at least 1,000 impostor pairs, got 54"):
        all_pairs(embeddings, labels)
    assert not all_pairs(embeddings, labels, fmrs=(0.1,), replicates=0).at(0.1).reliable
    with pytest.raises(ValueError, match="0 genuine pairs"):
        all_pairs(embeddings, torch.arange(12))
    with pytest.raises(ValueError, match="0 impostor pairs"):
        all_pairs(embeddings, torch.zeros(12))
    with pytest.raises(ValueError, match="row 3 has length nan"):
        all_pairs(embeddings.index_fill(0, torch.tensor([3]), float("nan")), labels)
    with pytest.raises(KeyError, match="was not asked for"):
        all_pairs(embeddings, labels, fmrs=(0.1,), replicates=0).at(0.2)


def test_synthetic_pairs_are_balanced_distinct_and_disjoint() -> None:
    labels = torch.arange(60).repeat_interleave(torch.arange(60) % 5 + 1)
    pairs, same, fold = synthetic_pairs(labels, 400, 5, torch.Generator().manual_seed(0))
    owner = labels[pairs]
    assert pairs.shape == (400, 2)
    assert torch.equal(owner[:, 0] == owner[:, 1], same)
    assert torch.bincount(fold).tolist() == [80] * 5
    assert torch.bincount(fold[same]).tolist() == [40] * 5
    assert len({tuple(sorted(pair)) for pair in pairs.tolist()}) == 400
    people = [set(owner[fold == k].flatten().tolist()) for k in range(5)]
    assert sum(len(each) for each in people) == len(set().union(*people))


def test_synthetic_same_pairs_go_round_the_people() -> None:
    labels = torch.cat([torch.zeros(30), torch.arange(1, 8).repeat_interleave(2)])  # one person with many images
    pairs, same, _ = synthetic_pairs(labels, 16, 1, torch.Generator().manual_seed(0))
    assert sorted(labels[pairs[same][:, 0]].tolist()) == list(range(8))


def test_synthetic_pairs_say_what_is_missing() -> None:
    labels = torch.arange(10).repeat_interleave(2)
    with pytest.raises(ValueError, match="fold 0 can make 5 same"):
        synthetic_pairs(labels, 24, 2, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="multiple of 2 × folds, got 30"):
        synthetic_pairs(labels, 30, 4, torch.Generator().manual_seed(0))
    one = synthetic_pairs(labels, 20, 2, torch.Generator().manual_seed(1))[0]
    assert torch.equal(one, synthetic_pairs(labels, 20, 2, torch.Generator().manual_seed(1))[0])
