from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = [
    "data.size=32",
    "data.public=10",
    "data.public_images=4",
    "data.clients=6",
    "data.images_each=4",
    "data.test=20",
    "data.test_images=4",
    "data.pairs=200",
    "pretrain.rounds=1",
    "central.rounds=1",
    "rounds.cohort=4",
    "rounds.rounds=4",
    "embedding=16",
]


def coalface(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, in a process of its own, on one thread so that bits repeat."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(), check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "coalface", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def small(*settings: str) -> list[str]:
    return [part for setting in (*SMALL, *settings) for part in ("--set", setting)]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small run of a method that keeps private state, undisturbed."""
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    coalface("run", "fedavg/private-head", *small("data.identities_each=2", "training.batch=3"), "--out", out)
    return out
