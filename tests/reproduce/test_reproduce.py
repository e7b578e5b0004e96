from __future__ import annotations

import json
from pathlib import Path

import pytest

from coalface.cli import main
from coalface.reproduce import ARTEFACTS, writing
from coalface.reproduce.real_lfw import RealArtefact
from coalface.reproduce.real_stills import StillsArtefact
from coalface.stages import Stages

SYNTHETIC = [name for name, artefact in ARTEFACTS.items() if not isinstance(artefact, RealArtefact | StillsArtefact)]


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
    assert [row["label"] for row in result["rows"]] == [row.label for row in rows if _matches(row.label, wanted)]
    assert all(0 <= value <= 1 for row in result["rows"] for values in row["ours"].values() for value in values)
    assert {"hardware", "date", "commit", "versions"} <= result["made"][0].keys()
    if artefact.figures is not None:
        assert {file.suffix for file in folder.glob("*.*g")} == {".svg", ".png"}


def _matches(label: str, wanted: list[str]) -> bool:
    return any(text.lower() in label.lower() for text in wanted)


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


def test_a_row_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduced("fedfv-table1", tmp_path, "--rows", "FedTV") == 2
    assert "no row of fedfv-table1 is like FedTV" in capsys.readouterr().err


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
        for name in ("fedface-table1", "fedfv-table1", "fedfv-table2", "fedfv-table3")
        for row in ARTEFACTS[name].rows(ARTEFACTS[name].scales["paper"])
    }
    assert rows["FedFace"] == (99.28, 83.79, 88.21)
    assert rows["FedFV-500"] == (83.22, 66.83, 74.23)
    assert rows["FedFV(5)"] == (83.00, 66.52, 73.76)
    assert rows["FedUV-511"] == (81.60, 58.93, 68.63)


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


def test_gain_recovered_by_hand() -> None:
    """From 60 to 80 there are 20: a method at 75 has three quarters of them."""
    rows = [{"label": label, "ours": {"accuracy": [value]}} for label, value in (("s", 0.6), ("m", 0.75), ("c", 0.8))]
    result = {"columns": ["accuracy"], "rows": rows, "between": {"": ("s", "c")}}
    assert writing._gains(result) == {"s": "0.00", "m": "0.75", "c": "1.00"}
    assert writing._gains({**result, "between": {"": ("c", "s")}}) == {}  # nothing to gain
