"""What clients keep: versions by round, memory bounded, apart from the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from coalface import wire
from coalface.private_store import PrivateStore
from coalface.state_table import Flat, Key, StateTable


@dataclass(frozen=True)
class Kept(wire.Private):
    value: Tensor


def kept(value: float) -> Kept:
    return Kept(torch.full((256,), value))  # 1 KiB


def make(folder: Path, memory: int = 1 << 30) -> PrivateStore:
    return PrivateStore(folder, Kept, torch.device("cpu"), memory)


def value(store: PrivateStore, client: int, round_: int) -> float | None:
    state = store.load(client, round_)
    assert state is None or isinstance(state, Kept)
    return None if state is None else float(state.value[0])


def test_a_round_sees_what_was_kept_before_it(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(5, 2, kept(2.0))
    store.keep(5, 4, kept(4.0))
    assert [value(store, 5, r) for r in (2, 3, 4, 5)] == [None, 2.0, 2.0, 4.0]
    assert value(store, 6, 5) is None


def test_a_void_round_is_forgotten(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(5, 2, kept(2.0))
    store.settle_round()
    store.keep(5, 3, kept(3.0))
    store.keep(6, 3, kept(3.0))
    store.forget_round()
    assert value(store, 5, 9) == 2.0 and value(store, 6, 9) is None
    assert store.clients() == [5]


def test_between_two_flushes_only_the_newest_version_is_held(tmp_path: Path) -> None:
    store = make(tmp_path)
    for round_ in (1, 2, 3):
        store.keep(5, round_, kept(float(round_)))
        store.settle_round()
    assert store._size == 1024  # one version of 1 KiB
    store.flush()
    for round_ in (4, 5):
        store.keep(5, round_, kept(float(round_)))
        store.settle_round()
    assert [value(store, 5, r) for r in (4, 5, 6)] == [3.0, 3.0, 5.0]  # a resume at round 3 reads what was flushed


@pytest.mark.parametrize("memory", [0, 2048, 1 << 30])
def test_any_memory_gives_the_same_answers(tmp_path: Path, memory: int) -> None:
    store = make(tmp_path, memory)
    for round_ in (1, 2, 3):
        for client in range(10):
            store.keep(client, round_, kept(10.0 * round_ + client))
    assert [value(store, client, 3) for client in range(10)] == [20.0 + client for client in range(10)]
    assert store._size <= max(memory, 1024)  # one state is always held


def test_what_was_flushed_survives_the_process(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(1, 1, kept(1.0))
    store.flush()
    store.keep(1, 2, kept(2.0))  # never flushed: lost with the process
    again = make(tmp_path)
    assert value(again, 1, 9) == 1.0


def test_rewinding_forgets_later_rounds_on_disk_too(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(1, 1, kept(1.0))
    store.keep(1, 3, kept(3.0))
    store.flush()
    again = make(tmp_path)
    again.keep(2, 3, kept(4.0))  # in memory only
    again.rewind(2)
    for one in (again, make(tmp_path)):
        assert value(one, 1, 9) == 1.0 and one.clients() == [1] and one.versions(1) == [1]


def test_pruning_keeps_what_a_resumed_run_may_read(tmp_path: Path) -> None:
    store = make(tmp_path)
    for round_ in (1, 2, 5, 6):
        store.keep(1, round_, kept(float(round_)))
    store.flush()
    store.prune(oldest=5)  # a run resumed at 5 goes on with round 6, which reads the version of round 5
    assert [value(store, 1, r) for r in (5, 6, 7)] == [None, 5.0, 6.0]
    store.prune(oldest=4)
    assert value(store, 1, 6) == 5.0


def test_a_client_who_sat_out_keeps_its_only_version(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(1, 1, kept(1.0))
    store.flush()
    store.prune(oldest=100)
    assert value(store, 1, 101) == 1.0


def test_the_hash_sees_every_client(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(1, 1, kept(1.0))
    first = store.sha256()
    store.keep(2, 1, kept(1.0))
    assert store.sha256() != first


def test_a_void_round_leaves_no_trace_on_disk(tmp_path: Path) -> None:
    store = make(tmp_path, memory=0)  # everything is spilled at once, but for the last
    for client in range(4):
        store.keep(client, 1, kept(1.0))
    store.settle_round()
    store.flush()
    for client in range(4):
        store.keep(client, 2, kept(2.0))
    store.forget_round()
    assert [value(make(tmp_path), client, 9) for client in range(4)] == [1.0] * 4


def test_a_view_of_a_large_tensor_does_not_hold_it(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.keep(1, 1, Kept(torch.zeros(1000, 256)[3]))
    (held,) = store._held.values()
    assert isinstance(held.state, Kept) and held.state.value.untyped_storage().nbytes() == 1024


def test_a_checkpoint_costs_what_changed_not_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 500 clients have kept something, a round of 5 writes 5 states, and looks at 5 clients for old ones."""
    store = make(tmp_path)
    for client in range(500):
        store.keep(client, 1, kept(1.0))
    store.settle_round()
    store.flush()
    store.prune(1)
    written: list[Key] = []
    write = StateTable.write

    def counted(self: StateTable, states: Iterable[tuple[Key, Flat]]) -> None:
        write(self, [written.append(key) or (key, flat) for key, flat in states])  # type: ignore[func-returns-value]

    monkeypatch.setattr(StateTable, "write", counted)
    for client in range(5):
        store.keep(client, 2, kept(2.0))
    store.settle_round()
    store.flush()
    assert written == [(client, 2) for client in range(5)] and store._unsaved == {}
    assert store._outdated == set(range(5))
    store.prune(2)
    assert store._outdated == set() and store.clients() == list(range(500))
    assert [store.versions(client) for client in (0, 4, 5)] == [[2], [2], [1]]


def test_only_the_versions_that_count_are_retained(tmp_path: Path) -> None:
    store = make(tmp_path)
    for round_ in (1, 2, 3):
        store.keep(7, round_, kept(float(round_)))
        store.flush()
    assert store.versions(7) == [1, 2, 3] and store.versions(8) == []
    store.retain(7, [1, 3])
    assert store.versions(7) == make(tmp_path).versions(7) == [1, 3]
