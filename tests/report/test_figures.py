from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch

from coalface.report import drawing, figures
from coalface.report.reading import Rate

SVG = "{http://www.w3.org/2000/svg}"
Scores = dict[str, tuple[torch.Tensor, torch.Tensor]]


def words(svg: str) -> list[str]:
    """The texts of an SVG; raises where it is not one."""
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_curve_shows_both_ends_and_void_rounds() -> None:
    start, central = Rate("tar@0.001", "TAR", 0.4, 0.35, 0.45), Rate("tar@0.001", "TAR", 0.7)
    figure = drawing.draw_curve([(2, 0.5), (4, 0.6)], "TAR", "fedavg", start, central, void=[3, 3])
    [axes] = figure.axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert drawn["fedavg"] == [[0, 0.4], [2, 0.5], [4, 0.6]]  # round 0 is the start
    assert [y for _, y in drawn["start"]] == [0.4, 0.4]
    assert [y for _, y in drawn["central"]] == [0.7, 0.7]
    assert [x for x, _ in drawn["void round"]] == [3]
    assert {"fedavg", "start", "central", "void round", "round", "TAR"} <= set(words(figures.svg(figure)))


def test_curve_of_one_evaluation_and_no_ends() -> None:
    assert "accuracy" in words(figures.curve([(20, 0.9)], "accuracy", "fedavg", None, None))


def test_det_and_roc_are_thinned_and_logarithmic(scores: Scores) -> None:
    det, roc = drawing.draw_det(scores, "fedavg/shared-head"), drawing.draw_roc(scores, "fedavg/shared-head")
    for figure in (det, roc):
        [axes] = figure.axes
        assert axes.get_xscale() == "log"
        assert axes.get_xlim() == (1 / 3000, 1)
        assert [line.get_label() for line in axes.lines] == ["start", "fedavg/shared-head", "central"]
        assert all(0 < len(line.get_xdata()) <= drawing.CURVE_POINTS for line in axes.lines)
        assert [line.get_color() for line in axes.lines] == [drawing.START, drawing.METHOD, drawing.CENTRAL]
    assert det.axes[0].get_yscale() == "log"
    assert {"FMR", "FNMR", "1e-2", "under 10 false matches"} <= set(words(figures.svg(det)))


def test_det_without_errors_says_so() -> None:
    apart = {"start": (torch.tensor([0.0, 0.1]), torch.tensor([0.8, 0.9]))}
    assert "start (no errors)" in words(figures.det(apart, "fedavg"))


def test_histogram_has_a_panel_per_model_and_a_threshold(scores: Scores) -> None:
    two = {name: scores[name] for name in ("start", "fedavg/shared-head")}
    thresholds = {"start": Rate("tar@0.001", "TAR@FMR 1e-3", 0.4, threshold=0.31)}
    figure = drawing.draw_histogram(two, "fedavg/shared-head", thresholds)
    assert len(figure.axes) == 2
    assert figure.axes[0].lines[0].get_xdata() == [0.31, 0.31]
    texts = words(figures.svg(figure))
    assert texts.count("genuine") == texts.count("impostor") == 2
    assert "threshold, FMR 1e-3" in texts
    alone = drawing.draw_histogram(two, "fedavg/shared-head", thresholds, only="start")
    assert [axes.get_xlim() for axes in alone.axes] == [figure.axes[0].get_xlim()]
    assert [axes.get_ylim() for axes in alone.axes] == [figure.axes[0].get_ylim()]


def test_density_integrates_to_one() -> None:
    density, edges = drawing._density(torch.linspace(-0.5, 0.9, 1000))
    assert sum(d * (b - a) for d, a, b in zip(density, edges, edges[1:], strict=False)) == pytest.approx(1.0)


def test_lines_are_thinned_and_keep_the_last_round() -> None:
    points = [(n, n * 0.5) for n in range(1, 2002)]
    [axes] = drawing.draw_lines({"loss": points}).axes
    kept = axes.lines[0].get_xydata().tolist()
    assert len(kept) <= drawing.LINE_POINTS + 1
    assert (kept[0], kept[-1]) == ([1.0, 0.5], [2001.0, 1000.5])
    assert {"a", "b", "both"} <= set(words(figures.lines({"a": points[:3], "b": points[:2]}, "both")))


def test_text_is_text(scores: Scores) -> None:
    name = "<b>$\\frac{1}{2}$ & co"
    assert name in words(figures.roc({name: scores["start"]}, name))


def test_the_same_numbers_give_the_same_svg(scores: Scores) -> None:
    first = figures.det(scores, "fedavg")
    assert first == figures.det(scores, "fedavg")
    assert "<metadata" not in first  # nothing about who made it, or when


def test_inlined_has_ids_of_its_own(scores: Scores) -> None:
    inside = figures.inlined(figures.det(scores, "fedavg"), "f7")
    root = ET.fromstring(inside.replace("xlink:href", "href"))
    ids = {node.get("id") for node in root.iter()} - {None}
    assert ids and all(str(name).startswith("f7-") for name in ids)
    used = {node.get("href", "")[1:] for node in root.iter() if node.get("href")}
    assert used and used <= ids
    assert "http" not in inside
    assert "<style" not in inside  # it would hold for the whole page


def test_save(scores: Scores, tmp_path: Path) -> None:
    figure = drawing.draw_det(scores, "fedavg")
    assert figures.save(figure, tmp_path / "a" / "det.png").read_bytes().startswith(b"\x89PNG")
    assert words(figures.save(figure, tmp_path / "det.svg").read_text(encoding="utf-8"))
    assert words(figures.save(figures.svg(figure), tmp_path / "text.svg").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="give the figure itself"):
        figures.save(figures.svg(figure), tmp_path / "det.png")
    with pytest.raises(ValueError, match=r"det.jpg: a picture is saved as .svg or .png"):
        figures.save(figure, tmp_path / "det.jpg")


def test_without_matplotlib_the_remedy_is_named(scores: Scores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not figures.available()
    with pytest.raises(ImportError, match=r"pip install 'coalface\[app\]'"):
        figures.det(scores, "fedavg")
