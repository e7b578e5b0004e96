"""Many clients' states in one file that finds each of them without reading about the others: a SQLite table.

    FOLDER/states.sqlite     (client, round) -> the state's leaves, as safetensors

What is written is on the disk, whole or not at all, when ``write`` returns. What is forgotten is zeros from then on.
The folder is for its owner's eyes alone: what clients keep is made from faces.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

Key = tuple[int, int]  # client, round
Flat = dict[str, Tensor]

PAGE = 16 << 10  # bytes; by SQLite's own 4 KiB a state as large as a network takes twice as long
TABLE = "CREATE TABLE IF NOT EXISTS states (client INTEGER, made INTEGER, leaves BLOB, PRIMARY KEY (client, made))"
BY_ROUND = "CREATE INDEX IF NOT EXISTS by_round ON states (made)"


class StateTable:
    """States by client and the round that made them. There is no file before the first is written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "states.sqlite"
        self._opened = self._open() if self._path.exists() else None

    def write(self, states: Iterable[tuple[Key, Flat]]) -> None:
        """Add states, or replace them."""
        if self._opened is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._opened = self._open()
        rows = ((*key, safetensors.torch.save(_apart(flat))) for key, flat in states)
        with self._opened as transaction:
            transaction.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", rows)

    def read(self, key: Key) -> Flat:
        """One state."""
        ((leaves,),) = self._found("SELECT leaves FROM states WHERE client = ? AND made = ?", key)
        return safetensors.torch.load(leaves)

    def rounds_of(self, client: int) -> list[int]:
        """Rounds that made what there is of a client, rising."""
        return [made for (made,) in self._found("SELECT made FROM states WHERE client = ? ORDER BY made", (client,))]

    def clients(self) -> list[int]:
        """Clients of whom there is something, rising."""
        return [client for (client,) in self._found("SELECT DISTINCT client FROM states ORDER BY client")]

    def newest(self) -> int | None:
        """The latest round that made anything; None: there is nothing."""
        found = self._found("SELECT max(made) FROM states")
        return found[0][0] if found else None

    def forget(self, keys: Iterable[Key]) -> None:
        """Remove states; those that are not there are none."""
        if self._opened:
            with self._opened as transaction:
                transaction.executemany("DELETE FROM states WHERE client = ? AND made = ?", keys)

    def forget_after(self, round_: int) -> None:
        """Remove every state of a later round."""
        if self._opened:
            with self._opened as transaction:
                transaction.execute("DELETE FROM states WHERE made > ?", (round_,))

    def _found(self, query: str, values: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
        return self._opened.execute(query, values).fetchall() if self._opened else []

    def _open(self) -> sqlite3.Connection:
        # One writer, on whatever thread: a run's folder belongs to one process, and its store to one round at a time.
        opened = sqlite3.connect(self._path, check_same_thread=False)
        weakref.finalize(self, opened.close)
        try:
            opened.execute(f"PRAGMA page_size = {PAGE}")
            opened.execute("PRAGMA secure_delete = ON")
            opened.execute(TABLE)
            opened.execute(BY_ROUND)
        except sqlite3.DatabaseError as reason:
            raise ValueError(
                f"{self._path} cannot be read ({reason}): restore it, or start again in an empty folder"
            ) from reason
        return opened


def _apart(flat: Flat) -> Flat:
    """Leaves as a file has them: on the host, in order, and each in a place of its own."""
    seen: set[int] = set()
    apart: Flat = {}
    for name, leaf in flat.items():
        apart[name] = leaf.detach().cpu().contiguous()
        place = leaf.untyped_storage().data_ptr()
        if place in seen:
            apart[name] = apart[name].clone()
        seen.add(place)
    return apart
