"""The round, written once.

    choose a cohort → broadcast → clients train → check → sum → the server's update → evaluate → record

It is the same text in simulation and on real machines: an engine only decides who runs the clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Protocol

from coalface import seeding, wire
from coalface.engines.engine import Engine, Reply, Task
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net
from coalface.received import Received

SLOW_CHECKPOINT = 0.5  # seconds; quicker ones are written as often as the rules say
CHECKPOINT_SHARE = 0.1  # of the time, at most, for slow ones


@dataclass(frozen=True)
class Rounds:
    """The rules of a federation."""

    rounds: int = 20
    cohort: int = 0  # clients chosen for a round; 0 takes all
    quorum: float = 0.5  # share of the cohort that must count, or the round is void and repeated
    deadline: float = 0.0  # seconds after which an upload is late; 0 waits for ever
    max_norm: float = 0.0  # an upload of a larger norm is refused; 0 sets no bound
    attempts: int = 10  # tries at one round before giving up
    checkpoint_every: int = 1  # rounds; more where writing one is slow, so that it takes a tenth of the time at most
    evaluate_every: int = 0  # rounds between two evaluations; 0 evaluates the last round only

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.cohort < 0 or self.attempts < 1 or self.checkpoint_every < 1:
            raise ValueError(
                "rounds, attempts and checkpoint_every must be at least 1 and cohort at least 0, not "
                f"{self.rounds}, {self.attempts}, {self.checkpoint_every} and {self.cohort}"
            )
        if not 0 < self.quorum <= 1:
            raise ValueError(f"quorum is a share above 0 and up to 1, not {self.quorum}")
        if min(self.deadline, self.max_norm, self.evaluate_every) < 0:
            raise ValueError("deadline, max_norm and evaluate_every cannot be negative; 0 switches them off")


@dataclass(frozen=True)
class ClientRecord:
    """A row of the ledger. No names, no images, no embeddings: numbers about traffic and time."""

    round: int
    attempt: int
    client: int
    outcome: str
    images: int
    seconds: float
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True)
class RoundRecord:
    """What a round came to."""

    round: int
    attempt: int
    void: bool
    counted: int
    seconds: float
    losses: dict[str, float]  # mean over the clients that counted
    scores: dict[str, float]  # of the evaluation after this round, where there was one
    monitors: dict[str, float] = field(default_factory=dict)  # what the method says of the server's state


class Recorder(Protocol):
    """Where a run is written down (``store.Stage``)."""

    def keep_private(self, client: int, round_: int, private: wire.Private) -> None:
        """A client's own state after this round; it counts only if the round does."""

    def record(self, entry: RoundRecord, rows: list[ClientRecord]) -> None:
        """The end of a round, void or not."""

    def checkpoint(self, round_: int, server: Any) -> None:
        """A point to resume from."""


class QuorumError(RuntimeError):
    """Too few clients answered, too often."""


@dataclass(frozen=True)
class Federation:
    """A method, its clients, and the rules they follow."""

    method: Method
    net: Net
    clients: int  # registered
    engine: Engine
    rules: Rounds
    training: Training
    seed: int
    recorder: Recorder
    evaluate: Callable[[Any], dict[str, float]]

    def run(self, server: Any, first_round: int = 1) -> Iterator[tuple[RoundRecord, Any]]:
        """Rounds ``first_round`` to the last: each one's record and the server's state after it."""
        not_before = 0.0  # on the clock: a server that holds much about many clients takes seconds to write
        for round_ in range(first_round, self.rules.rounds + 1):
            for attempt in range(self.rules.attempts):
                entry, server = self.round(server, round_, attempt)
                began = time.perf_counter()
                due = round_ % self.rules.checkpoint_every == 0 and began >= not_before
                if not entry.void and (due or round_ == self.rules.rounds):
                    self.recorder.checkpoint(round_, server)
                    ended = time.perf_counter()
                    if ended - began > SLOW_CHECKPOINT:
                        not_before = ended + (ended - began) / CHECKPOINT_SHARE
                yield entry, server
                if not entry.void:
                    break
            else:
                raise QuorumError(
                    f"round {round_} was void {self.rules.attempts} times: under {self.rules.quorum:.0%} of its "
                    "cohort counted; lower rounds.quorum, raise rounds.deadline, or see in the ledger why they did not"
                )

    def round(self, server: Any, round_: int, attempt: int = 0) -> tuple[RoundRecord, Any]:
        """One try at one round. Under quorum it is void: recorded, and the server's state stays as it was."""
        began = time.perf_counter()
        luck = seeding.generator(self.seed, "round", round_, attempt)
        cohort = self.method.cohort(server, self.clients, self.rules.cohort, luck)
        opened = self.method.open_round(server, cohort, luck)
        task = Task(
            self.method,
            self.net,
            self.training,
            self.seed,
            round_,
            attempt,
            broadcast=lambda client: self.method.broadcast(server, opened, client),
        )
        received = Received(self.method.types.upload, lambda client: self.method.group(server, client))
        known = wire.Known()
        rows: list[ClientRecord] = []
        losses: dict[str, float] = {}
        for reply in self.engine.gather(task, cohort):
            expected = self.method.expected(task.broadcast(reply.client))
            outcome = count_in(reply, received, expected, self.rules, known)
            rows.append(_row(task, reply, outcome))
            if outcome == "counted":
                if reply.private is not None:
                    self.recorder.keep_private(reply.client, round_, reply.private)
                for part, value in reply.losses.items():
                    losses[part] = losses.get(part, 0.0) + value
        counted = len(received.clients)
        void = counted < ceil(self.rules.quorum * len(cohort))
        after = server if void else self.method.server_round(server, received)
        seconds = time.perf_counter() - began
        means = {part: total / counted for part, total in losses.items()}
        scores = self.evaluate(after) if not void and _is_evaluated(round_, self.rules) else {}
        monitors = {} if void else self.method.monitors(after)
        entry = RoundRecord(round_, attempt, void, counted, seconds, means, scores, monitors)
        self.recorder.record(entry, rows)
        return entry, after


def count_in(reply: Reply, received: Received, expected: wire.Upload, rules: Rounds, known: wire.Known) -> str:
    """Check a reply and add it to the sum; the outcome in words, "counted" if it was."""
    if reply.trouble:
        return reply.trouble
    if rules.deadline and reply.seconds > rules.deadline:
        return "late"
    bound = rules.max_norm or None
    try:
        if isinstance(reply.upload, bytes):
            upload = wire.decode(reply.upload, expected, max_norm=bound)
        else:
            upload = reply.upload
            wire.check(upload, expected, max_norm=bound, known=known)
    except wire.Refused as reason:
        return f"refused: {reason}"
    received.add(reply.client, upload)
    return "counted"


def _is_evaluated(round_: int, rules: Rounds) -> bool:
    return round_ == rules.rounds or (rules.evaluate_every > 0 and round_ % rules.evaluate_every == 0)


def _row(task: Task, reply: Reply, outcome: str) -> ClientRecord:
    return ClientRecord(
        task.round,
        task.attempt,
        reply.client,
        outcome,
        reply.images,
        round(reply.seconds, 6),
        reply.bytes_down,
        reply.bytes_up,
    )
