"""The core with torch, numpy and safetensors alone, as on a GPU machine where nothing can be installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import environment, small

BARE = """
import sys

class Without:
    names = {"rich", "matplotlib", "PIL", "scipy", "sklearn", "typer", "flwr", "cryptography", "dp_accounting"}

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in self.names else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from coalface.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


def test_a_run_works_and_says_once_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = bare("run", "fedavg/shared-head", *small("rounds.rounds=1", "training.batch=0"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("not installed here") == 1
    assert "figures in the report (matplotlib)" in done.stderr
    assert json.loads((out / "result.json").read_text())["engine"] == "stacked"
    assert "<svg" not in (out / "report.html").read_text()


def test_photographs_name_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "1.jpg").write_bytes(b"x")
    (tmp_path / "photos" / "a" / "2.jpg").write_bytes(b"x")
    done = bare("run", "demo", "--data", str(tmp_path / "photos"), "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "coalface[app]" in done.stderr


@pytest.mark.parametrize(
    ("setting", "package"),
    [("privacy.secure_sum=true", "cryptography"), ("privacy.dp.noise=1", "dp-accounting")],
)
def test_privacy_names_what_it_needs_before_anything_is_done(setting: str, package: str, tmp_path: Path) -> None:
    settings = small("privacy.min_cohort=3", setting)
    done = bare("run", "fedavg/shared-head", *settings, "--out", str(tmp_path / "run"))
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert f"needs the package {package}: pip install 'coalface[privacy]'" in done.stderr.replace(
        "need the", "needs the"
    )


def test_list_needs_nothing(tmp_path: Path) -> None:
    assert "fedavg/shared-head" in bare("list").stdout


def test_real_machines_name_what_they_need(tmp_path: Path) -> None:
    done = bare("keys", "north", "--out", str(tmp_path / "keys"))
    assert done.returncode == 2 and "coalface[deploy]" in done.stderr
