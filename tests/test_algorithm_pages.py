"""docs/algorithms: fixed sections, a table of what travels that is made from the types, and names that exist.

``python -m tests.test_algorithm_pages`` writes the tables anew, here and in the README.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from coalface.algorithms import METHODS
from coalface.experiment import disclosure
from coalface.report.tables import DISCLOSURE_HEADER, disclosure_table, markdown_table
from coalface.wire import TOLD_APART

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
SECTIONS = [
    "What it solves",
    "What leaves the client",
    "Equations → lines",
    "Deviations from the paper and the release",
    "Usage",
    "Logged values",
    "Results",
    "Limits",
]
TABLE = re.compile(r"<!-- what travels: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)
METHODS_TABLE = re.compile(r"<!-- methods -->\n(.*?)<!-- end -->", re.DOTALL)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def travels(name: str) -> str:
    return markdown_table(disclosure_table(disclosure(METHODS[name]())), DISCLOSURE_HEADER) + "\n"


def methods() -> str:
    """The README's table: every method, its line, and what the server sees of each client, or can work out."""
    rows = []
    for name, kind in METHODS.items():
        fields = disclosure(kind())
        leaving = (*fields["once"], *fields["up"])
        revealed = [field["what"] for field in leaving if field["seen"] == "REVEALED"]
        revealed += [f"told by sums: {field['what']}" for field in leaving if TOLD_APART in field["seen"]]
        page = f"[`{name}`](docs/algorithms/{name.split('/')[0]}.md)"
        rows.append([page, (kind.__doc__ or "").splitlines()[0], "; ".join(revealed) or "nothing"])
    return markdown_table(rows, ["method", "in one line", "REVEALED to the server, or told by its sums"]) + "\n"


def rewritten(text: str) -> str:
    """A page with every table as the types have it."""
    text = TABLE.sub(lambda m: f"<!-- what travels: {m[1]} -->\n{travels(m[1])}<!-- end -->", text)
    return METHODS_TABLE.sub(lambda m: f"<!-- methods -->\n{methods()}<!-- end -->", text)


def test_every_method_has_a_page() -> None:
    """The forms of a method share one: fedavg/shared-head is in fedavg.md, with a table of its own."""
    assert {name for page in PAGES for name, _ in TABLE.findall(page.read_text())} == set(METHODS)


def test_the_readme_says_what_the_types_say() -> None:
    text = README.read_text()
    assert TABLE.findall(text) and METHODS_TABLE.findall(text)
    assert text == rewritten(text), f"python -m tests.{Path(__file__).stem}"


@every_page
def test_sections_are_all_there_in_order(page: Path) -> None:
    assert re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE) == SECTIONS


@every_page
def test_the_table_is_made_from_the_types(page: Path) -> None:
    tables = TABLE.findall(page.read_text())
    assert tables
    for name, table in tables:
        assert name.split("/")[0] == page.stem
        assert table == travels(name), f"python -m tests.{Path(__file__).stem}"


@every_page
def test_what_it_points_at_exists(page: Path) -> None:
    """`coalface/file.py:Name.method` names something in that file."""
    pointers = re.findall(r"`(coalface/[\w/]+)\.py:([\w.]+)`", page.read_text())
    assert pointers
    for file, path in pointers:
        found = importlib.import_module(file.replace("/", "."))
        for name in path.split("."):
            known = {field.name for field in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
            assert name in known or hasattr(found, name), f"{file}.py has no {path}"
            found = getattr(found, name, None)  # type: ignore[assignment]


@every_page
def test_settings_that_it_names_exist(page: Path) -> None:
    text = page.read_text()
    names = {field.name for name, _ in TABLE.findall(text) for field in dataclasses.fields(METHODS[name])}  # type: ignore[arg-type]
    assert set(re.findall(r"method\.(\w+)=", text)) <= names


if __name__ == "__main__":
    for written in (*PAGES, README):
        written.write_text(rewritten(written.read_text()))
