"""Checkpoints: whole or not at all, damage noticed, the last good round intact."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch

from coalface import store, tree
from coalface.data.population import Population
from coalface.federation import RoundRecord, Rounds
from coalface.models.net import Net
from coalface.store import Stage, StoreError
from tests.conftest import SmallRun, small_run


@pytest.fixture
def finished(net: Net, two_each: Population, tmp_path: Path) -> SmallRun:
    run = small_run("fedavg/private-head", net, two_each, tmp_path)
    run.run(Rounds(rounds=3))
    return run


def newest(run: SmallRun) -> Path:
    return run.stage.folder / "checkpoints" / "000003"


def test_the_newest_checkpoint_comes_back(finished: SmallRun) -> None:
    resumed = finished.stage.resume()
    assert resumed is not None and resumed[0] == 3


def test_two_checkpoints_are_kept(finished: SmallRun) -> None:
    assert sorted(p.name for p in newest(finished).parent.iterdir()) == ["000002", "000003"]


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("hurt", ["flip", "truncate", "delete", "manifest"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(finished: SmallRun, hurt: str) -> None:
    state, manifest = newest(finished) / "server.safetensors", newest(finished) / "manifest.json"
    if hurt == "flip":
        damage(state)
    elif hurt == "truncate":
        os.truncate(state, 100)
    elif hurt == "delete":
        state.unlink()
    else:
        manifest.write_text("{")
    with pytest.warns(UserWarning, match="checkpoint 000003 is damaged .* using the one before it"):
        resumed = finished.stage.resume()
    assert resumed is not None and resumed[0] == 2
    assert {row["round"] for row in finished.stage.ledger()} == {1, 2}  # the ledger steps back with it


def test_after_falling_back_the_run_ends_at_the_same_state(finished: SmallRun, net: Net, two_each: Population) -> None:
    expected = tree.sha256(finished.stage.resume()[1])  # type: ignore[index]
    private = finished.stage.private.sha256()
    damage(newest(finished) / "server.safetensors")
    again = small_run("fedavg/private-head", net, two_each, finished.stage.folder)
    with pytest.warns(UserWarning, match="damaged"):
        assert tree.sha256(again.run(Rounds(rounds=3))) == expected
    assert again.stage.private.sha256() == private


def test_when_all_are_damaged_it_says_so(finished: SmallRun) -> None:
    for folder in newest(finished).parent.iterdir():
        damage(folder / "server.safetensors")
    with pytest.warns(UserWarning), pytest.raises(StoreError, match="every checkpoint .* is damaged"):
        finished.stage.resume()


def test_other_settings_are_refused(finished: SmallRun) -> None:
    types = finished.method.types
    other = Stage(finished.stage.folder, types.server, types.private, "other settings", torch.device("cpu"))
    with pytest.raises(StoreError, match="other settings"):
        other.resume()


@pytest.mark.parametrize("ledger", ["ledger.jsonl", "rounds.jsonl"])
@pytest.mark.parametrize("hurt", ["a row less", "gone"])
def test_rows_that_a_checkpoint_counts_on_are_missed(finished: SmallRun, ledger: str, hurt: str) -> None:
    file = finished.stage.folder / ledger
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join(rows[:-1])) if hurt == "a row less" else file.unlink()
    left = sum(map(len, rows[:-1])) if hurt == "a row less" else 0
    says = f"{ledger} has {left} bytes, and had {sum(map(len, rows))} after round 3: restore it"
    with pytest.raises(StoreError, match=says):
        finished.stage.resume()
    assert not file.exists() or len(file.read_text()) == left  # not filled up with zeros


def again(finished: SmallRun) -> Stage:
    """The folder as another process finds it."""
    types = finished.method.types
    return Stage(finished.stage.folder, types.server, types.private, "small", torch.device("cpu"))


def test_private_states_that_a_checkpoint_counts_on_are_missed(finished: SmallRun) -> None:
    shutil.rmtree(finished.stage.folder / "private")
    with pytest.raises(StoreError, match="private holds nothing, and clients had kept something in round 3: restore"):
        again(finished).resume()


def test_private_states_of_an_earlier_copy_are_refused(finished: SmallRun) -> None:
    finished.stage.private.rewind(2)
    with pytest.raises(StoreError, match="private holds nothing later than round 2, and .* in round 3: restore"):
        again(finished).resume()


def test_a_damaged_table_of_private_states_is_refused_by_name(finished: SmallRun) -> None:
    (finished.stage.folder / "private" / "states.sqlite").write_bytes(b"not a table" * 100)
    with pytest.raises(StoreError, match=r"states\.sqlite cannot be read"):
        again(finished)


def test_a_checkpoint_that_does_not_say_what_clients_kept_is_still_read(finished: SmallRun) -> None:
    """As they were written before."""
    manifest = newest(finished) / "manifest.json"
    said = json.loads(manifest.read_text())
    assert said.pop("private") == 3
    manifest.write_text(json.dumps(said))
    shutil.rmtree(finished.stage.folder / "private")
    resumed = again(finished).resume()
    assert resumed is not None and resumed[0] == 3


def test_a_method_without_private_states_misses_none(net: Net, population: Population, tmp_path: Path) -> None:
    run = small_run("fedavg/shared-head", net, population, tmp_path)
    run.run(Rounds(rounds=1))
    assert not (tmp_path / "private").exists()
    resumed = again(run).resume()
    assert resumed is not None and resumed[0] == 1


def test_a_crash_while_writing_leaves_the_last_round_intact(
    finished: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tree.sha256(finished.stage.resume()[1])  # type: ignore[index]

    def full_disk(path: Path, data: bytes) -> None:
        path.write_bytes(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "write_durably", full_disk)
    with pytest.raises(StoreError, match="the disk is full: free some space.*last checkpoint is intact"):
        finished.stage.checkpoint(4, finished.begin())
    monkeypatch.undo()
    resumed = finished.stage.resume()
    assert resumed is not None and resumed[0] == 3 and tree.sha256(resumed[1]) == expected


def test_a_really_full_disk(finished: SmallRun) -> None:
    """The kernel's own word for it: /dev/full takes no byte."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    finished.stage._ledgers["rounds.jsonl"].unlink()
    finished.stage._ledgers["rounds.jsonl"].symlink_to("/dev/full")
    entry = RoundRecord(4, 0, False, 6, 0.1, {}, {})
    with pytest.raises(StoreError, match="the disk is full"):
        finished.stage.record(entry, [])


def test_a_full_disk_under_private_states(finished: SmallRun) -> None:
    """SQLite's own word for it: the table may not grow."""
    private = finished.stage.private
    opened = private._disk._opened
    assert opened is not None
    opened.execute("PRAGMA max_page_count = 1")  # it is set to as many as there are
    for client in range(1000):
        private.keep(client, 4, private.load(0, 4))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="the disk is full: free some space.*last checkpoint is intact"):
        finished.stage.checkpoint(4, finished.begin())
    assert private.versions(0) == [2, 3, 4] and private._disk.clients() == list(range(8))


def test_an_output_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot write to .*not a folder: choose another --out$"):
        Stage(tmp_path / "file" / "run", dict, None, "x", torch.device("cpu"))


def test_files_are_replaced_in_one_step(tmp_path: Path) -> None:
    store.write_atomically(tmp_path / "a.json", b"one")
    store.write_atomically(tmp_path / "a.json", b"two")
    assert (tmp_path / "a.json").read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_a_secret_is_drawn_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "state" / "secret"
    assert store.own_secret(file) == store.own_secret(file) == file.read_bytes()
    assert len(file.read_bytes()) == 32 and file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["secret"]


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_that_is_not_whole_is_refused(length: int, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * length)
    with pytest.raises(StoreError, match=f"secret holds {length} bytes, and a secret has 32: .*backup.*remove it"):
        store.own_secret(tmp_path / "secret")


def test_a_start_that_fails_leaves_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    with monkeypatch.context() as full:
        full.setattr("coalface.store.os.fsync", disk_full)
        with pytest.raises(StoreError, match="the disk is full"):
            store.own_secret(tmp_path / "secret")
    assert list(tmp_path.iterdir()) == []
    assert len(store.own_secret(tmp_path / "secret")) == 32


def test_two_that_draw_at_once_go_on_with_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have drawn before either one's file is there."""
    together, write, found = threading.Barrier(2, timeout=20), store.write_durably, []

    def slowly(path: Path, data: bytes) -> None:
        write(path, data)
        together.wait()

    monkeypatch.setattr("coalface.store.write_durably", slowly)
    both = [threading.Thread(target=lambda: found.append(store.own_secret(tmp_path / "secret"))) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(20)
    assert len(found) == 2 and found[0] == found[1] == (tmp_path / "secret").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_disk_without_hard_links_has_secrets_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no hard links")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert len(store.own_secret(tmp_path / "secret")) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
