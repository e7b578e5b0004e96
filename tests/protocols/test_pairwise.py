"""The highest scores, kept from parts; and exactness of counts on which ties fall."""

from __future__ import annotations

import torch

from coalface.protocols.pairwise import Highest, all_pairs


def test_the_highest_of_many_parts_and_never_more_than_twice_as_many_are_held() -> None:
    scores = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    highest = Highest(30)
    for part in scores:
        highest.add(part.sort().values)
        assert sum(len(held) for held in highest._parts) <= 60
    assert torch.equal(highest.values().sort().values, scores.flatten().sort().values[-30:])


def test_fewer_than_asked_for_are_all() -> None:
    highest = Highest(10)
    highest.add(torch.tensor([1.0, 2.0]))
    highest.add(torch.tensor([0.5]))
    assert sorted(highest.values().tolist()) == [0.5, 1.0, 2.0]


def test_six_images_of_three_people_by_hand() -> None:
    """People on three axes of space, the second image of the third turned to the first person's axis."""
    axes = torch.eye(3)
    embeddings = torch.stack([axes[0], axes[0], axes[1], axes[1], axes[2], axes[0]])
    found = all_pairs(embeddings, torch.tensor([0, 0, 1, 1, 2, 2]), fmrs=(0.2,), replicates=0, block_scores=7)
    # Impostor pairs: 12, of which the turned image makes 2 with cosine 1. Genuine: 1, 1 and 0.
    assert found.impostor_pairs == 12 and found.genuine_pairs == 3
    assert found.at(0.2).fmr == 2 / 12 and abs(found.at(0.2).tar - 2 / 3) < 1e-12
    # Two genuine at 1: 10 impostors below and 2 equal, 11 of 12 each; one at 0: 10 equal, 5 of 12.
    assert abs(found.auc - (11 + 11 + 5) / 36) < 1e-12
