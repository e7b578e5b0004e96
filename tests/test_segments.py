"""Few files for many states: what was written can be read, what was forgotten goes, and the disk does not fill up."""

from __future__ import annotations

from pathlib import Path

import torch

from coalface.segments import Flat, Segments


def state(value: float) -> Flat:
    return {"head": torch.full((4,), value), "backbone/w": torch.tensor(value)}


def values(segments: Segments) -> dict[tuple[int, int], float]:
    return {key: float(segments.read(key)["head"][0]) for key in segments.found()}


def files(folder: Path) -> list[str]:
    return sorted(path.stem.lstrip("0") for path in folder.iterdir())


def test_one_file_holds_all_states_of_one_write(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.write({(client, 3): state(float(client)) for client in range(100)})
    assert files(tmp_path) == ["1"]
    again = Segments(tmp_path)
    assert values(again) == {(client, 3): float(client) for client in range(100)}
    assert again.read((7, 3)).keys() == {"head", "backbone/w"} and float(again.read((7, 3))["backbone/w"]) == 7.0


def test_states_may_share_a_tensor(tmp_path: Path) -> None:
    shared = torch.ones(3)
    segments = Segments(tmp_path)
    segments.write({(1, 1): {"w": shared}, (2, 1): {"w": shared, "v": shared[1:]}})
    assert segments.read((1, 1))["w"].tolist() == segments.read((2, 1))["w"].tolist() == [1.0, 1.0, 1.0]
    assert segments.read((2, 1))["v"].tolist() == [1.0, 1.0]


def test_of_a_state_written_twice_the_later_counts(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.write({(1, 1): state(1.0), (2, 1): state(2.0)})
    segments.write({(1, 1): state(5.0)})
    for one in (segments, Segments(tmp_path)):
        assert values(one) == {(1, 1): 5.0, (2, 1): 2.0}


def test_a_file_goes_with_the_last_state_that_is_wanted(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.write({(1, 1): state(1.0), (2, 1): state(2.0)})
    segments.forget((1, 1))
    assert files(tmp_path) == ["1"] and (1, 1) not in segments
    segments.forget((2, 1))
    assert files(tmp_path) == [] and segments.found() == []


def test_a_file_that_is_wanted_for_little_is_emptied(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.write({(client, 1): state(float(client)) for client in range(8)})
    for client in range(6):
        segments.forget((client, 1))
    segments.compact()
    assert files(tmp_path) == ["1"]  # 2 of 8 are wanted: a quarter
    segments.forget((6, 1))
    segments.compact()
    assert files(tmp_path) == ["2"] and values(Segments(tmp_path)) == {(7, 1): 7.0}


def test_later_rounds_are_forgotten_for_new_processes_too(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.write({(1, 1): state(1.0), (2, 5): state(2.0)})
    segments.write({(3, 6): state(3.0)})
    segments.forget_after(4)
    for one in (segments, Segments(tmp_path)):
        assert values(one) == {(1, 1): 1.0}
