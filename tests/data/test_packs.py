from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from coalface.data.packs import unpacked


def pack(path: Path, member: str) -> None:
    with tarfile.open(path, "w:xz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))


def test_a_pack_is_unpacked_once(tmp_path: Path) -> None:
    pack(tmp_path / "set.tar.xz", "set/one.txt")
    folder = unpacked(tmp_path, "set", tmp_path / "cache")
    assert (folder / "set/one.txt").read_bytes() == b"abc"
    (tmp_path / "set.tar.xz").unlink()
    assert unpacked(tmp_path, "set", tmp_path / "cache") == folder


def test_a_pack_that_reaches_outside_is_refused(tmp_path: Path) -> None:
    pack(tmp_path / "set.tar.xz", "../../outside.txt")
    with pytest.raises(tarfile.OutsideDestinationError):
        unpacked(tmp_path, "set", tmp_path / "cache")
    assert not list(tmp_path.rglob("outside.txt"))


def test_a_pack_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no set.tar.xz in"):
        unpacked(tmp_path, "set", tmp_path)


def test_a_pack_that_is_not_whole_is_named_and_nobody_else_reads_one(tmp_path: Path) -> None:
    pack(tmp_path / "set.tar.xz", "set/one.txt")
    whole = (tmp_path / "set.tar.xz").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"junk"):
        (tmp_path / "set.tar.xz").write_bytes(damaged)
        with pytest.raises(OSError, match="set.tar.xz is damaged or not whole: copy it again"):
            unpacked(tmp_path, "set", tmp_path / "cache")
    (tmp_path / "set.tar.xz").write_bytes(whole)
    assert unpacked(tmp_path, "set", tmp_path / "cache").stat().st_mode & 0o077 == 0
