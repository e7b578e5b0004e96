"""``coalface ijb`` on the toy of tests/protocols/test_templates.py: greys say at how many degrees images lie."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from coalface.cli import main

DEGREES = {1: 0, 2: 90, 3: 180, 4: 45, 5: 270, 11: 5, 12: 80, 13: 100, 14: 50, 15: 200, 16: 265}
FIRST = {1: 20, 2: 10, 3: 30}
SECOND = {4: 40, 5: 50}
PROBES = {11: 20, 12: 10, 13: 20, 14: 40, 15: 30, 16: 50}


def by_grey(net: object, weights: object, images: Tensor, head: object = None) -> Tensor:
    """Unit vectors in the plane, five degrees for each step of grey."""
    radians = images[:, 0, 0, 0].double() * 5 * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], dim=1)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    image = pytest.importorskip("PIL.Image")
    for template, degrees in DEGREES.items():
        image.new("RGB", (32, 32), (degrees // 5,) * 3).save(tmp_path / f"{template}.png")
    (tmp_path / "media.txt").write_text("".join(f"{number}.png {number} {number}\n" for number in DEGREES))
    for name, people in (("g1", FIRST), ("g2", SECOND), ("probes", PROBES)):
        rows = "".join(f"{template},{subject}\n" for template, subject in people.items())
        (tmp_path / f"{name}.csv").write_text(f"TEMPLATE_ID,SUBJECT_ID\n{rows}")
    (tmp_path / "pairs.txt").write_text("1 11 1\n2 12 1\n1 14 0\n2 13 0\n4 12 0\n5 15 0\n")
    monkeypatch.setattr("coalface.verbs.ijb.embed", by_grey)
    return tmp_path


def arguments(run: Path, toy: Path, *more: str) -> list[str]:
    return ["ijb", str(run), "--images", str(toy), "--media", str(toy / "media.txt"), "--quiet", *more]


def test_one_to_one_and_one_to_many_by_hand(finished: Path, toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1:1: genuine pairs 5° and 10° apart, impostors 10°, 35°, 50° and 70°: one may pass, so both are accepted.

    1:N: three quarters in the first gallery and all in the second, as worked out in test_templates.
    """
    lists = [f"{toy}/{name}" for name in ("g1.csv", "g2.csv")]
    asked = ["--compare", f"{toy}/pairs.txt", "--fmr", "0.25", "--gallery", *lists, "--probes", f"{toy}/probes.csv"]
    assert main(arguments(finished, toy, *asked, "--fpir", "0.5", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    one = found["verification"]
    assert (one["at_fmr"][0]["tar"], one["genuine_pairs"], one["impostor_pairs"]) == (1.0, 2, 4)
    assert one["at_fmr"][0]["threshold"] == pytest.approx(math.cos(math.radians(35)))
    assert found["identification"]["tpir"] == [0.875]
    assert [gallery["rank_one"] for gallery in found["identification"]["galleries"]] == [0.75, 1.0]
    assert main(arguments(finished, toy, *asked, "--fpir", "0.5")) == 0
    text = capsys.readouterr().out
    assert "1:1  TAR@FMR 0.25 = 1.0000" in text and "1:N  TPIR@FPIR 0.5 = 0.8750  (by gallery: 0.7500, 1.0000)" in text


def test_what_is_missing_is_named(finished: Path, toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(finished, toy)) == 2
    assert "add --compare FILE for 1:1" in capsys.readouterr().err
    assert main(arguments(finished, toy, "--gallery", str(toy / "g1.csv"))) == 2
    assert "both --gallery and --probes" in capsys.readouterr().err


def test_lists_are_read_before_images(
    finished: Path, toy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coalface.verbs.ijb.read_images", lambda *_: pytest.fail("that may take hours"))
    for asked in (["--compare", "MISSING"], ["--gallery", f"{toy}/g1.csv", "--probes", "MISSING"]):
        assert main(arguments(finished, toy, *asked)) == 2
        assert "'MISSING'" in capsys.readouterr().err


def test_images_are_counted_as_they_are_read(finished: Path, toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [argument for argument in arguments(finished, toy) if argument != "--quiet"]
    assert main([*shown, "--compare", f"{toy}/pairs.txt", "--fmr", "0.25"]) == 0
    assert "embedding 11/11" in capsys.readouterr().err
