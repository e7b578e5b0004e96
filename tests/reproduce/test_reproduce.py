from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface.cli import main
from coalface.config import Central
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.population import Population
from coalface.reproduce import ARTEFACTS, bench, figures, writing
from coalface.reproduce.bench import Row
from coalface.reproduce.real_lfw import RealArtefact
from coalface.reproduce.real_stills import StillsArtefact
from coalface.stages import Stages
from tests.conftest import noise_faces

SYNTHETIC = [name for name, artefact in ARTEFACTS.items() if not isinstance(artefact, RealArtefact | StillsArtefact)]


PERSONALISED = ("fedfr-table1", "fedfr-table2", "fedfr-table3", "fedfs-table1")


def reproduced(name: str, out: Path, *more: str) -> int:
    return main(["reproduce", name, "--scale", "smoke", "--seeds", "0", "--out", str(out), "--quiet", *more])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: artefacts that share rows find each other's."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.parametrize("name", SYNTHETIC)
def test_every_artefact_is_made_by_its_command(name: str, shared: Path) -> None:
    artefact = ARTEFACTS[name]
    rows = artefact.rows(artefact.scales["smoke"])
    wanted = [row.label for row in (rows[0], rows[-1])]  # the ends of the table: the others are trained alike
    assert reproduced(name, shared, "--rows", *wanted) == 0
    folder = shared / f"{name}-smoke"
    result = json.loads((folder / "result.json").read_text())
    assert [row["label"] for row in result["rows"]] == wanted
    values = [value for row in result["rows"] for several in row["ours"].values() for value in several]
    assert all(value is None or 0 <= value <= 1 for value in values) and any(values)
    assert {"hardware", "date", "commit", "versions"} <= result["made"][0].keys()
    if artefact.figures is not None:
        assert {file.suffix for file in folder.glob("*.*g")} == {".svg", ".png"}


def test_a_finished_row_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 0
    first = (tmp_path / "fedfv-table1-smoke" / "table.md").read_text()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Stages, "stage", refuse)
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 0
    assert (tmp_path / "fedfv-table1-smoke" / "table.md").read_text() == first


def test_a_row_of_other_settings_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 0
    monkeypatch.setattr("coalface.reproduce.fedfv.SOFTMAX_SCALE", 5.0)
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 2
    assert "was measured with other settings" in capsys.readouterr().err


def test_words_take_every_row_that_has_them(tmp_path: Path) -> None:
    assert reproduced("fedfr-table1", tmp_path, "--rows", "Centrally") == 0
    result = json.loads((tmp_path / "fedfr-table1-smoke" / "result.json").read_text())
    assert [row["label"].split()[-1] for row in result["rows"]] == ["(pre-training)", "everyone"]


def test_a_row_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedTV") == 2
    assert "no row of fedfv-table1 is like FedTV" in capsys.readouterr().err


def test_a_row_outlives_settings_that_are_newer_than_itself(tmp_path: Path) -> None:
    """They had what is their default now; a setting that it was measured with, and that is another now, refuses it."""
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 0
    file = tmp_path / "fedfv-table1-smoke/seed0/fedfv-5/measured.json"
    measured = json.loads(file.read_text())
    (settings,) = measured["settings"]
    del settings["method"]["enrol_first"], settings["privacy"]
    file.write_text(json.dumps(measured | {"config_sha256": "of the settings of then"}))
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 0
    settings["method"]["equivalents"] = 6
    file.write_text(json.dumps(measured | {"config_sha256": "of the settings of then"}))
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 2
    settings["method"] |= {"equivalents": 5, "gone": 1}
    file.write_text(json.dumps(measured | {"config_sha256": "of the settings of then"}))
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedFV-5") == 2


def test_real_photographs_have_to_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "real-lfw", "--scale", "cpu", "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert "add --data FOLDER" in capsys.readouterr().err
    assert main([*arguments, "--data", str(tmp_path), "--cache", str(tmp_path / "cache")]) == 2
    assert "there is no cfp112.tar.xz" in capsys.readouterr().err


def test_the_papers_numbers_stand_beside_ours() -> None:
    """One row of each table, as printed."""
    rows = {
        row.label: row.printed
        for name in ("fedface-table1", "fedfv-table1", "fedfv-table2", "fedfv-table3", *PERSONALISED)
        for row in ARTEFACTS[name].rows(ARTEFACTS[name].scales["paper"])
    }
    assert rows["FedFace"] == (99.28, 83.79, 88.21)
    assert rows["FedFV-500"] == (83.22, 66.83, 74.23)
    assert rows["FedFV(5)"] == (83.00, 66.52, 73.76)
    assert rows["FedUV-511"] == (81.60, 58.93, 68.63)
    assert rows["FedAvg + HN"] == (76.79, 84.64, 72.76, 80.76, 81.75, 91.91, 91.97, 96.09)
    assert rows["KD"] == (75.82, 87.65, 89.50, 94.67) and rows["Θ_l"] == (81.46, 92.17, 91.15, 95.64)
    assert rows["PocketNet, FedFS"] == (97.94, 99.34)


def test_the_papers_size_is_the_papers() -> None:
    fedfv, fedface = (ARTEFACTS[name].scales["paper"].run for name in ("fedfv-table3", "fedface-table1"))
    assert (fedfv.data.clients, fedfv.data.images_each, fedfv.rounds.cohort, fedfv.rounds.rounds) == (
        1000,
        30,
        8,
        15_000,
    )
    assert [fedfv.training.rate_at(round_) for round_ in (1, 10_000, 13_000)] == pytest.approx([0.1, 0.01, 0.001])
    assert (fedface.data.public, fedface.data.clients, fedface.rounds.rounds) == (9000, 1000, 200)


def test_a_rate_that_the_pairs_cannot_carry_is_a_dash() -> None:
    assert writing.cell([0.5, None]) == "–" and writing.cell([0.5, 0.7]) == "60.0 ± 14.1"
    row = Row("Θ_l", whose="local")
    measured = {"scores": {"personal": {"auroc": 0.1}, "personal, local": {"auroc": 0.9}}}
    assert row.score(measured, "personal", "auroc") == 0.9 and row.score(measured, "personal", "tar@0.0001") is None


def test_the_frontier_by_hand() -> None:
    """Choirs of 8 in 2 groupings tell a quarter of a voice, squared; 4 groupings under noise of length 1 do too."""
    labels = ("(a) start", "(a) chorus, choirs of 8, 2 groupings", "(a) chorus, choirs of 8, 4 groupings, noise 1")
    rows = [{"label": label, "ours": {"accuracy": [0.7, 0.8]}} for label in labels]
    drawn = figures.frontier({"rows": rows}, "accuracy").axes[0]
    points = [line.get_xydata().tolist() for line in drawn.lines if line.get_marker() == "o"]
    assert points == [[[0.5, pytest.approx(75)]], [[0.5, pytest.approx(75)]]]
    assert [text.get_text() for text in drawn.texts] == ["8, 2", "8, 4, σ = 1"]
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == ["(a) start"]


def test_gain_recovered_by_hand() -> None:
    """From 60 to 80 there are 20: a method at 75 has three quarters of them."""
    rows = [{"label": label, "ours": {"accuracy": [value]}} for label, value in (("s", 0.6), ("m", 0.75), ("c", 0.8))]
    result = {"columns": ["accuracy"], "rows": rows, "between": {"": ("s", "c")}}
    assert writing._gains(result) == {"s": "0.00", "m": "0.75", "c": "1.00"}
    assert writing._gains({**result, "between": {"": ("c", "s")}}) == {}  # nothing to gain


def test_three_models_of_one_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 3 reads the models of Table 1's last row, and Table 2 shows one of them again: nothing is trained twice."""
    assert reproduced("fedfr-table3", tmp_path) == 0
    monkeypatch.setattr(Stages, "stage", lambda *_, **__: pytest.fail("trained again"))
    assert reproduced("fedfr-table1", tmp_path, "--rows", "all parts") == 0
    assert reproduced("fedfr-table2", tmp_path, "--rows", "BCE") == 0
    tables = [json.loads((tmp_path / f"fedfr-table{n}-smoke" / "result.json").read_text()) for n in (1, 2, 3)]
    full, bce, own = (result["rows"][-1]["ours"] for result in tables)
    assert bce == own and all(full[heading] == own[heading] for heading in own)
    generic, local = (row["ours"] for row in tables[2]["rows"][:2])
    assert local not in (generic, own)


def test_settings_of_a_scale_can_be_changed(tmp_path: Path) -> None:
    settings = ["--set", "pretrain.rounds=2", "--set", "method.hard=0.9"]
    assert reproduced("fedfr-table1", tmp_path, "--rows", "pre-training", *settings) == 0
    result = json.loads((tmp_path / "fedfr-table1-smoke" / "result.json").read_text())
    assert (result["run"]["pretrain"]["rounds"], result["run"]["method"]["hard"]) == (2, 0.9)


def test_seeds_of_two_machines_are_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeds 0 and 1 measured apart, in either order, are what they are measured together; anything odd is refused."""

    def run(name: str, *more: str) -> int:
        rows = ["reproduce", "fedfr-table1", "--scale", "smoke", "--rows", "pre-training", "--quiet"]
        return main([*rows, "--out", str(tmp_path / name), *more])

    def told(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / name / "fedfr-table1-smoke" / "result.json").read_text())
        return {part: found[part] for part in ("seeds", "rows", "columns", "run")}

    other = str(tmp_path / "other" / "fedfr-table1-smoke" / "result.json")
    assert run("together", "--seeds", "0", "1") == 0
    assert run("other", "--seeds", "1") == 0
    assert run("here", "--seeds", "0", "--beside", other) == 0
    assert told("here") == told("together")
    assert len(told("here")["rows"][0]["ours"]["1:1 TAR@1e-3"]) == 2
    capsys.readouterr()
    assert run("again", "--seeds", "1", "--beside", other) != 0
    assert "has seeds [1] already" in capsys.readouterr().err
    assert run("again", "--seeds", "0", "--beside", other, "--set", "training.rate=0.1") != 0
    assert "another table, scale or setting" in capsys.readouterr().err
    assert run("again", "--seeds", "0", "--beside", other + "x") != 0
    assert "--beside wants a result.json" in capsys.readouterr().err
    assert main(["reproduce", "fedfr-table1", "--scale", "smoke", "--seeds", "0", "--beside", other]) != 0
    assert "has other rows" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_public_images_are_counted() -> None:
    """Two clients with 4 and 6 images, 10 public ones, two passes: 3 and 0 public images a pass of 20 in all."""
    faces = noise_faces(20, 1, seed=0)
    held = FaceSet(faces.images, torch.tensor([0, 4, 10, 20]))
    clients = Population(held, ((0,), (1,)))
    ledger = [{"client": 0, "images": 2 * (4 + 3)}, {"client": 1, "images": 2 * 6}]
    assert bench.public_used(clients, FaceView.of(held, (2,)), 2, ledger) == pytest.approx(3 / 20)


def test_a_row_may_train_centrally_in_a_way_of_its_own() -> None:
    run = ARTEFACTS["fedfv-table3"].scales["smoke"].run
    plain, longer = Row("central", central=True), Row("central", central=True, plan=Central(rounds=7))
    assert plain.of(run).central == run.central and longer.of(run).central.rounds == 7
    assert plain.fingerprint(run) != longer.fingerprint(run)
