"""The report: one HTML file that needs nothing else. No requests, no scripts; it opens anywhere, for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor

from coalface.report import disclosed, evidence, figures, protection
from coalface.report.look import STYLE, THEMED
from coalface.store import write_atomically


@dataclass(frozen=True)
class PageContent:
    """Everything that a page is made of."""

    result: Mapping[str, Any]  # result.json
    rounds: Sequence[Mapping[str, Any]] = ()  # rows of rounds.jsonl
    ledger: Sequence[Mapping[str, Any]] = ()  # rows of ledger.jsonl
    # (impostor, genuine) cosine scores of the test pairs, for "start", the method by its name, and "central"
    scores: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)
    faces: Tensor | None = field(default=None, repr=False)  # uint8 [rows, columns, 3, H, W], synthetic people only


def write_page(path: Path, content: PageContent) -> None:
    """Write the page in one step: readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(content).encode("utf-8"))


def page(content: PageContent) -> str:
    """The page as text."""
    pictures = Pictures(drawable=figures.available())
    result = content.result
    sections = [
        evidence.headline(result),
        evidence.summary(result),
        evidence.personal(result),
        evidence.by_round(result, content.rounds, pictures.add),
        evidence.error_curves(result, content.scores, pictures.add),
        evidence.similarity(result, content.scores, pictures.add),
        evidence.monitors(content.rounds, pictures.add),
        evidence.sample_faces(content.faces),
        disclosed.disclosure(result),
        protection.protection(result, content.rounds, pictures.add),
        disclosed.traffic(result, content.rounds, content.ledger),
        disclosed.speed(result),
        disclosed.run_again(result),
        pictures.missing_note(),
    ]
    return document(str(result.get("title") or result.get("method") or "coalface"), sections)


def document(title: str, sections: Sequence[str]) -> str:
    """A whole page of sections, which are markup; empty ones are left out."""
    # The policy makes the promise binding: a browser would refuse to load anything, whatever a name contains.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n" + "\n".join(filter(None, sections)) + "\n</main>\n"
        "</body>\n</html>\n"
    )


class Pictures:
    """Draws what can be drawn, and remembers what could not."""

    def __init__(self, drawable: bool) -> None:
        self._drawable = drawable
        self._drawn = 0
        self._missing: list[str] = []

    def add(self, name: str, caption: str, draw: evidence.Draw) -> str:
        """The figure with its caption; nothing, and a word in the note at the end, where matplotlib is missing."""
        if not self._drawable:
            self._missing.append(name)
            return ""
        self._drawn += 1
        svg = figures.inlined(draw(), prefix=f"f{self._drawn}")
        for colour, variable in THEMED.items():
            svg = svg.replace(colour, variable)
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(name)}" ', 1)
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return f"<figure>{svg}{below}</figure>"

    def missing_note(self) -> str:
        """Which pictures are missing, and the remedy; empty when all are there."""
        if not self._missing:
            return ""
        named = escape(", ".join(dict.fromkeys(self._missing)))
        return f'<p class="note">Not drawn: {named}; {escape(figures.REMEDY)}, then write the page again.</p>'
