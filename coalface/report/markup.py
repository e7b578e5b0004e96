"""The few pieces of HTML that every section is made of; text goes in plain and comes out escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def section(title: str, body: str, words: str = "") -> str:
    """A section; ``body`` is markup, ``title`` and ``words`` are text."""
    return f"<section><h2>{escape(title)}</h2>{note(words)}{body}</section>"


def note(words: str) -> str:
    """A remark in soft ink."""
    return f'<p class="note">{escape(words)}</p>' if words else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], style: str = "") -> str:
    """A table of plain text; the first cell of a row is its heading."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>" for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    return f'<div class="wide"><table class="{style}">{top}<tbody>{body}</tbody></table></div>'
