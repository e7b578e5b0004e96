"""Every sum that was told, and of whom: a file that only grows, and that no resumed run takes back.

A checkpoint may be older than the last sum. After a crash the rounds since then are done again, with other clients or
other noise, and so tell more than they would have: the account is kept by what was told, not by what was kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


class Journal:
    """One line for each sum."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, round_: int, attempt: int, clients: list[int]) -> None:
        """On the disk before the sum is used."""
        line = json.dumps({"round": round_, "attempt": attempt, "clients": clients})
        cut_short = self.file.exists() and not self.file.read_bytes().endswith(b"\n")  # by a crash: end that line
        with self.file.open("a") as file:
            file.write("\n" * cut_short + line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def told(self) -> list[list[int]]:
        """The clients of each sum. A line that a crash cut short is of a sum that was never used."""
        if not self.file.exists():
            return []
        found = []
        for line in self.file.read_text().splitlines():
            try:
                found.append(json.loads(line)["clients"])
            except json.JSONDecodeError:
                continue
        return found
