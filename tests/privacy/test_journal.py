"""What was told is remembered, whatever a crash does to the file."""

from __future__ import annotations

from pathlib import Path

from coalface.privacy.journal import Journal


def test_every_sum_is_remembered_and_a_line_that_was_cut_short_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "told.jsonl")
    assert journal.told() == []
    journal.add(1, 0, [0, 2])
    with journal.file.open("a") as file:
        file.write('{"round": 2, "atte')  # power failed here
    assert Journal(journal.file).told() == [[0, 2]]
    journal.add(2, 0, [1, 2])
    journal.add(2, 0, [1, 2])  # the same round, done again: it was told twice
    assert Journal(journal.file).told() == [[0, 2], [1, 2], [1, 2]]
