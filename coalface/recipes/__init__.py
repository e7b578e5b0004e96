"""Complete runs, each a function; the table gives them their names on the command line."""

from __future__ import annotations

from collections.abc import Callable

from coalface.config import Run
from coalface.recipes.demo import demo

RECIPES: dict[str, Callable[[], Run]] = {
    "demo": demo,
}
