from __future__ import annotations

import pytest
import torch

from coalface.data.pairs import PairList
from coalface.evaluation import ListedPairs
from coalface.models.net import Net


def test_pairs_of_a_list(net: Net) -> None:
    """Two images twice each: a pair of equal images has cosine 1, and is told from the other kind without error."""
    shades = torch.tensor([0, 0, 255, 255], dtype=torch.uint8)
    images = shades[:, None, None, None].expand(4, 3, 16, 16).contiguous()
    images[2:, 0] = 0  # another colour: the tiny network must see a difference
    left, right = torch.tensor([0, 2, 0, 1] * 2), torch.tensor([1, 3, 2, 3] * 2)
    same, fold = torch.tensor([True, True, False, False] * 2), torch.tensor([0] * 4 + [1] * 4)
    listed = PairList((b"",) * 4, left, right, same, fold)
    metrics, (impostor, genuine) = ListedPairs(net, images, listed).report(net.fresh(0))
    assert genuine.tolist() == pytest.approx([1.0] * 4) and len(impostor) == 4
    assert metrics["accuracy"]["accuracy"] == 1.0
    assert metrics["at_fmr"] == []  # four impostor pairs carry no FMR of 1 %
