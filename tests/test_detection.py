"""A whole run of attack detection, on noise that passes for recordings."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import config
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.fused import Fused
from coalface.cli import main
from coalface.config import ConfigError, DetectionRun, Run
from coalface.data.centres import DomainData
from coalface.data.recordings import Recordings
from coalface.detection import Detection, detector_net, table
from coalface.federation import Rounds
from coalface.local import Training
from coalface.report.progress import Progress
from tests.conftest import noise_recordings

SMALL = DetectionRun(
    width=2, data=DomainData(size=32), rounds=Rounds(rounds=2), training=Training(rate=0.01, batch=0), ends=()
)


@pytest.fixture(autouse=True)
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for recordings."""

    def draw_domain(name: str, split: str, *rest: object) -> Recordings:
        return noise_recordings(sum(map(ord, name + split)))

    monkeypatch.setattr("coalface.detection.draw_domain", draw_domain)


def executed(run: DetectionRun, out: Path) -> dict[str, Any]:
    with Progress(quiet=True) as progress:
        return Detection(run, out, torch.device("cpu"), progress, "coalface run").execute()


def test_a_run_stands_between_its_ends(tmp_path: Path) -> None:
    result = executed(replace(SMALL, ends=("single", "all")), tmp_path)
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert result["title"] == "fedpad, O&C&I → M" and result["clients"] == 3
    assert {name: len(rows) for name, rows in result["metrics"].items()} == {"fedpad": 1, "single": 3, "all": 1}
    assert json.loads((tmp_path / "all" / "result.json").read_text())["method"] == "all"
    single = [row["frame"]["hter"] for row in result["metrics"]["single"]]
    assert f"{100 * sum(single) / 3:.1f}" in table(result).splitlines()[-4]
    assert (tmp_path / "model.safetensors").exists()
    origins = [row["frame"]["threshold_origin"] for row in result["metrics"]["single"]]
    assert origins == [f"EER on frames of dev of {centre}" for centre in "OCI"]  # a centre alone has its own threshold


def test_each_of_many_centres_has_a_detector_of_its_own(tmp_path: Path) -> None:
    """More than the few clients' own models that stand for all where faces are recognised."""
    data = replace(SMALL.data, centres=tuple("ABCDEFGHJ"))
    result = executed(replace(SMALL, data=data, rounds=Rounds(rounds=1), ends=("single",)), tmp_path)
    origins = [row["frame"]["threshold_origin"] for row in result["metrics"]["single"]]
    assert origins == [f"EER on frames of dev of {centre}" for centre in "ABCDEFGHJ"]


def test_at_home_other_statistics_judge_the_same_detector(tmp_path: Path) -> None:
    sent, home = (executed(replace(SMALL, at_home=here), tmp_path / str(here)) for here in (False, True))
    assert sent["checkpoint_sha256"] == home["checkpoint_sha256"] and home["title"] == "fedpad at home, O&C&I → M"
    assert sent["metrics"]["fedpad"][0]["histogram"] != home["metrics"]["fedpad"][0]["histogram"]


@pytest.mark.parametrize("method", [FedGPAD(), Fused()])
def test_resumed_from_an_earlier_round_it_ends_the_same(method: Any, tmp_path: Path) -> None:
    run = replace(SMALL, method=method)
    whole = executed(run, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "000002")
    again = executed(run, tmp_path)
    assert again["checkpoint_sha256"] == whole["checkpoint_sha256"]
    assert again["private_sha256"] == whole["private_sha256"]


def test_fused_detectors_are_all_saved_and_judged_as_one(tmp_path: Path) -> None:
    result = executed(replace(SMALL, method=Fused()), tmp_path)
    assert len(result["metrics"]["fused"]) == 1
    assert {file.name for file in tmp_path.glob("model*")} == {
        "model.safetensors", "model1.safetensors", "model2.safetensors",
    }  # fmt: skip


def test_the_command_line_runs_and_resumes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    settings = ["width=2", "data.size=32", "data.target=I", "rounds.rounds=1", 'ends=["single"]']
    command = [part for setting in settings for part in ("--set", setting)]
    assert main(["run", "fedpad", *command, "--out", str(out), "--quiet"]) == 0
    assert "fedpad, O&C&M → I" in capsys.readouterr().out
    assert main(["resume", str(out), "--quiet"]) == 0
    assert main(["eval", str(out), "--data", str(tmp_path)]) == 2
    assert "detects attacks" in capsys.readouterr().err


def test_the_network_is_that_of_the_paper_unless_named() -> None:
    assert detector_net(SMALL).name == "resnet18" and detector_net(SMALL).settings["width"] == 2
    assert detector_net(replace(SMALL, method=FedGPAD())).settings == {"size": 32, "width": 2}
    assert detector_net(replace(SMALL, model="fedgpad")).name == "fedgpad"


def test_each_kind_of_run_takes_its_own_methods() -> None:
    assert isinstance(config.run_from_json(config.to_json(SMALL)), DetectionRun)
    assert config.run_from_json(config.to_json(SMALL)) == SMALL
    assert isinstance(config.run_from_json(config.to_json(Run())), Run)
    with pytest.raises(ConfigError, match="fedface is for faces"):
        config.override(SMALL, ["method.name=fedface"])
    with pytest.raises(ConfigError, match="fedpad detects attacks"):
        config.override(Run(), ["method.name=fedpad"])
