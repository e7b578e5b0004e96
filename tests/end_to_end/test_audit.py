"""`coalface audit`, of a method and of a finished run: what it writes, and that the run stays as it was."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import pytest

from coalface.cli import main
from coalface.config import to_json
from coalface.privacy.audits import audit as audits
from coalface.recipes.detection import detection

SMALL = [
    f"--set={setting}"
    for setting in (
        "model=tiny", "embedding=32", "data.size=32", "data.public=0", "data.clients=16", "data.images_each=5",
        "data.test=24", "data.test_images=2", "data.pairs=40", "rounds.rounds=2", "rounds.cohort=16",
        "training.images_per_round=3", "training.flip=false",
    )
]  # fmt: skip
QUICK = ["--rounds", "2", "--inversions", "1", "--iterations", "4", "--quiet"]


@pytest.fixture(autouse=True)
def hasty_attacker(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(audits.Effort, people=24, judge_epochs=1, decoder_epochs=1, several=0)
    monkeypatch.setattr(audits, "Effort", hasty)


def test_a_method_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "feduv", *SMALL, *QUICK, "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "audit.json").read_text())
    assert report["method"] == "feduv" and report["cohort"] == 16 and report["rounds"] == 2
    rows = {(row["attack"], row["view"]): row for row in report["results"]}
    assert {view for _, view in rows} == {"plain", "secure sum", "secure sum + DP"}
    assert {attack for attack, _ in rows} == {
        "template leak", "codeword", "gradient inversion, 1 step", "template inversion", "membership, person",
        "membership, image",
    }  # fmt: skip
    assert rows["codeword", "plain"]["success"] == 1 and not rows["codeword", "plain"]["at_chance"]
    assert rows["codeword", "secure sum + DP"]["success"] == 0
    page = (tmp_path / "audit.html").read_text()
    assert page.count("data:image/png") == 2 and "Audit of feduv" in page and "http:" not in page
    assert "! codeword" in capsys.readouterr().out


def test_a_run_is_audited_and_not_touched(tmp_path: Path) -> None:
    run = tmp_path / "run"
    central = ["--set=central.rounds=1", "--quiet"]
    assert main(["run", "chorus", *SMALL, *central, "--out", str(run)]) == 0
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in run.rglob("*") if path.is_file()}
    assert main(["audit", str(run), *QUICK]) == 0
    after = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in run.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} == {"audit.json", "audit.html"}
    assert all(after[path] == digest for path, digest in before.items())
    rows = json.loads((run / "audit.json").read_text())["results"]
    recovery = {row["view"]: row for row in rows if row["attack"] == "recovery"}
    assert recovery["plain"]["success"] == 1  # a client's part of the chord is its class embedding


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit", "fedfaze"], "did you mean fedface?"),
        (["audit", "fedpad", "--rounds", "2"], "fedpad detects attacks: audits are of methods that recognise faces"),
        (["audit", "local_only"], "there is nothing to attack"),
        (["audit", "fedface", "--noise", "0"], "not 20, 0, 4 and 150"),
        (["audit", "fedface", *SMALL, "--set", "data.clients=8"], "16 clients or more"),
        (["audit", "fedface", *SMALL, "--set", "data.identities_each=2"], "one person per client"),
    ],
)
def test_bad_requests_get_one_line(arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--quiet"]) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if line]
    assert len(lines) == 1 and says in lines[0]


def test_a_run_that_detects_attacks_is_not_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(to_json(detection())))
    assert main(["audit", str(tmp_path)]) == 2
    assert "detects attacks: audits are of methods that recognise faces" in capsys.readouterr().err
