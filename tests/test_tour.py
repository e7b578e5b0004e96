"""Documents that cannot rot: what they name exists, links lead somewhere, and what they tell people to type works."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import re
import shlex
from pathlib import Path

import pytest

from coalface import cli, config

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "tour.md"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def stops() -> list[tuple[str, str]]:
    """The files of the tour, each with its paragraph."""
    sections = re.split(r"^## \d\. \[`(.+?)`\]\(.+?\)$", TOUR.read_text(), flags=re.MULTILINE)
    return list(zip(sections[1::2], sections[2::2], strict=True))


def commands() -> list[tuple[str, str]]:
    """Every line in a fenced block that starts with ``coalface``, and where it stands."""
    blocks = [(page.name, block) for page in PAGES for block in FENCED.findall(page.read_text())]
    return [(name, line) for name, block in blocks for line in block.splitlines() if line.startswith("coalface ")]


def has(module: object, path: str) -> bool:
    """Whether ``Name.method`` or ``Name.field`` is in the module."""
    found: object | None = module
    for name in path.split("."):
        fields = {field.name for field in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
        if name not in fields and not hasattr(found, name):
            return False
        found = getattr(found, name, None)
    return True


def test_the_tour_has_six_files() -> None:
    files = [file for file, _ in stops()]
    assert len(set(files)) == len(files) == 6
    assert all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize(("file", "text"), stops(), ids=lambda part: part.split("\n")[0][:40])
def test_every_name_on_the_tour_exists(file: str, text: str) -> None:
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    names = re.findall(r"`([^`]+)`", text)
    assert len(names) >= 3
    assert not [name for name in names if not has(module, name)]


def test_a_name_that_is_not_there_is_found_out() -> None:
    module = importlib.import_module("coalface.federation")
    assert has(module, "Federation.round") and has(module, "Rounds.quorum")
    assert not has(module, "Federation.square") and not has(module, "Nobody")


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text()))
    local = [target.partition("#")[0] for target in targets if not target.startswith(("https://", "#"))]
    assert not [target for target in local if not (page.parent / target).exists()]


def test_there_are_commands_to_check() -> None:
    assert {line.split()[1] for _, line in commands()} == {
        "demo", "run", "resume", "eval", "list", "pairs", "audit", "reproduce", "keys", "serve", "join",
        "ijb",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "line"), commands(), ids=lambda part: part[:60])
def test_commands_are_understood(name: str, line: str) -> None:
    """Verbs, options, methods and settings exist, and the settings take these values."""
    options = cli._parser().parse_args(shlex.split(line, comments=True)[1:])
    if options.verb is cli.run and not options.what.endswith(".json"):
        config.override(cli._named_run(options.what), options.set)


def test_the_arithmetic_is_right() -> None:
    """The example of docs/protocols.md, as Python sees it."""
    result = doctest.testfile(str(ROOT / "docs" / "protocols.md"), module_relative=False)
    assert result.attempted >= 8 and result.failed == 0
