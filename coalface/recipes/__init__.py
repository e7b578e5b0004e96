"""Complete runs, each a function; the table gives them their names on the command line."""

from __future__ import annotations

from collections.abc import Callable

from coalface.config import DetectionRun, Run
from coalface.recipes.demo import demo
from coalface.recipes.detection import detection, fedgpad_paper, fedgpad_release

RECIPES: dict[str, Callable[[], Run | DetectionRun]] = {
    "demo": demo,
    "detection": detection,
    "fedgpad_paper": fedgpad_paper,
    "fedgpad_release": fedgpad_release,
}
