"""A stage of a run on disk: ledgers, atomic checkpoints, and the way back after a crash.

    STAGE/ledger.jsonl              a row per client per round
    STAGE/rounds.jsonl              a row per round
    STAGE/checkpoints/000012/       server.safetensors, manifest.json (checksum, lengths of the ledgers, the latest
                                    round of which clients keep something)
    STAGE/private/                  the simulated clients' own state, apart from the server's (private_store.py)

A checkpoint is written aside, flushed to the disk and renamed: it is there whole, or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from coalface import tree, wire
from coalface.federation import ClientRecord, RoundRecord
from coalface.private_store import PrivateStore

KEPT_CHECKPOINTS = 2  # the newest, and the one to fall back on
SECRET = 32  # bytes of a machine's own secret


class StoreError(RuntimeError):
    """A run directory that cannot be written or read; the text says what to do."""


class Stage:
    """One federation on disk; implements ``federation.Recorder``."""

    def __init__(
        self, folder: Path, server: type, private: type[wire.Private] | None, config: str, device: torch.device
    ) -> None:
        """``config`` is a hash of everything that decides the outcome; a checkpoint of another one is refused."""
        self.folder = folder
        self._server = server
        self._config = config
        self._device = device
        with explained(folder):
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        try:
            self.private = PrivateStore(folder / "private", private, device)
        except ValueError as damage:
            raise StoreError(str(damage)) from damage
        self._ledgers = {name: folder / name for name in ("ledger.jsonl", "rounds.jsonl")}

    # --- writing --------------------------------------------------------------------------------------------------

    def keep_private(self, client: int, round_: int, private: wire.Private) -> None:
        """Part of ``federation.Recorder``."""
        with explained(self.folder):
            self.private.keep(client, round_, private)

    def record(self, entry: RoundRecord, rows: list[ClientRecord]) -> None:
        """Append to the ledgers, and settle or forget what clients kept in this round."""
        with explained(self.folder):
            _append(self._ledgers["ledger.jsonl"], [vars(row) for row in rows])
            _append(self._ledgers["rounds.jsonl"], [vars(entry)])
            if entry.void:
                self.private.forget_round()
            else:
                self.private.settle_round()

    def checkpoint(self, round_: int, server: Any) -> None:
        """Everything needed to go on after this round, durably, before anything older is removed."""
        final = self.folder / "checkpoints" / f"{round_:06d}"
        aside = final.with_name(f"aside-{round_:06d}")
        with explained(self.folder):
            self.private.flush()
            data = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in tree.leaves(server).items()})
            manifest = {
                "round": round_,
                "sha256": hashlib.sha256(data).hexdigest(),
                "config": self._config,
                "ledgers": {name: _flushed_length(path) for name, path in self._ledgers.items()},
                "private": self.private.newest(),
            }
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            write_durably(aside / "server.safetensors", data)
            write_durably(aside / "manifest.json", json.dumps(manifest, indent=1).encode())
            _flush_folder(aside)
            if final.exists():  # an abandoned later attempt that resume stepped back over
                shutil.rmtree(final)
            aside.rename(final)
            _flush_folder(final.parent)
            kept = self._checkpoints()
            for old in kept[:-KEPT_CHECKPOINTS]:
                shutil.rmtree(old)
            self.private.prune(oldest=int(kept[-KEPT_CHECKPOINTS:][0].name))

    # --- reading --------------------------------------------------------------------------------------------------

    def resume(self) -> tuple[int, Any] | None:
        """The last good round and the server's state after it; later traces are removed. None: nothing yet."""
        for folder in reversed(self._checkpoints()):
            try:
                manifest, server = self._read(folder)
            except (OSError, ValueError, KeyError) as damage:
                warnings.warn(f"checkpoint {folder.name} is damaged ({damage}); using the one before it", stacklevel=2)
                continue
            self._refuse_losses(manifest)
            self._rewind(int(manifest["round"]), manifest["ledgers"])
            return int(manifest["round"]), server
        if self._checkpoints():
            raise StoreError(f"every checkpoint in {self.folder} is damaged; start again in an empty folder")
        self._rewind(0, dict.fromkeys(self._ledgers, 0))
        return None

    def rounds(self) -> list[dict[str, Any]]:
        """All rows of rounds.jsonl."""
        return read_lines(self._ledgers["rounds.jsonl"])

    def ledger(self) -> list[dict[str, Any]]:
        """All rows of ledger.jsonl."""
        return read_lines(self._ledgers["ledger.jsonl"])

    def _checkpoints(self) -> list[Path]:
        return sorted(path for path in (self.folder / "checkpoints").iterdir() if path.name.isdigit())

    def _read(self, folder: Path) -> tuple[dict[str, Any], Any]:
        manifest = json.loads((folder / "manifest.json").read_text())
        data = (folder / "server.safetensors").read_bytes()
        if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
            raise ValueError("its checksum does not match")
        if manifest["config"] != self._config:
            raise StoreError(
                f"{folder} belongs to a run with other settings; resume with the settings in its config.json, "
                "or start the changed run in an empty folder"
            )
        flat = {name: leaf.to(self._device) for name, leaf in safetensors.torch.load(data).items()}
        return manifest, tree.rebuild(self._server, flat)

    def _refuse_losses(self, manifest: dict[str, Any]) -> None:
        """What the checkpoint counts on must be there: without it the run would go on as another one."""
        remedy = "restore it, or start anew in an empty folder"
        for name, length in manifest["ledgers"].items():
            path = self._ledgers[name]
            found = path.stat().st_size if path.exists() else 0
            if found < length:
                raise StoreError(
                    f"{path} has {found} bytes, and had {length} after round {manifest['round']}: {remedy}"
                )
        kept, newest = manifest.get("private"), self.private.newest()  # old manifests do not say
        if kept is not None and (newest is None or newest < kept):
            there = "nothing" if newest is None else f"nothing later than round {newest}"
            raise StoreError(
                f"{self.folder / 'private'} holds {there}, and clients had kept something in round {kept}: {remedy}"
            )

    def _rewind(self, round_: int, lengths: dict[str, int]) -> None:
        with explained(self.folder):
            for name, length in lengths.items():
                path = self._ledgers[name]
                if path.exists():
                    os.truncate(path, length)
            for path in (self.folder / "checkpoints").iterdir():
                if path.name.startswith("aside-") or int(path.name) > round_:
                    shutil.rmtree(path)
            self.private.rewind(round_)


def own_secret(file: Path) -> bytes:
    """Where a machine's private randomness comes from: 256 bits, drawn once, that only the owner can read.

    A file of another length is refused: whoever went on with what is left of a secret would have none.
    """
    if not file.exists():
        _draw_secret(file)
    secret = file.read_bytes()
    if len(secret) != SECRET:
        raise StoreError(
            f"{file} holds {len(secret)} bytes, and a secret has {SECRET}: it is damaged. "
            "Put its backup there; or remove it, and a new one is drawn"
        )
    return secret


def _draw_secret(file: Path) -> None:
    """Whole or not at all; and where two processes draw at once, both go on with the secret of the first."""
    with explained(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # only the owner can read it
        os.close(handle)
        aside = Path(name)
        try:
            write_durably(aside, secrets.token_bytes(SECRET))
            _move_unless_there(aside, file)
        finally:
            aside.unlink(missing_ok=True)
        _flush_folder(file.parent)


def _move_unless_there(aside: Path, file: Path) -> None:
    try:
        file.hardlink_to(aside)  # unlike a rename, it never replaces a file
    except FileExistsError:
        return
    except OSError:  # there are no hard links here (FAT, Android): the best that is left
        aside.replace(file)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file by another in one step; readers see the old one or the new one."""
    aside = path.with_name(f".{path.name}.aside")
    with explained(path.parent):
        write_durably(aside, data)
        aside.replace(path)
        _flush_folder(path.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file; none if there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a full or unwritable disk into one line that names the remedy; a last checkpoint stays intact."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        remedies = {
            errno.ENOSPC: "the disk is full: free some space",
            errno.EDQUOT: "the disk quota is used up: free some space",
            errno.EACCES: "it is not writable: give write permission or choose another --out",
            errno.EROFS: "it is on a read-only disk: choose another --out",
            errno.ENOTDIR: "it is not a folder: choose another --out",
        }
        remedy = remedies.get(_number_of(error), str(error))
        begun = any(folder.glob("**/checkpoints/*/manifest.json"))
        going_on = ". The last checkpoint is intact; continue with `coalface resume`" if begun else ""
        raise StoreError(f"cannot write to {folder}: {remedy}{going_on}") from error


def _number_of(error: OSError | sqlite3.Error) -> int:
    """The system's number for what went wrong, 0 for anything else."""
    if isinstance(error, OSError):
        return error.errno or 0
    table = {
        sqlite3.SQLITE_FULL: errno.ENOSPC,
        sqlite3.SQLITE_READONLY: errno.EACCES,
        sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    }
    return table.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, 0)  # the low byte: the rest is detail


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _flushed_length(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
