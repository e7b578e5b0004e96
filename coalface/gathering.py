"""How the uploads of a round become sums. ``Plain`` adds them up as they come; ``privacy/`` has the protected ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from coalface import wire
from coalface.engines.engine import Reply, Task
from coalface.received import Received

if TYPE_CHECKING:
    from coalface.federation import Rounds


class BudgetSpent(RuntimeError):
    """One more round would tell more than was allowed: the run ends here."""


@dataclass(frozen=True)
class Gathered:
    """What the server has at the end of a round."""

    received: Received | None  # None: there is nothing to go on with, and the round is void
    losses: dict[str, float] = field(default_factory=dict)  # means over the clients that counted
    privacy: dict[str, float] = field(default_factory=dict)  # what the rounds so far have told, where it is accounted
    why: str = ""  # there is nothing, in words
    unmasked: tuple[int, ...] = ()  # of a void round: whose sum was seen all the same


class Gathering(Protocol):
    """One round's uploads, as they come in."""

    def count_in(self, reply: Reply, expected: wire.Upload) -> str:
        """Check a reply and add it to the sum; the outcome in words, "counted" if it was."""

    def close(self) -> Gathered:
        """The sums, when every client has answered or is given up."""

    def told(self, reply: Reply) -> Reply:
        """A reply as the ledger may know it, after ``close``."""


class Sums(Protocol):
    """A way to sum."""

    def open(self, task: Task, cohort: Sequence[int], group_of: Callable[[int], int], clients: int) -> Gathering:
        """Begin a round with this cohort of the registered clients 0 … clients−1; or raise BudgetSpent."""


class Plain:
    """The server adds up what it is sent: it could look at each upload, and does not keep any."""

    def __init__(self, rules: Rounds) -> None:
        self.rules = rules

    def open(self, task: Task, cohort: Sequence[int], group_of: Callable[[int], int], clients: int) -> Gathering:
        """Part of ``Sums``."""
        rules = self.rules if len(cohort) > 1 else replace(self.rules, most_images=0)  # one alone outweighs nobody
        return PlainGathering(rules, Received(task.method.types.upload, group_of))


class PlainGathering:
    """A streaming sum."""

    def __init__(self, rules: Rounds, received: Received) -> None:
        self.rules, self.received = rules, received
        self.known = wire.Known()
        self.losses: dict[str, float] = {}

    def count_in(self, reply: Reply, expected: wire.Upload) -> str:
        """Part of ``Gathering``."""
        outcome, upload = checked(reply, expected, self.rules, self.known)
        if upload is not None:
            self.received.add(reply.client, upload)
            for part, value in reply.losses.items():
                self.losses[part] = self.losses.get(part, 0.0) + value
        return outcome

    def close(self) -> Gathered:
        """Part of ``Gathering``."""
        if self.received.clients and not self.received.weight:
            return Gathered(None, why="every upload that counted says that it is of 0 images")
        return Gathered(
            self.received, {part: total / len(self.received.clients) for part, total in self.losses.items()}
        )

    def told(self, reply: Reply) -> Reply:
        """Part of ``Gathering``."""
        return reply


def checked(reply: Reply, expected: wire.Upload, rules: Rounds, known: wire.Known) -> tuple[str, wire.Upload | None]:
    """ "counted" and the upload, if it is there in time and as expected; or else why not."""
    if reply.trouble:
        return reply.trouble, None
    if rules.deadline and reply.seconds > rules.deadline:
        return "late", None
    bound = rules.max_norm or None
    upload = reply.upload
    try:
        if isinstance(upload, bytes):
            upload = wire.decode(upload, expected, max_norm=bound)
        else:
            wire.check(upload, expected, max_norm=bound, known=known, squares=reply.squares)
    except wire.Refused as reason:
        return f"refused: {reason}", None
    images = getattr(upload, upload.weight) if upload.weight else 0
    if rules.most_images and images > rules.most_images:
        return f"refused: it weighs {images} images, and rounds.most_images is {rules.most_images}", None
    return "counted", upload
