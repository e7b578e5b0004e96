from __future__ import annotations

import pytest
import torch

from coalface.data.recordings import ATTACKS, Recordings, join


def recordings(attack: list[int], video: list[int], subject: list[int], size: int = 4) -> Recordings:
    n = len(attack)
    images = torch.arange(n, dtype=torch.uint8).view(-1, 1, 1, 1).expand(n, 3, size, size)
    numbers = (torch.tensor(column) for column in (attack, video, subject))
    attacks, videos, subjects = numbers
    return Recordings(images, attacks, torch.zeros(n, 32, 32, dtype=torch.uint8), videos, subjects)


def test_live_is_attack_zero() -> None:
    assert ATTACKS[0] == "live"
    assert recordings([0, 2, 0, 4], [0, 1, 2, 3], [7, 7, 8, 8]).live.tolist() == [True, False, True, False]


def test_select_by_number_and_by_mask() -> None:
    several = recordings([0, 2, 4], [5, 6, 7], [1, 1, 2])
    assert several.select(torch.tensor([2, 0])).video.tolist() == [7, 5]
    chosen = several.select(~several.live)
    assert len(chosen) == 2 and chosen.images[:, 0, 0, 0].tolist() == [1, 2] and chosen.subject.tolist() == [1, 2]


def test_join_keeps_videos_and_subjects_of_the_parts_apart() -> None:
    both = join([recordings([0, 0, 1], [4, 4, 9], [3, 3, 3]), recordings([0, 3], [4, 5], [3, 0])])
    assert both.video.tolist() == [0, 0, 1, 2, 3]
    assert both.subject.tolist() == [0, 0, 0, 2, 1]
    assert both.attack.tolist() == [0, 0, 1, 0, 3]


def test_what_is_not_a_recording_is_refused() -> None:
    good = recordings([0], [0], [0])
    with pytest.raises(ValueError, match="attack is 0 … 5"):
        recordings([6], [0], [0])
    with pytest.raises(ValueError, match=r"video is int64 \[1\]"):
        Recordings(good.images, good.attack, good.depth, good.video.float(), good.subject)
    with pytest.raises(ValueError, match=r"depth is uint8 \[1, 32, 32\]"):
        Recordings(good.images, good.attack, good.depth[:, :16], good.video, good.subject)
    with pytest.raises(ValueError, match="different sizes"):
        join([good, recordings([0], [0], [0], size=8)])
    with pytest.raises(ValueError, match="nothing to join"):
        join([])
