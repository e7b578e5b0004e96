"""Runs on published sets, as they are handed out: domains of a run, and a paper's table on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coalface.cli import main
from coalface.data.centres import DomainData
from coalface.data.recordings import Recordings
from coalface.data.spoof_folders import FolderDomains
from coalface.data.spoof_readers import LAYOUTS, SIGNS, layout_of
from coalface.data.video_frames import BrokenVideo
from tests.data.test_spoof_readers import EXPECTED, write_boxes, write_video


def oulu(root: Path) -> None:
    """Two people in each split, each live and printed."""
    for split, people in {"Train": (1, 2), "Dev": (3, 4), "Test": (5, 6)}.items():
        for person in people:
            for kind in (1, 2):
                video = write_video(root / f"{split}_files" / f"1_1_{person:02}_{kind}.avi")
                write_boxes(video.with_suffix(".txt"), "{frame},27,16,37,16")


def casia(root: Path) -> None:
    """Eight people to train on, two to be tested; no boxes, and no dev split."""
    for split, people in {"train": range(8), "test": range(2)}.items():
        for person in people:
            for name in ("1", "3"):
                write_video(root / f"{split}_release" / str(person) / f"{name}.avi")


def read(root: Path, name: str, split: str) -> Recordings:
    return FolderDomains(root)(name, split, 0, 0, 2, 32, 0, "cpu")


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_set_is_known_by_a_folder_in_it(layout: str, tmp_path: Path) -> None:
    (tmp_path / SIGNS[layout]).mkdir(parents=True)
    assert layout_of(tmp_path) == layout


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_layout_of_the_readers_has_its_sign(layout: str, tmp_path: Path) -> None:
    make, split, _ = EXPECTED[layout]
    make(tmp_path)
    (tmp_path / SIGNS[layout]).mkdir(parents=True, exist_ok=True)  # some are written without all their splits
    assert LAYOUTS[layout_of(tmp_path) or ""](tmp_path, split)


def test_plain_folders_are_no_published_set(tmp_path: Path) -> None:
    for folder in ("train/live", "train/print", "test/live", "dev"):
        (tmp_path / folder).mkdir(parents=True)
    assert layout_of(tmp_path) is None


def test_splits_are_the_set_s_own(tmp_path: Path) -> None:
    """Two frames of each video. CASIA has no dev split: two of its eight people are held out."""
    oulu(tmp_path / "O")
    casia(tmp_path / "C")
    assert [len(read(tmp_path, "O", split)) for split in ("train", "dev", "test")] == [8, 8, 8]
    assert [len(read(tmp_path, "C", split)) for split in ("train", "dev", "test")] == [24, 8, 8]


def test_what_is_cut_out_is_said(tmp_path: Path) -> None:
    oulu(tmp_path / "O")
    casia(tmp_path / "C")
    frames = "2 frames a video, evenly spaced"
    folders = FolderDomains(tmp_path)
    assert folders.how(["O"], 2) == f"real; {frames}; 1.3 × the face box; stills whole"
    assert folders.how(["O", "C"], 2) == (
        f"real; O: {frames}; 1.3 × the face box; C: {frames}; central square; stills whole"
    )
    assert FolderDomains(tmp_path, "box", 2).how(["O"], 2) == f"real; {frames}; 2 × the face box; stills whole"


def test_a_box_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    casia(tmp_path / "C")
    with pytest.raises(BrokenVideo, match="no face boxes beside it"):
        FolderDomains(tmp_path, "box")("C", "test", 0, 0, 2, 32, 0, "cpu")
    with pytest.raises(ValueError, match="crop is box, centre or empty, not 'eyes'"):
        DomainData(crop="eyes")


def test_a_table_on_sets_has_the_rows_that_they_allow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of four usual domains two are there: Single alone can be trained, O for users of C and C for those of O."""
    oulu(tmp_path / "sets" / "O")
    casia(tmp_path / "sets" / "C")
    command = ["reproduce", "fedgpad-table3", "--scale", "smoke", "--seeds", "0", "--quiet", "--set", "data.frames=4"]
    command += ["--data", str(tmp_path / "sets"), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    written = (tmp_path / "out" / "fedgpad-table3-sets-smoke" / "result.json").read_text()
    assert str(tmp_path / "sets") not in written
    result = json.loads(written)
    assert [row["label"] for row in result["rows"]] == ["Single, O → C", "Single, C → O"]
    assert "C: 4 frames a video, evenly spaced; central square" in capsys.readouterr().out
    assert main(["reproduce", "fedgpad-fig7", *command[2:]]) == 2
    assert "features of single faces" in capsys.readouterr().err
    assert main(["reproduce", "fedgpad-table5", *command[2:]]) == 2
    assert "too few for any row" in capsys.readouterr().err
