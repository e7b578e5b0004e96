from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from coalface.data.recordings import Recordings
from coalface.protocols.leave_one_out import Centre, Scored, Scorer, judge, leave_one_out, scored


def told(scores: list[float], attack: list[int], video: list[int], subject: list[int]) -> Scored:
    return Scored(torch.tensor(scores), torch.tensor(attack), torch.tensor(video), torch.tensor(subject))


def recordings(brightness: list[int], attack: list[int]) -> Recordings:
    n = len(attack)
    images = torch.tensor(brightness, dtype=torch.uint8).view(n, 1, 1, 1).expand(n, 3, 4, 4).contiguous()
    depth = torch.zeros(n, 32, 32, dtype=torch.uint8)
    return Recordings(images, torch.tensor(attack), depth, torch.arange(n), torch.arange(n))


DEV = told([0.9, 0.7, 0.3, 0.1], [0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 1, 1])  # parts at 0.7
# Two live recordings and one print, of two frames each.
TEST = told([0.9, 0.6, 0.8, 0.8, 0.75, 0.1], [0, 0, 0, 0, 1, 1], [4, 4, 7, 7, 9, 9], [0, 0, 1, 1, 2, 2])


def test_frames_and_videos_are_judged_at_the_sources_threshold() -> None:
    result = judge("O", TEST, {"C": DEV}, seed=0, replicates=0)
    assert result.frame.threshold.value == pytest.approx(0.7)
    assert result.frame.threshold.origin == "EER on frames of dev of C"
    assert result.frame.bpcer == 0.25 and result.frame.apcer == {"print": 0.5}  # 0.6 fails, 0.75 passes
    assert result.frame.hter == 0.375
    # Means of recordings: 0.75 and 0.8 live, 0.425 print.
    assert result.video.hter == 0.0 and result.video.live == 2 and result.video.attacks == {"print": 1}
    assert result.oracle is None and "ORACLE" not in result.to_json()


def test_an_oracle_only_if_asked_for_and_under_its_name() -> None:
    wrong = told([0.95, 0.95], [0, 1], [0, 1], [0, 1])
    result = judge("O", TEST, {"C": wrong}, seed=0, replicates=0, oracle=True)
    assert result.frame.hter == 0.5  # at 0.95 every live frame fails
    assert result.oracle is not None and result.oracle[1].hter == 0.0
    assert "frame, ORACLE" in result.as_dict() and "AN ORACLE" in str(result)


def test_mean_scores_of_recordings() -> None:
    videos = TEST.by_video()
    assert videos.video.tolist() == [4, 7, 9]
    assert videos.scores.tolist() == pytest.approx([0.75, 0.8, 0.425])
    assert videos.attack.tolist() == [0, 0, 1] and videos.subject.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="more than one attack"):
        told([0.1, 0.2], [0, 1], [3, 3], [0, 0]).by_video()


def test_the_target_is_never_trained_on_nor_asked_for_a_threshold() -> None:
    centres = {
        name: Centre(*(recordings([level, level + 50], [1, 0]) for level in (start, start + 1, start + 2)))
        for name, start in (("A", 10), ("B", 20), ("C", 30))
    }
    seen: list[set[str]] = []

    def fit(sources: Mapping[str, Centre]) -> Scorer:
        seen.append(set(sources))

        def brightness(images: Tensor) -> Tensor:
            return images.float().mean((1, 2, 3))

        return brightness

    results = leave_one_out(centres, fit, seed=0, replicates=0)
    assert seen == [{"B", "C"}, {"A", "C"}, {"A", "B"}]
    assert [(r.target, r.sources) for r in results] == [("A", ("B", "C")), ("B", ("A", "C")), ("C", ("A", "B"))]
    # Dev of B and C: attacks 21 and 31, live 71 and 81, so the threshold is 71; A's test: attack 12, live 62.
    assert results[0].frame.threshold.value == 71 and results[0].frame.hter == 0.5
    assert results[2].frame.hter == 0.0  # threshold 61, attack 32, live 82


def test_intervals_stand_beside_the_rates() -> None:
    n = 30
    test = told([0.9, 0.1] * n, [0, 1] * n, list(range(2 * n)), [i // 2 for i in range(2 * n)])
    result = judge("S", test, {"C": DEV}, seed=0, replicates=50)
    assert result.frame.intervals is not None and result.frame.intervals["hter"].high == 0.0
    assert result.frame.subjects == n


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        leave_one_out({}, lambda sources: lambda images: images, seed=0)
    with pytest.raises(ValueError, match="must come from somewhere"):
        judge("O", TEST, {}, seed=0)
    with pytest.raises(ValueError, match="1 scores for 2 frames"):
        scored(lambda images: torch.zeros(1), recordings([0, 1], [0, 1]))
