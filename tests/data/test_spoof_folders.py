"""Domains from plain folders: what lies where becomes train, dev and test, and nobody is in two of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from coalface.cli import main
from coalface.data.recordings import ATTACKS, Recordings
from coalface.data.spoof_folders import FolderDomains

Image = pytest.importorskip("PIL.Image")


def still(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (32, 32), (shade, shade, shade)).save(path)


def read(root: Path, name: str, split: str) -> Recordings:
    return FolderDomains(root)(name, split, 0, 0, 1, 32, 0, "cpu")


def test_people_are_dealt_out_if_the_folder_does_not(tmp_path: Path) -> None:
    """Ten people: three are test; of the other seven, two are dev."""
    for person in range(10):
        still(tmp_path / f"A/live/{person}/1.png", 10 * person)
        still(tmp_path / f"A/replay/{person}/1.png", 10 * person + 5)
    people = {split: set(read(tmp_path, "A", split).subject.tolist()) for split in ("train", "dev", "test")}
    assert {split: len(here) for split, here in people.items()} == {"train": 5, "dev": 2, "test": 3}
    assert len(set.union(*people.values())) == 10


def test_splits_are_taken_as_they_lie(tmp_path: Path) -> None:
    for number in range(8):
        still(tmp_path / f"A/train/live/{number}.png", 100)
        still(tmp_path / f"A/train/unknown/{number}.png", 50)
    still(tmp_path / "A/test/live/0.png", 200)
    still(tmp_path / "A/test/print/0.png", 20)
    assert [len(read(tmp_path, "A", split)) for split in ("train", "dev", "test")] == [12, 4, 2]
    test = read(tmp_path, "A", "test")
    assert [ATTACKS[kind] for kind in test.attack.tolist()] == ["live", "print"]
    assert test.images.amax((1, 2, 3)).tolist() == [200, 20] and torch.equal(test.depth.amax((1, 2)) > 0, test.live)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    still(tmp_path / "A/live/0.png", 1)
    with pytest.raises(ValueError, match="needs a folder live and one of print"):
        read(tmp_path, "A", "train")
    with pytest.raises(FileNotFoundError, match="no domain 'B'"):
        read(tmp_path, "B", "train")
    for person in range(2):
        still(tmp_path / f"C/live/{person}/1.png", 1)
        still(tmp_path / f"C/print/{person}/1.png", 2)
    with pytest.raises(ValueError, match="/C: cannot hold out .* of 1 subjects; it needs recordings of three people"):
        read(tmp_path, "C", "train")


def test_a_run_on_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for domain in ("A", "B"):
        for number in range(8):
            still(tmp_path / f"photos/{domain}/live/{number}.png", 100 + number)
            still(tmp_path / f"photos/{domain}/print/{number}.png", 50 + number)
    command = ["run", "fedpad", "--data", str(tmp_path / "photos"), "--out", str(tmp_path / "run"), "--quiet"]
    settings = ["width=2", "data.size=32", "data.target=B", "rounds.rounds=1", "ends=[]"]
    command += [part for setting in settings for part in ("--set", setting)]
    assert main(command) == 2
    assert "Set data.centres" in capsys.readouterr().err
    assert main([*command, "--set", 'data.centres=["A"]']) == 0
    assert "real; 4 frames a video, evenly spaced; central square; stills whole" in capsys.readouterr().out
    assert "Nobody here exists" not in (tmp_path / "run" / "report.html").read_text()  # real faces stay out
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
    capsys.readouterr()
    live = tmp_path / "photos/A/live"
    (live / "7.png").rename(live / "a.png")
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 2
    assert "changed since the run" in capsys.readouterr().err


def test_another_seed_deals_people_out_anew_without_reading(tmp_path: Path) -> None:
    for person in range(10):
        still(tmp_path / f"A/live/{person}/1.png", 10 * person)
        still(tmp_path / f"A/replay/{person}/1.png", 10 * person + 5)
    clips = []
    folders = FolderDomains(tmp_path, each=clips.append)
    tested = [set(folders("A", "test", 0, 0, 1, 32, seed, "cpu").subject.tolist()) for seed in range(4)]
    assert len(clips) == folders.clips(["A"]) == 20 and len(set(map(frozenset, tested))) > 1
