"""What an audit found, in one form for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from coalface.metrics.intervals import Interval, wilson


@dataclass(frozen=True)
class AuditResult:
    """A share of people against whom an attack succeeded, beside the share that luck alone would have reached.

    The interval takes people as independent. They are not quite (one choir falls together), so it is a little narrow.
    """

    attack: str
    against: str
    success: float
    chance: float
    interval: Interval  # of success
    details: dict[str, Any] = field(default_factory=dict)
    view: str = "plain"  # how uploads were protected (`view.View`)
    pictures: Tensor | None = field(default=None, repr=False, compare=False)  # uint8 [people, (true, guess), 3, H, W]

    @property
    def at_chance(self) -> bool:
        """Whether luck explains the success: the interval reaches down to chance."""
        return self.interval.low <= self.chance

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON: everything but the pictures."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("interval", "pictures")}
        low, high, level = self.interval.low, self.interval.high, self.interval.level
        return {**plain, "interval": {"low": low, "high": high, "level": level}, "at_chance": self.at_chance}


def counted(
    attack: str,
    against: str,
    successes: int,
    people: int,
    chance: float,
    details: dict[str, Any],
    view: str = "plain",
    pictures: Tensor | None = None,
) -> AuditResult:
    """The result of an attack that succeeded against so many of these people."""
    interval = wilson(successes, people)
    found = {"people": people, **details}
    return AuditResult(attack, against, successes / people, chance, interval, found, view, pictures)
