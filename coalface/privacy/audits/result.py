"""What an audit found, in one form for all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

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

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return asdict(self)


def counted(
    attack: str, against: str, successes: int, people: int, chance: float, details: dict[str, Any]
) -> AuditResult:
    """The result of an attack that succeeded against so many of these people."""
    interval = wilson(successes, people)
    return AuditResult(attack, against, successes / people, chance, interval, {"people": people, **details})
