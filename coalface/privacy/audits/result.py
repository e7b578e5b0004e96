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
    chance_high: float | None = None  # upper end of chance's own interval, where it was measured on few strangers

    @property
    def at_chance(self) -> bool:
        """Whether luck may explain the success: its interval and that of chance touch."""
        return self.interval.low <= (self.chance if self.chance_high is None else self.chance_high)

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
    strangers: int = 0,
    pictures: Tensor | None = None,
) -> AuditResult:
    """The result of an attack that succeeded against so many of these people.

    ``strangers`` is how many people chance was measured on; 0: it is known exactly.
    """
    high = wilson(round(chance * strangers), strangers).high if strangers else None
    found = {"people": people, **({"strangers": strangers} if strangers else {}), **details}
    share, interval = successes / people, wilson(successes, people)
    return AuditResult(attack, against, share, chance, interval, found, view, pictures, high)
