"""What the folder of every kind of run has: one process at a time, and what the run began with.

OUT/config.json     the settings
OUT/began.json      the command that began the run, and one hash over the files that it read
OUT/.lock           empty; the process that is at work here holds a lock on it, which ends with the process
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from coalface.config import ConfigError, DetectionRun, Run, to_json
from coalface.store import StoreError, explained, write_atomically


@contextmanager
def alone(folder: Path, instead: str = "--out") -> Iterator[None]:
    """Make the folder and keep other processes out of it; two in one would mix their rounds in its ledgers."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    with lock:
        if not _locked(lock.fileno()):
            raise StoreError(
                f"another process is at work in {folder}: wait for its end or stop it, or choose another {instead}"
            )
        yield


def begin(folder: Path, run: Run | DetectionRun, command: str, files: str | None) -> str:
    """Write config.json and began.json; returns the command that the run began with, which stays as it was.

    ``files`` is a hash over the files that were read (``data.listing``), None if there were none. Refused if they are
    not those of before: people are numbered in the order of the files, and with one more or less all change roles.
    """
    file = folder / "began.json"
    before = _read(file) if file.exists() else {"command": _told_in_result(folder) or command, "files": None}
    if before["files"] and files and before["files"] != files:
        raise ConfigError(
            f"the files in {run.data.source} changed since the run in {folder} began, and people would change roles: "
            "put them back as they were, or start anew in another --out"
        )
    write_atomically(folder / "config.json", json_bytes(to_json(run)))
    write_atomically(file, json_bytes({**before, "files": before["files"] or files}))
    return str(before["command"])


def json_bytes(value: Any) -> bytes:
    """JSON text for a file that people read too."""
    return (json.dumps(value, indent=2) + "\n").encode()


def _read(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text())
        return {"command": read["command"], "files": read["files"]}
    except (ValueError, LookupError, TypeError) as damage:
        raise StoreError(f"{file} is damaged ({damage}): restore it, or start anew in another --out") from damage


def _told_in_result(folder: Path) -> str | None:
    """The command of a run that ended before began.json was written by any run."""
    file = folder / "result.json"
    try:
        told = json.loads(file.read_text()).get("command") if file.exists() else None
    except ValueError:
        return None
    return str(told) if told else None


def _locked(descriptor: int) -> bool:
    """Whether this process has the lock now. Where the system or the disk knows no locks, there are none to respect."""
    try:
        fcntl: Any = import_module("fcntl")
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
