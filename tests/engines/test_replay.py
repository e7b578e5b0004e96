from __future__ import annotations

import pytest
import torch
from torch import Tensor

from coalface.engines.replay import RECORDINGS, Groups, Replay

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")


def doubled(given: Groups) -> Groups:
    return {"out": {"y": given["in"]["x"] * 2 + given["in"]["b"]}}


def call(replay: Replay, x: list[float], b: int = 1) -> Tensor:
    """Of two dtypes."""
    given = {"in": {"x": torch.tensor(x, device="cuda"), "b": torch.tensor(b, device="cuda")}}
    return replay(doubled, given)["out"]["y"]


def test_a_replayed_call_sees_its_own_numbers() -> None:
    replay = Replay()
    first, second = call(replay, [1.0, 2.0]), call(replay, [5.0, 6.0], b=0)
    assert first.tolist() == [3.0, 5.0]  # a later call does not write over an earlier one's result
    assert second.tolist() == [10.0, 12.0]
    assert len(replay._recordings) == 1


def test_other_shapes_are_recorded_apart_and_too_many_are_called() -> None:
    replay = Replay()
    for length in range(1, RECORDINGS + 3):
        assert call(replay, [1.0] * length).tolist() == [3.0] * length
    assert len(replay._recordings) == RECORDINGS


def test_what_cannot_be_recorded_is_called(recwarn: pytest.WarningsRecorder) -> None:
    def looks(given: Groups) -> Groups:
        return {"out": {"y": given["in"]["x"] * float(given["in"]["x"].sum())}}

    replay = Replay()
    given = {"in": {"x": torch.ones(2, device="cuda")}}
    assert replay(looks, given)["out"]["y"].tolist() == [2.0, 2.0]
    assert "cannot be replayed" in str(recwarn[0].message)
