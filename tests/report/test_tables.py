from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from coalface.report import tables


def test_a_row_per_measure(result: dict[str, Any]) -> None:
    rows = tables.summary_table(result)
    assert [row[0] for row in rows] == [
        "accuracy",
        "TAR@FMR 1e-2",
        "TAR@FMR 1e-3",
        "TAR@FMR 1e-6 (unreliable)",
        "EER ↓",
        "AUC",
    ]
    assert rows[2][1:] == [
        "0.4100 [0.3800–0.4300]",
        "0.6300 [0.6000–0.6500]",
        "0.6600 [0.6300–0.6800]",
        "88 %",
        "3,000 genuine / 1.9 M impostor pairs",
    ]
    assert rows[4][1:5] == ["0.2000", "0.1300", "0.1200", "–"]  # one end of the interval is NaN: no interval
    assert all(len(row) == len(tables.summary_header(result)) for row in rows)


def test_missing_models_are_dashes(result: dict[str, Any]) -> None:
    result["metrics"]["central"] = None
    assert {row[3] for row in tables.summary_table(result)} == {"–"}
    assert tables.summary_table({}) == []


def test_markdown() -> None:
    assert tables.markdown_table([["a|b", "1"], ["c", "22222"]], ["x", "y"]) == "\n".join(
        [
            "| x    | y     |",
            "|------|-------|",
            "| a\\|b | 1     |",
            "| c    | 22222 |",
        ]
    )


def test_plain_text_without_rich(
    result: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, module, None)
    tables.print_table(result)
    tables.print_disclosure(result["disclosure"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Synthetic faces, one identity per client"
    assert lines[2] == "-" * len(lines[2])
    rows = [line for line in lines if line.startswith(("TAR@FMR 1e-2 ", "TAR@FMR 1e-3 "))]
    assert rows[0].index("[") == rows[1].index("[")  # aligned
    assert any("617 kB" in line and "12.3 MB" in line for line in lines)
    assert any("88 % of the gain recovered" in line for line in lines)
    assert [line.split()[-4:-3] for line in lines if " REVEALED " in line] != []


def test_rich_shows_names_as_they_are(result: dict[str, Any]) -> None:
    console_module = pytest.importorskip("rich.console")
    out = io.StringIO()
    result["method"] = "[bold]x[/bold]"
    console = console_module.Console(file=out, width=160)
    tables.print_table(result, console)
    tables.print_disclosure(result["disclosure"], console)
    text = out.getvalue()
    assert "[bold]x[/bold]" in text
    assert "0.6300 [0.6000–0.6500]" in text
    assert "REVEALED: the server sees each client's own value" in text


def test_disclosure_says_who_sees_what(result: dict[str, Any]) -> None:
    assert tables.disclosure_table(result["disclosure"]) == [
        ["once, up", "mean_feature", "REVEALED", "where it starts", "Tensor"],
        ["each round, up", "backbone", "summed", "change of the backbone", "Weights"],
        ["each round, up", "class_embedding", "REVEALED", "a face template", "Tensor"],
        ["each round, up", "images", "count", "how many images", "int"],
        ["each round, down", "head", "the client", "all class embeddings", "Tensor"],
    ]
