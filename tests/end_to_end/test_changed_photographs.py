"""A run on photographs goes on with those that it began with: one file more, and test people would be trained on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coalface.cli import main
from coalface.run_folder import alone
from tests.end_to_end.conftest import small
from tests.end_to_end.test_cli import make_photos

Folders = tuple[Path, Path]  # the photographs, the run's


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    home = tmp_path_factory.mktemp("photographs")
    photos = make_photos(home / "photos", identities=40, each=4)
    settings = small("data.public=8", "rounds.rounds=1", "training.batch=0")
    out = home / "run"
    assert main(["run", "fedavg/positive-only", *settings, "--data", str(photos), "--out", str(out), "--quiet"]) == 0
    return photos, out


def contents(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def one_person_more(photos: Path) -> None:
    shutil.copytree(photos / "somebody003", photos / "newcomer")


def one_person_renamed(photos: Path) -> None:
    (photos / "somebody039").rename(photos / "a")  # numbers of people and photographs stay, all roles change


def one_photograph_less(photos: Path) -> None:
    (photos / "somebody003" / "2.jpg").unlink()


def one_photograph_more(photos: Path) -> None:
    shutil.copy(photos / "somebody003" / "2.jpg", photos / "somebody003" / "9.jpg")


def one_photograph_replaced(photos: Path) -> None:
    with (photos / "somebody003" / "2.jpg").open("ab") as file:
        file.write(b"0")


def one_photograph_replaced_by_one_of_its_size(photos: Path) -> None:
    small, *_, large = sorted(photos.rglob("*.jpg"), key=lambda file: file.stat().st_size)
    large.write_bytes(small.read_bytes().ljust(large.stat().st_size, b"0"))  # a decoder stops before the filling


CHANGES = [one_person_more, one_person_renamed, one_photograph_less, one_photograph_more, one_photograph_replaced]
CHANGES += [one_photograph_replaced_by_one_of_its_size]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_folder_is_refused(
    begun: Folders, change: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, out = begun
    kept, before = tmp_path / "kept", contents(out)
    shutil.copytree(photos, kept)
    try:
        change(photos)
        assert main(["resume", str(out), "--quiet"]) == 2
    finally:
        shutil.rmtree(photos)
        shutil.copytree(kept, photos)
    (line,) = capsys.readouterr().err.splitlines()
    assert "back as they were" in line and "start anew in another --out" in line
    assert contents(out) == before


def test_the_same_folder_is_taken_and_nobody_is_named(begun: Folders) -> None:
    _, out = begun
    assert main(["resume", str(out), "--quiet"]) == 0
    assert "somebody" not in (out / "began.json").read_text() + (out / "partition.json").read_text()


def test_without_a_hash_roles_are_compared(begun: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of before there was one: with 41 people instead of 40, they are dealt out anew."""
    photos, out = begun
    shutil.copytree(out, tmp_path / "run")
    (tmp_path / "run" / "began.json").unlink()
    one_person_more(photos)
    try:
        assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 2
    finally:
        shutil.rmtree(photos / "newcomer")
    assert "people would have other roles than in" in capsys.readouterr().err
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0


def test_a_folder_in_which_somebody_is_at_work_is_left_alone(
    begun: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out = begun
    before = contents(out)
    monkeypatch.setattr("coalface.data.world.read_folder", lambda *_, **__: pytest.fail("that may take minutes"))
    with alone(out):
        assert main(["resume", str(out), "--quiet"]) == 2
    assert "another process is at work in" in capsys.readouterr().err
    assert contents(out) == before
