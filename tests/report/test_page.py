from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface.report.page import PageContent, page, write_page

VOID_TAGS = {"meta", "img"}
LIMIT = 2_000_000


class Balance(HTMLParser):
    """Raises where a tag closes another than the last one opened; collects ids and readable text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID_TAGS:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data + " "


def read(text: str) -> Balance:
    """The page, held to what every page must be."""
    parsed = Balance()
    parsed.feed(text)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert not {"script", "link", "iframe", "object", "base"} & set(parsed.tags)
    assert not re.search(r"https?:|@import|url\((?!#)|[\"']//", text)
    assert all(source.startswith("data:image/png") for source in re.findall(r'src="([^"]*)', text))
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)', text))
    assert not re.search(r"\b(nan|NaN|inf|None)\b", parsed.text)
    return parsed


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if matplotlib were not installed; a page is then quick to make, too."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_sections_in_their_order(content: PageContent, tmp_path: Path) -> None:
    write_page(tmp_path / "deep" / "report.html", content)
    text = (tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    said = read(text).text
    assert (
        "fedavg/shared-head lifted TAR@FMR 1e-3 from 0.41 to 0.63; central training reaches 0.66: "
        "88 % of the gain recovered." in said
    )
    titles = [
        "Between the two ends",
        "Round by round",
        "Errors at every threshold",
        "How alike pairs look",
        "Losses and collapse monitors",
        "Sample faces",
        "What leaves a client",
        "Traffic and outcomes",
        "Speed",
        "Run it again",
    ]
    assert re.findall(r"<h2>(.*?)</h2>", text) == titles
    assert len(text) < LIMIT
    assert text.count("<svg") == 2 + 2 + 2 + 2  # curves; DET and ROC; histograms; loss and mean cosine
    assert text.count("data:image/png") == 1


def test_speed_stands_beside_that_of_central_training(content: PageContent, no_pictures: None) -> None:
    said = read(page(content)).text
    assert "stacked, one step for many clients" in said
    assert "1,834" in said and "2,038" in said and "90 %" in said  # images a second, central, and their ratio
    assert "share of a round outside local training 7 %" in " ".join(said.split())
    assert "peak memory of the process 512 MB" in " ".join(said.split()) and "of the GPU" not in said


def test_numbers_stand_where_a_reader_looks(content: PageContent, no_pictures: None) -> None:
    said = read(page(content)).text
    for words in (
        "0.6300 [0.6000–0.6500]",
        "6,000 pairs",
        "3,000 genuine / 1.9 M impostor pairs",
        "under ten false matches: unreliable",
        "617 kB",
        "12.3 MB",
        "2.0 GB",
        "950 B",
        "1234567",
        "1,834",
        "pre-training 1 min 05 s, federated rounds 8.25 s",
        "torch 2.13.0",
        "9f" * 32,
        "4 rounds counted; 1 void",
    ):
        assert words in re.sub(r"\s+", " ", said), words


def test_revealed_rows_are_marked(content: PageContent, result: dict[str, Any], no_pictures: None) -> None:
    text = page(content)
    marked = re.findall(r'<tr class="revealed"><th><code>(\w+)', text)
    assert marked == ["mean_feature", "class_embedding"]
    assert "Revealed to the server, client by client: mean_feature, class_embedding." in text
    assert "all class embeddings" in text  # what is broadcast
    result["disclosure"] = {"up": [result["disclosure"]["up"][0]]}
    text = page(replace(content, result=result))
    assert 'class="revealed"' not in text
    assert "Nothing is revealed client by client" in text


def test_outcomes_are_counted(content: PageContent, no_pictures: None) -> None:
    said = re.sub(r"\s+", " ", read(page(content)).text)
    for line in (
        "counted 4 16.0 %",  # of 25 rows, five counted, one of these in the void attempt
        "in a void round 1 4.0 %",
        "late 5 20.0 %",
        "dropped out 5 20.0 %",
        "refused: 100 bytes, expected 5000 5 20.0 % numbers vary",
        "refused: head is not finite 5 20.0 %",
    ):
        assert line in said, line


def test_without_central_training(content: PageContent, result: dict[str, Any]) -> None:
    result["metrics"]["central"] = None
    result["gain_recovered"] = {"tar@0.001": None}
    scores = {name: pair for name, pair in content.scores.items() if name != "central"}
    said = read(page(replace(content, result=result, scores=scores))).text
    assert "from 0.41 to 0.63; central training was not run." in said


def test_little_is_known(content: PageContent, no_pictures: None) -> None:
    said = read(page(PageContent({"method": "fedavg"}))).text
    assert "fedavg was not measured." in said
    read(page(PageContent({})))
    unmeasured = PageContent(
        {"metrics": {"start": {}, "method": {"eer": float("nan")}, "central": None}}, content.rounds
    )
    read(page(unmeasured))


def test_every_word_is_escaped(content: PageContent, result: dict[str, Any]) -> None:
    evil = "<script>alert('$x$ & \"y\"')</script>"
    for key in ("method", "title", "model", "command", "engine", "hardware", "commit", "date", "anything_else"):
        result[key] = evil
    result["versions"] = {evil: evil}
    result["disclosure"] = {
        part: [{"field": evil, "seen": evil, "what": evil, "type": evil}] for part in ("up", "down", "once")
    }
    rounds = [row | {"losses": {evil: 1.0}, "scores": {evil: 1.0}} for row in content.rounds]
    ledger = [row | {"outcome": f"refused: {evil}"} for row in content.ledger]
    scores = {"start": content.scores["start"], evil: content.scores["fedavg/shared-head"]}
    text = page(replace(content, result=result, rounds=rounds, ledger=ledger, scores=scores))
    assert evil in read(text).text  # readable, and not a tag
    assert "<script" not in text


def test_without_matplotlib_the_tables_stay(content: PageContent, no_pictures: None) -> None:
    text = page(content)
    said = read(text).text
    assert "<svg" not in text
    assert said.count("Not drawn:") == said.count("pip install 'coalface[app]'") == 1
    for name in ("TAR@FMR 1e-3 by round", "DET", "ROC", "similarity of pairs", "mean cosine"):
        assert name in said
    assert "0.6300" in said
    assert "data:image/png" in text  # faces need no library
    assert "Errors at every threshold" not in said  # no section without content


def test_a_page_of_a_million_scores_is_small(content: PageContent) -> None:
    generator = torch.Generator().manual_seed(0)
    million = torch.randn(1_000_000, generator=generator) * 0.1
    many = {**content.scores, "start": (million, content.scores["start"][1])}
    rounds = [
        {"round": n, "attempt": 0, "void": False, "counted": 3, "seconds": 1.0}
        | {"losses": {f"part {k}": 1 / n for k in range(20)}, "scores": {"tar@0.001": 0.5, "accuracy": 0.8}}
        for n in range(1, 3001)
    ]
    faces = torch.randint(0, 256, (8, 10, 3, 112, 112), dtype=torch.uint8, generator=generator)
    text = page(replace(content, scores=many, rounds=rounds, faces=faces))
    assert "The first 12 of 20 are drawn." in read(text).text
    assert len(text.encode()) < LIMIT


def test_faces_must_be_a_grid_of_colour_images(content: PageContent, no_pictures: None) -> None:
    with pytest.raises(ValueError, match=r"uint8 \[rows, columns, 3, H, W\], not torch.float32 \[2, 3, 8, 8\]"):
        page(replace(content, faces=torch.zeros(2, 3, 8, 8)))
