"""The network of an attack detector, with one output."""

from __future__ import annotations

from typing import Any

from coalface.models import complete_settings
from coalface.models.net import Net
from coalface.numerics import Numerics


def detector(name: str, size: int, width: int, numerics: Numerics | None = None) -> Net:
    """A network by its name, for images of this size; ``width`` channels in its first layer, where it has a choice."""
    wanted = {"outputs": 1, "embedding": 1, "size": size, "width": width}
    known = complete_settings(name, {})
    settings: dict[str, Any] = {key: value for key, value in wanted.items() if key in known}
    return Net(name, numerics, **settings)
