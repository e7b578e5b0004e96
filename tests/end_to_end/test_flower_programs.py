"""With Flower's own programs: the app that `flwr run` takes, and its simulation engine."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from coalface.cli import main
from tests.end_to_end.conftest import coalface, environment, small

APP = Path(__file__).resolve().parents[2] / "flower"


def test_flower_builds_the_app(tmp_path: Path) -> None:
    """Only a few lines travel: coalface itself is what each machine has installed."""
    shutil.copytree(APP, tmp_path / "flower", ignore=shutil.ignore_patterns("__pycache__"))
    quiet = {"FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    flwr = Path(sys.executable).with_name("flwr")
    build = [str(flwr) if flwr.exists() else "flwr", "build", "--app", "flower"]
    done = subprocess.run(
        build, cwd=tmp_path, env={**environment(), **quiet}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = tmp_path.glob("*.fab")
    held = {name for name in zipfile.ZipFile(bundle).namelist() if not name.startswith(".info")}
    assert held == {"LICENSE", "coalface_app.py", "pyproject.toml"} and bundle.stat().st_size < 20_000


def test_the_app_has_both_ends() -> None:
    spec = importlib.util.spec_from_file_location("coalface_app", APP / "coalface_app.py")
    assert spec is not None and spec.loader is not None
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    assert isinstance(app.client, ClientApp) and isinstance(app.server, ServerApp)


def test_flower_sim_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    assert main(["run", "fedavg/private-head", *small(), "--engine", "flower-sim", "--out", str(tmp_path / "a")]) == 2
    assert "pip install 'coalface[flower-sim]'" in capsys.readouterr().err


@pytest.mark.deploy
@pytest.mark.parametrize("name", ["fedavg/private-head", "fedfr"])
def test_flowers_simulation_gives_the_result_of_ours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's processes hold the clients, their state and, for fedfr, the public set."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray's processes stand back by default, on a busy machine for ever
    results = []
    for engine in ("flower-sim", "sequential"):
        coalface("run", name, *small("rounds.cohort=0", "rounds.rounds=2"), "--engine", engine, "--device", "cpu",
                 "--quiet", "--out", tmp_path / engine)  # fmt: skip
        results.append(json.loads((tmp_path / engine / "result.json").read_text()))
    assert results[0]["checkpoint_sha256"] == results[1]["checkpoint_sha256"]
    assert results[0]["engine"] == "flower-sim"
