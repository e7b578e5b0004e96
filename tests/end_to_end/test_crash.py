"""kill -9 at several moments, resume, and the final state has the same hash."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.end_to_end.conftest import coalface, command, environment

HASHES = ("checkpoint_sha256", "private_sha256", "partition_sha256", "config_sha256")


def hashes(out: Path) -> dict[str, str]:
    result = json.loads((out / "result.json").read_text())
    return {name: result[name] for name in HASHES}


def command_of(out: Path) -> str:
    told = json.loads((out / "result.json").read_text())["command"]
    assert told.startswith("coalface run fedavg/private-head ")
    return str(told)


def test_killed_at_any_moment_and_resumed_the_end_is_the_same(finished: Path, tmp_path: Path) -> None:
    config = finished / "config.json"
    began = time.monotonic()
    coalface("run", config, "--out", tmp_path / "again")
    whole = time.monotonic() - began
    assert hashes(tmp_path / "again") == hashes(finished)  # and so config.json runs the same run again

    moments = random.Random()  # really random: over many CI runs, every moment is tried
    out = tmp_path / "killed"
    kills = 0
    process = subprocess.Popen(command("run", config, "--out", out), env=environment(), stdout=subprocess.DEVNULL)
    for _ in range(4):
        try:
            process.wait(timeout=moments.uniform(0.3, 0.8) * whole)
            break  # it was quicker than the killer
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        verb = ["resume", out] if (out / "config.json").exists() else ["run", config, "--out", out]
        process = subprocess.Popen(command(*verb), env=environment(), stdout=subprocess.DEVNULL)
    assert process.wait() == 0
    assert kills >= 1
    assert hashes(out) == hashes(finished)
    stripped = [
        [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in (o / "ledger.jsonl").open()]
        for o in (out, finished)
    ]
    assert stripped[0] == stripped[1]


def test_killed_while_writing_a_checkpoint(finished: Path, tmp_path: Path) -> None:
    """Half a ledger row, half a checkpoint, and private state of the round that is not there."""
    out = tmp_path / "torn"
    shutil.copytree(finished, out)
    for leftover in ("result.json", "report.html", "model.safetensors", "central"):
        path = out / leftover
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(out / "checkpoints" / "000004")
    (out / "checkpoints" / "aside-000004").mkdir()
    (out / "checkpoints" / "aside-000004" / "server.safetensors").write_bytes(b"half a file")
    with (out / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"round": 4, "clie')
    coalface("resume", out)
    assert hashes(out) == hashes(finished)


def test_a_finished_run_resumes_to_itself(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(finished, out)
    coalface("resume", out)
    assert hashes(out) == hashes(finished)
    assert command_of(out) == command_of(finished)


def test_an_interrupted_run_is_told_by_the_command_that_began_it(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(finished, out)
    (out / "result.json").unlink()
    coalface("resume", out)
    assert command_of(out) == command_of(finished)
    assert f"{command_of(finished)}</pre>" in (out / "report.html").read_text()


def test_a_changed_setting_is_refused(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "changed"
    shutil.copytree(finished, out)
    config = json.loads((out / "config.json").read_text())
    config["training"]["rate"] = 0.9
    (out / "config.json").write_text(json.dumps(config))
    done = coalface("resume", out, check=False)
    assert done.returncode == 2
    assert "other settings" in done.stderr
