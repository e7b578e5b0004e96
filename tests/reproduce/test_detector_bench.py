"""The bench of attack detectors: trained once, tested on every domain that is not among their centres."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coalface.algorithms.fedpad import FedPAD
from coalface.cli import main
from coalface.data.attacks import SPLITS
from coalface.data.recordings import ATTACKS
from coalface.reproduce import ARTEFACTS, detector_tables
from coalface.reproduce.detectors import DetectorArtefact, Row
from coalface.reproduce.fedgpad import FIVE, SCALES, one_step_a_round
from coalface.reproduce.real_stills import Stills
from coalface.stages import Stages


def reproduced(name: str, out: Path, *more: str) -> int:
    return main(["reproduce", name, "--scale", "smoke", "--seeds", "0", "--out", str(out), "--quiet", *more])


def test_tables_share_detectors_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedPAD on I, C and M stands in Table III with users of O, and in Table IX with users of S."""
    assert reproduced("fedgpad-table3", tmp_path, "--rows", "FedPAD, I&C&M → O") == 0
    measured = json.loads((tmp_path / "fedgpad-smoke" / "seed0" / "fedpad-i-c-m" / "measured.json").read_text())
    told = measured["as_sent"]["S"]
    assert list(measured["as_sent"]) == list(measured["statistics_at_home"]) == ["O", "S"] and list(told["dev"]) == [
        "I",
        "C",
        "M",
    ]
    assert told["tested"]["frame"]["threshold_origin"] == "EER on frames of dev of I&C&M"

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Stages, "stage", refuse)
    assert reproduced("fedgpad-table9", tmp_path, "--rows", "FedPAD, I&C&M → S") == 0
    result = json.loads((tmp_path / "fedgpad-table9-smoke" / "result.json").read_text())
    assert result["rows"][0]["ours"]["hter"] == [told["tested"]["frame"]["hter"]]
    assert reproduced("fedgpad-table3", tmp_path, "--rows", "FedPAD at home, I&C&M → O") == 0  # the same detector


def test_a_detector_of_other_settings_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduced("fedgpad-table10", tmp_path, "--rows", "Single, I") == 0
    monkeypatch.setattr("coalface.config.DetectionRun.sha256", lambda run: "other")
    assert reproduced("fedgpad-table10", tmp_path, "--rows", "Single, I") == 2
    assert "was measured with other settings" in capsys.readouterr().err


def test_a_row_trains_on_its_centres_and_kinds_whoever_the_users_are() -> None:
    to_o, to_s = (Row("FedPAD", FedPAD(), ("I", "C", "M"), user).of(SCALES["cpu"], FIVE) for user in ("O", "S"))
    assert to_o == to_s and to_o.data.sources() == ("I", "C", "M")
    narrow = Row("FedPAD", FedPAD(), ("I", "O"), "M", kinds=("print", "replay"))
    assert narrow.label == "FedPAD, I (print)&O (replay) → M"
    assert narrow.of(SCALES["cpu"], FIVE).data.kinds == ("print", "replay")


def test_the_releases_round_is_one_step() -> None:
    """30 subjects × 2 videos × 2 frames, live and attack, are 240 frames: 8 batches of 32, 18 times over."""
    run = one_step_a_round(SCALES["cpu"])
    assert run.rounds.rounds == 144 and run.training.images_per_round == 32 and run.training.batch == 0
    assert run.training.rate == 0.01


def test_longer_rows_differ_in_their_rounds_alone() -> None:
    """18 rounds are one pass of FedMA over its layers."""
    artefact = ARTEFACTS["fedgpad-why"]
    assert isinstance(artefact, DetectorArtefact)
    rows = {row.label: row for row in artefact.table}
    once, often = (rows[f"FedMA{words}, O&C&I → M"].of(SCALES["cpu"], FIVE) for words in ("", ", four passes"))
    assert (once.rounds.rounds, often.rounds.rounds, often.rounds.checkpoint_every) == (18, 72, 72)
    assert replace(often, rounds=once.rounds) == once


def test_wide_networks_of_fedgpad_have_a_lower_rate() -> None:
    artefact = ARTEFACTS["fedgpad-why"]
    assert isinstance(artefact, DetectorArtefact)
    rates = {row.name: row.of(SCALES["paper"], FIVE).training.rate for row in artefact.table}
    assert rates["FedGPAD, its losses about equal"] == pytest.approx(1e-4) and rates["FedMA"] == pytest.approx(1e-3)


def test_the_papers_rows_are_as_printed() -> None:
    def printed(name: str) -> dict[str, tuple[float, ...]]:
        artefact = ARTEFACTS[name]
        assert isinstance(artefact, DetectorArtefact)
        return {row.label: row.printed for row in artefact.table}

    third = printed("fedgpad-table3")
    assert third["Single, I → M"] == (49.05, 20.04, 85.89) and third["All, I&C&M → O"] == (27.22, 25.91, 82.21)
    singles = [numbers[0] for label, numbers in third.items() if label.startswith("Single")]
    assert len(singles) == 12 and sum(singles) / 12 == pytest.approx(40.44, abs=0.005)  # the paper prints 36.43
    assert printed("fedgpad-table5")["FedMA, O&C&M → I"] == (24.82, 26.75, 73.05)
    assert printed("fedgpad-table8")["FedGPAD, O&M&I&S → C"] == (24.20, 23.51, 85.34)
    assert printed("fedgpad-table9")["FedPAD, I&C&M&O → S"] == (12.45, 8.98, 97.18)


def test_means_over_users_by_hand() -> None:
    """10 and 30 % are 20 on the mean, and the seeds 20 ± 0 and 40 make 30 ± 14.1."""

    def row(method: str, user: str, hter: list[float]) -> dict[str, object]:
        rates = dict.fromkeys(("hter", "eer", "auc"), hter)
        return {"method": method, "user": user, "printed": [5.0, 6.0, 7.0], "ours": rates, "by_video": rates}

    rows = [row("a", "M", [0.1, 0.3]), row("a", "I", [0.3, 0.5])]
    assert detector_tables._means({"rows": rows}) == [
        ["a", "2", *["30.0 ± 14.1"] * 3, "5.00", "6.00", "7.00", "30.0 ± 14.1", "–", "–"]
    ]
    theirs = [row("FedGPAD", "M", [0.0, 0.3]), row("FedGPAD", "I", [0.2, 0.4])]  # 10, 0, 10 and 10 points less
    assert [line[-2] for line in detector_tables._means({"rows": rows + theirs})] == ["+7.5 ± 2.5 (3 of 4)", "–"]
    home = [{**one, "method": f"{one['method']} at home"} for one in rows + theirs]  # like is held against like
    over = [line[-2:] for line in detector_tables._means({"rows": theirs + home})]
    assert over == [["–", "–"], ["+7.5 ± 2.5 (3 of 4)"] * 2, ["+0.0 ± 0.0 (0 of 4)", "–"]]
    assert detector_tables._means({"rows": [*rows, row("b", "M", [0.1, 0.2])]}) == []  # b has other users


def test_stills_need_their_packs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "real-stills", "--scale", "cpu", "--out", str(tmp_path)]) == 2
    assert "add --data FOLDER" in capsys.readouterr().err


def test_stills_are_read_by_set_and_split(tmp_path: Path) -> None:
    """Twelve people of N, three of them test: of nine, a quarter is dev. L has nobody, so every still is a person."""
    pillow = pytest.importorskip("PIL.Image")
    for folder, people in (("client_train", range(9)), ("imposter_train", range(9)), ("client_test", range(9, 12))):
        for person in people:
            _still(pillow, tmp_path / f"cache/nuaa128_every4th/nuaa128/{folder}/{person:04}/{person}_00_01_1.jpg")
    _still(pillow, tmp_path / "cache/nuaa128_every4th/nuaa128/imposter_test/0009/9_01_03_1.jpg")
    for kind in ("real", "fake"):
        for number in range(10):
            _still(pillow, tmp_path / f"cache/lcc_like128_balanced/lcc_like128/{kind}/{number}.jpg")
    for pack in ("nuaa128_every4th", "lcc_like128_balanced"):
        (tmp_path / "cache" / f"{pack}.done").touch()
    stills = Stills(tmp_path, tmp_path / "cache")
    read = {(name, split): stills(name, split, 0, 0, 0, 32, 0, "cpu") for name in "NL" for split in SPLITS}
    assert {key: len(held) for key, held in read.items()} == {
        ("N", "train"): 14, ("N", "dev"): 4, ("N", "test"): 4, ("L", "train"): 8, ("L", "dev"): 2, ("L", "test"): 10,
    }  # fmt: skip
    assert {ATTACKS[kind] for kind in read["L", "train"].attack.tolist()} == {"live", "unknown"}


def _still(pillow: object, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pillow.new("RGB", (16, 16), (120, 90, 60)).save(path)  # type: ignore[attr-defined]
