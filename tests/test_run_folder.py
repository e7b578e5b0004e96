"""A run's folder: one process at a time, and what the run began with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coalface.config import ConfigError
from coalface.data.listing import hash_of_files
from coalface.recipes.demo import demo
from coalface.run_folder import alone, begin
from coalface.store import StoreError

pytest.importorskip("fcntl")


def test_a_folder_is_for_one_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(StoreError, match="another process is at work in .*one: wait for its end")
    with alone(tmp_path / "one"), alone(tmp_path / "other"), refused:
        alone(tmp_path / "one").__enter__()
    with alone(tmp_path / "one"):
        pass


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from coalface.run_folder import alone\n"
        "with alone(Path(sys.argv[1])): print('here', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        with pytest.raises(StoreError, match="another process"):
            alone(tmp_path).__enter__()
        process.send_signal(signal.SIGKILL)
    with alone(tmp_path):
        pass


def test_the_first_command_stays(tmp_path: Path) -> None:
    assert begin(tmp_path, demo(), "coalface run a", None) == "coalface run a"
    assert begin(tmp_path, demo(), "coalface resume b", None) == "coalface run a"


def test_of_a_run_that_ended_before_it_was_written_down_the_result_tells_it(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"command": "coalface run a"}')
    assert begin(tmp_path, demo(), "coalface resume b", None) == "coalface run a"


def test_other_files_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    begin(tmp_path, demo(), "run", None)  # as before they were noted down
    begin(tmp_path, demo(), "run", "one")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert json.loads(before["began.json"]) == {"command": "run", "files": "one"}
    with pytest.raises(ConfigError, match=r"changed since the run in .* began.* put them back .* another --out"):
        begin(tmp_path, demo(), "resume", "two")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    begin(tmp_path, demo(), "resume", "one")


def test_a_damaged_record_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "began.json").write_text("{")
    with pytest.raises(StoreError, match=r"began\.json is damaged .*restore it"):
        begin(tmp_path, demo(), "run", None)


def test_a_hash_of_files_tells_names_sizes_and_order() -> None:
    listings = ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1)], [("a", 1), ("c", 2)], [("a", 1), ("b", 3)])
    assert len({hash_of_files(listed) for listed in listings}) == 5
    assert hash_of_files(listings[0]) == hash_of_files(iter(listings[0]))
