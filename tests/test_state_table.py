"""One file for many states: what was written can be read, in new processes too, and what was forgotten is gone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import torch

from coalface.state_table import Flat, StateTable


def state(value: float) -> Flat:
    return {"head": torch.full((4,), value), "backbone/w": torch.tensor(value)}


def values(table: StateTable) -> dict[tuple[int, int], float]:
    keys = [(client, made) for client in table.clients() for made in table.rounds_of(client)]
    return {key: float(table.read(key)["head"][0]) for key in keys}


def test_what_was_written_is_there_for_a_new_process(tmp_path: Path) -> None:
    StateTable(tmp_path / "private").write(((client, 3), state(float(client))) for client in range(100))
    again = StateTable(tmp_path / "private")
    assert values(again) == {(client, 3): float(client) for client in range(100)}
    assert again.read((7, 3)).keys() == {"head", "backbone/w"} and float(again.read((7, 3))["backbone/w"]) == 7.0


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    table = StateTable(tmp_path)
    table.forget([(1, 1)])
    table.forget_after(0)
    assert table.clients() == table.rounds_of(1) == list(tmp_path.iterdir()) == []


def test_others_on_the_machine_cannot_look(tmp_path: Path) -> None:
    StateTable(tmp_path / "run" / "private").write([((1, 1), state(1.0))])
    assert (tmp_path / "run" / "private").stat().st_mode & 0o077 == 0


def test_leaves_may_share_memory(tmp_path: Path) -> None:
    shared = torch.ones(3)
    table = StateTable(tmp_path)
    table.write([((1, 1), {"w": shared, "v": shared[1:]})])
    assert table.read((1, 1))["w"].tolist() == [1.0, 1.0, 1.0] and table.read((1, 1))["v"].tolist() == [1.0, 1.0]


def test_of_a_state_written_twice_the_later_counts(tmp_path: Path) -> None:
    table = StateTable(tmp_path)
    table.write([((1, 1), state(1.0)), ((2, 1), state(2.0))])
    table.write([((1, 1), state(5.0))])
    for one in (table, StateTable(tmp_path)):
        assert values(one) == {(1, 1): 5.0, (2, 1): 2.0}


def test_states_are_forgotten_by_key_and_by_round(tmp_path: Path) -> None:
    table = StateTable(tmp_path)
    table.write(((client, made), state(float(made))) for client in (1, 2) for made in (1, 4, 6))
    table.forget([(1, 4), (3, 9)])
    table.forget_after(4)
    for one in (table, StateTable(tmp_path)):
        assert values(one) == {(1, 1): 1.0, (2, 1): 1.0, (2, 4): 4.0}


def test_nothing_is_left_of_a_state_that_was_forgotten(tmp_path: Path) -> None:
    face = torch.arange(1.0, 3000.0)  # of several pages
    table = StateTable(tmp_path)
    table.write([((1, 1), {"face": face}), ((2, 1), state(2.0))])
    (file,) = tmp_path.iterdir()
    part = face[1500:1600].numpy().tobytes()
    assert part in file.read_bytes()
    table.forget([(1, 1)])
    assert part not in file.read_bytes() and values(table) == {(2, 1): 2.0}


def test_places_of_what_was_forgotten_are_used_again(tmp_path: Path) -> None:
    table = StateTable(tmp_path)
    for round_ in range(20):
        table.write(((client, round_), state(1.0)) for client in range(50))
        table.forget((client, round_ - 1) for client in range(50))
        if round_ == 1:
            two_rounds = (tmp_path / "states.sqlite").stat().st_size
    assert (tmp_path / "states.sqlite").stat().st_size <= 1.5 * two_rounds


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    table = StateTable(tmp_path)
    table.write([((1, 1), state(1.0))])
    with pytest.raises(RuntimeError, match="power"):
        table.write(((client, 1), state(9.0)) if client < 3 else failing() for client in range(5))
    for one in (table, StateTable(tmp_path)):
        assert values(one) == {(1, 1): 1.0}


def failing() -> tuple[tuple[int, int], Flat]:
    raise RuntimeError("power is gone")


def test_finding_a_state_reads_no_others(tmp_path: Path) -> None:
    """Every query goes by an index: none scans the table."""
    table = StateTable(tmp_path)
    table.write([((1, 1), state(1.0))])
    asked: list[str] = []
    assert table._opened is not None
    table._opened.set_trace_callback(asked.append)
    table.read((1, 1))
    table.rounds_of(1)
    table.newest()
    table.forget([(1, 1)])
    table.forget_after(1)
    table._opened.set_trace_callback(None)
    queries = [query for query in asked if query.startswith(("SELECT", "DELETE"))]
    assert len(queries) == 5
    for query in queries:
        plan = " ".join(row[3] for row in table._opened.execute(f"EXPLAIN QUERY PLAN {query}"))
        assert "SEARCH" in plan and "SCAN" not in plan


def test_a_file_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "states.sqlite").write_bytes(b"not a table" * 100)
    with pytest.raises(ValueError, match=r"states\.sqlite cannot be read .*restore it") as refused:
        StateTable(tmp_path)
    assert isinstance(refused.value.__cause__, sqlite3.DatabaseError)
