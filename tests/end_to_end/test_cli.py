"""The command line as its users meet it: what it writes, and how it says no."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from coalface import __main__, cli
from coalface.cli import main
from coalface.config import Run, to_json
from tests.end_to_end.conftest import coalface, command, environment, small


def test_a_run_writes_what_it_promises(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert result["method"] == "fedavg/private-head" and result["rounds"] == 4 and result["seed"] == 0
    assert set(result["metrics"]) == {"start", "method", "central"}
    assert set(result["gain_recovered"]) == {"accuracy", "tar@0.001", "tar@0.01"}
    assert len(result["checkpoint_sha256"]) == 64 and result["images_per_second"] > 0
    assert result["share_of_central_speed"] > 0 and 0 < result["outside_training"] < 1 and result["engine_form"]
    assert result["peak_memory"]["host"] > 1 << 20
    assert {"python", "torch", "numpy", "coalface"} <= set(result["versions"])
    ledger = [json.loads(line) for line in (finished / "ledger.jsonl").open()]
    assert len(ledger) == 4 * 4
    assert set(ledger[0]) == {
        "round", "attempt", "client", "outcome", "images", "seconds", "bytes_down", "bytes_up",
    }  # fmt: skip
    assert result["bytes"]["up"] == sum(row["bytes_up"] for row in ledger)
    page = (finished / "report.html").read_text()
    assert "fedavg/private-head" in page and "change of the backbone" in page
    assert (finished / "model.safetensors").exists()


def test_a_run_can_be_evaluated_on_photographs(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = make_photos(tmp_path / "photos", identities=24, each=4)
    assert main(["pairs", str(photos), "--count", "200", "--out", str(tmp_path / "pairs.csv")]) == 0
    capsys.readouterr()
    assert main(["eval", str(finished), "--data", str(photos), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["genuine_pairs"] == 24 * 6
    listed = ["--pairs", str(tmp_path / "pairs.csv")]
    assert main(["eval", str(finished), "--data", str(photos), *listed, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 200


def test_a_rate_that_the_photographs_cannot_carry_is_refused_before_they_are_decoded(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = make_photos(tmp_path / "photos", identities=5, each=2)
    monkeypatch.setattr("coalface.verbs.evaluate.read_folder", lambda *_, **__: pytest.fail("that may take minutes"))
    assert main(["eval", str(finished), "--data", str(photos), "--fmr", "0.1", "1e-3", "--quiet"]) == 2
    assert "needs at least 1,000 impostor pairs, got 40" in capsys.readouterr().err  # 5 · 4 / 2 · 2 · 2


def test_a_run_on_photographs_shows_no_face(tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", identities=40, each=4)
    settings = small("data.public=8", "rounds.rounds=1", "training.batch=0")
    coalface("run", "fedavg/shared-head", *settings, "--data", photos, "--out", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "data:image/png" not in page
    shared = page + (tmp_path / "run" / "result.json").read_text()  # config.json stays with the run, and needs the path
    assert str(tmp_path) not in shared and "--data PHOTOS" in shared
    written = "".join(p.read_text() for p in (tmp_path / "run").glob("*.json*")) + page
    assert "somebody" not in written.replace(str(photos), "")  # identities are numbers; the folder's names stay outside


def test_a_folder_called_synthetic_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_photos(tmp_path / "synthetic", identities=3, each=2)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "demo", "--data", "synthetic", "--out", "run", *small()]) == 2  # three people are too few


def test_list_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["centralised"]["disclosure"]["once"][0]["seen"] == "REVEALED"
    assert [f["seen"] for f in rows["fedavg/private-head"]["disclosure"]["up"]] == ["summed", "count"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "fedavgg/shared-head", "--out", "OUT"], "did you mean fedavg/shared-head?"),
        (["run", "demo", "--set", "data.publik=3", "--out", "OUT"], "did you mean data.public?"),
        (["run", "demo", "--set", "training.rate=fast", "--out", "OUT"], "training.rate must be a number, not 'fast'"),
        (["run", "demo", "--set", "training.rate=0", "--out", "OUT"], "rate must be above 0"),
        (["run", "demo", "--set", "rounds", "--out", "OUT"], "--set takes name=value"),
        (["run", "demo", "--set", "model=resnet99", "--out", "OUT"], "resnet99"),
        (["run", "demo", "--data", "MISSING", "--out", "OUT"], "is not a folder"),
        (["run", "demo", "--data", "BROKEN", "--out", "OUT", *small("data.test=20")], "broken.jpg"),
        (["run", "demo", "--data", "FEW", "--out", "OUT"], "identities are missing"),
        (["run", "demo", "--weights", "MISSING", "--out", "OUT", *small()], "expected .safetensors"),
        (["run", "demo", "--set", "engine=x", "--out", "OUT"], "no setting 'engine'"),
        (["run", "demo", "--engine", "warp", "--out", "OUT"], "invalid choice: 'warp'"),
        (
            ["run", "local_only", "--engine", "stacked", "--out", "OUT", *small("method.batch_statistics=true")],
            "cannot run local_only: its batch-norm statistics",
        ),
        (
            ["run", "fedface", "--out", "OUT", *small("privacy.secure_sum=true", "privacy.require_secure_sum=true")],
            "privacy.require_secure_sum=true refuses fedface: it reveals class_embedding",
        ),
        (["resume", "MISSING"], "holds no run"),
        (["eval", "MISSING", "--data", "FEW"], "there is no "),
        (["eval", "FILE", "--data", "FEW"], "--model"),
        (["eval", "FILE", "--data", "FEW", "--model", "resnet18"], "networks for faces are feduv_cnn, "),
        (["eval", "FEW", "--data", "FEW"], "holds no run"),
        (["run", "fedface", "--out", "OUT", *small("privacy.dp.clip=0")], "above 0, not 0, 0, 0, 0 and 1"),
        (["eval", "UNFINISHED", "--data", "FEW"], "is not finished: coalface resume "),
        (["pairs", "ENOUGH", "--count", "20", "--out", "FEW"], "is a folder: try "),
        (
            ["run", "demo", "--data", "ENOUGH", "--set", "data.cache=FILE", "--out", "OUT", *small()],
            "is a file: choose a folder",
        ),
        (["run", "demo", "--out", "FILE", *small()], "FILE is a file: --out is a folder"),
        (["run", "demo", "--out", "OUT", *small("data.pairs=2000")], "data.pairs"),
        (["run", "demo", "--out", "OUT", *small("data.clients=100000000000000")], "memory here: you tried to"),
        (["run", "fedpad", "--set", "width=0", "--out", "OUT"], "width is the channels"),
        (["demo", "--seeds", "1", "2", "1", "--out", "OUT"], "--seeds 1 2 1: the same seed twice"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_bad_requests_get_one_line_and_leave_nothing(
    arguments: list[str], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_photos(tmp_path / "FEW", identities=3, each=2)
    make_photos(tmp_path / "BROKEN", identities=40, each=2)
    (tmp_path / "BROKEN" / "somebody003" / "broken.jpg").write_bytes(b"\xff\xd8 not a photograph")
    make_photos(tmp_path / "ENOUGH", identities=40, each=2)
    (tmp_path / "FILE").write_text("")
    (tmp_path / "UNFINISHED").mkdir()
    (tmp_path / "UNFINISHED" / "config.json").write_text(json.dumps(to_json(Run())))
    names = ("OUT", "MISSING", "BROKEN", "FEW", "FILE", "UNFINISHED", "ENOUGH")
    places = {name: str(tmp_path / name) for name in names}
    places["data.cache=FILE"] = f"data.cache={places['FILE']}"
    try:
        code = main([*(places.get(a, a) for a in arguments), *(["--quiet"] if arguments[0] == "run" else [])])
    except SystemExit as stop:
        code = int(str(stop.code))
    lines = [line for line in capfd.readouterr().err.splitlines() if line]
    assert code == 2
    assert len(lines) == 1 and says in lines[0]
    assert not (tmp_path / "OUT").exists()


@pytest.mark.parametrize("method", ["fedface", "feduv"])  # one reveals, the sums of the other are told apart
def test_what_a_secure_sum_cannot_hide_is_refused_before_a_face_is_drawn(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coalface.experiment.world.load", lambda *_, **__: pytest.fail("faces were drawn"))
    strict = small("privacy.secure_sum=true", "privacy.require_secure_sum=true")
    assert main(["run", method, "--out", str(tmp_path / "out"), *strict]) == 2
    assert f"refuses {method}" in capsys.readouterr().err


def test_an_existing_folder_is_not_overwritten(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(p.name for p in finished.iterdir())
    assert main(["run", "demo", "--out", str(finished)]) == 2
    assert "coalface resume" in capsys.readouterr().err
    assert sorted(p.name for p in finished.iterdir()) == before


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(verb in text for verb in ("demo", "run", "resume", "eval", "list", "pairs")) and "start here" in text


def test_faults_are_injected_from_the_command_line(tmp_path: Path) -> None:
    settings = small("faults.dropout=0.3", "faults.damaged=0.2", "rounds.quorum=0.2", "rounds.rounds=6")
    coalface("run", "fedavg/shared-head", *settings, "--out", tmp_path / "run")
    outcomes = {json.loads(line)["outcome"].split(":")[0] for line in (tmp_path / "run" / "ledger.jsonl").open()}
    assert {"counted", "dropped out", "refused"} <= outcomes


def test_a_broken_photograph_is_left_out_on_request_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = make_photos(tmp_path / "photos", identities=40, each=3)
    (photos / "somebody003" / "broken.jpg").write_bytes(b"no photograph")
    settings = small("data.public=8", "rounds.rounds=1", "training.batch=0", "data.pairs=100", "data.skip_broken=true")
    out = tmp_path / "run"
    assert main(["run", "fedavg/shared-head", *settings, "--data", str(photos), "--out", str(out), "--quiet"]) == 0
    assert json.loads((out / "result.json").read_text())["broken_images_left_out"] == 1
    assert "skipped 1 of 121 images" in capsys.readouterr().err
    page = (out / "report.html").read_text()
    assert "broken images left out" in page and "somebody003" not in page
    assert main(["eval", str(out), "--data", str(photos), "--quiet"]) == 2
    assert "--skip-broken" in capsys.readouterr().err
    assert main(["eval", str(out), "--data", str(photos), "--skip-broken", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["genuine_pairs"] == 40 * 3
    assert "decoding 121/121" in told.err and "embedding 120/120" in told.err


def test_pairs_are_of_the_photographs_that_eval_reads(tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", identities=20, each=2)
    main(["pairs", str(photos), "--count", "20", "--out", str(tmp_path / "before.csv")])
    for name in ("._0.jpg", ".DS_Store"):  # as macOS leaves them
        (photos / "somebody001" / name).write_bytes(b"no photograph")
    main(["pairs", str(photos), "--count", "20", "--out", str(tmp_path / "after.csv")])
    assert (tmp_path / "after.csv").read_text() == (tmp_path / "before.csv").read_text()


def test_training_that_diverges_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = small("pretrain.training.rate=1e9", "rounds.rounds=1")
    assert main(["run", "fedavg/shared-head", *wild, "--out", str(tmp_path / "run"), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "training has diverged" in told and "pretrain.training.rate" in told and told.count("\n") == 1


def test_a_reader_may_stop_reading() -> None:
    """As `coalface list | head` does; here before the first line."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command("list"), stdout=write, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def make_photos(root: Path, identities: int, each: int) -> Path:
    image = pytest.importorskip("PIL.Image")
    for identity in range(identities):
        folder = root / f"somebody{identity:03d}"
        folder.mkdir(parents=True)
        for number in range(each):
            colour = (identity * 6 % 256, 255 - identity * 5 % 256, number * 50)
            image.new("RGB", (40, 40), colour).save(folder / f"{number}.jpg")
    return root


def test_after_an_interruption_it_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where there is something to go on with."""

    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coalface.cli._execute", interrupted)
    folder = tmp_path / "out"
    folder.mkdir()
    assert main(["run", "demo", "--out", str(folder)]) == 130
    assert capsys.readouterr().err == "coalface: stopped\n"
    (folder / "config.json").write_text(json.dumps(to_json(Run())))
    assert main(["resume", str(folder)]) == 130
    assert capsys.readouterr().err == f"coalface: stopped; continue with `coalface resume {folder}`\n"
    assert main(["demo", "--out", str(folder)]) == 130
    assert capsys.readouterr().err == "coalface: stopped; the same command goes on where it stopped\n"


def test_an_interruption_while_it_loads(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str, *others: object) -> object:
        if name == "coalface.cli":
            raise KeyboardInterrupt
        return load(name, *others)

    load = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert __main__.command() == 130
    assert capsys.readouterr().err == "coalface: stopped\n"


@pytest.mark.parametrize("given", [["--data", "./photos/"], ["--data=photos"], ["--set", "data.source=photos"]])
def test_a_report_does_not_name_the_folder_of_photographs(given: list[str]) -> None:
    arguments = ["run", "demo", *given, "--out", "out"]
    shown = cli._shown_command(arguments, cli._parser().parse_args(arguments))
    assert "photos" not in shown and "PHOTOS" in shown
    assert "data.source=synthetic" in cli._shown_command(["run", "--set", "data.source=synthetic"], Namespace())
