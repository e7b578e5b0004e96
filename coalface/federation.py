"""The round, written once.

    choose a cohort → broadcast → clients train → check → sum → the server's update → evaluate → record

It is the same text in simulation and on real machines: an engine only decides who runs the clients.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Protocol

from coalface import seeding, wire
from coalface.engines.engine import Engine, Reply, Task
from coalface.gathering import BudgetSpent, Plain, Sums
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net

SLOW_CHECKPOINT = 0.02  # seconds; quicker ones are written as often as the rules say
CHECKPOINT_SHARE = 0.1  # of the time, at most, for slow ones: a crash costs ten times as long as writing one took


@dataclass(frozen=True)
class Rounds:
    """The rules of a federation."""

    rounds: int = 20
    cohort: int = 0  # clients chosen for a round; 0 takes all
    quorum: float = 0.5  # share of the cohort that must count, or the round is void and repeated
    deadline: float = 0.0  # seconds after which an upload is late; 0 waits for ever
    max_norm: float = 0.0  # an upload of a larger norm is refused; 0 sets no bound
    most_images: int = 100_000  # an upload that says it is of more is refused, where several are summed; 0: no bound
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
        if min(self.deadline, self.max_norm, self.most_images, self.evaluate_every) < 0:
            raise ValueError(
                "deadline, max_norm, most_images and evaluate_every cannot be negative; 0 switches them off, not "
                f"{self.deadline:g}, {self.max_norm:g}, {self.most_images} and {self.evaluate_every}"
            )

    def needed(self, cohort: int) -> int:
        """How many of a cohort are its quorum."""
        return ceil(self.quorum * cohort - 1e-9)  # 0.55 · 100 is a little more than 55


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
    privacy: dict[str, float] = field(default_factory=dict)  # ε and its like after this round, where it is accounted
    why: str = ""  # it is void


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
    sums: Sums | None = None  # how uploads become sums; None adds them up in the open

    def run(self, server: Any, first_round: int = 1) -> Iterator[tuple[RoundRecord, Any]]:
        """Rounds ``first_round`` to the last, or to the end of a budget: each one's record and the server's state."""
        not_before = 0.0  # on the clock: a server that holds much about many clients takes seconds to write
        for round_ in range(first_round, self.rules.rounds + 1):
            for attempt in range(self.rules.attempts):
                try:
                    entry, server = self.round(server, round_, attempt)
                except BudgetSpent:
                    if round_ > first_round:
                        self.recorder.checkpoint(round_ - 1, server)
                    return
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
                raise QuorumError(f"round {round_} was void {self.rules.attempts} times: {entry.why}")

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
        sums = self.sums or Plain(self.rules)
        gathering = sums.open(task, cohort, lambda client: self.method.group(server, client), self.clients)
        replies: list[tuple[Reply, str]] = []
        for reply in self.engine.gather(task, cohort):
            outcome = gathering.count_in(reply, self.method.expected(task.broadcast(reply.client)))
            if outcome == "counted" and reply.private is not None:
                self.recorder.keep_private(reply.client, round_, reply.private)
            replies.append((replace(reply, upload=None, private=None), outcome))  # uploads are in the sum, and go
        gathered = gathering.close()
        received = gathered.received
        counted = len(received.clients) if received else 0
        void = received is None or counted < self.rules.needed(len(cohort))
        after = server if received is None or void else self.method.server_round(server, received)
        rows = [_row(task, gathering.told(reply), outcome) for reply, outcome in replies]
        seconds = time.perf_counter() - began
        scores = self.evaluate(after) if not void and _is_evaluated(round_, self.rules) else {}
        monitors = {} if void else self.method.monitors(after)
        why = (gathered.why or _under_quorum(self.rules, rows)) if void else ""
        entry = RoundRecord(
            round_, attempt, void, counted, seconds, gathered.losses, scores, monitors, gathered.privacy, why
        )
        self.recorder.record(entry, rows)
        return entry, after


def _is_evaluated(round_: int, rules: Rounds) -> bool:
    return round_ == rules.rounds or (rules.evaluate_every > 0 and round_ % rules.evaluate_every == 0)


def _under_quorum(rules: Rounds, rows: list[ClientRecord]) -> str:
    troubles = Counter(row.outcome for row in rows if row.outcome != "counted").most_common(1)
    most = "".join(f" ({times} of {len(rows)}: {outcome})" for outcome, times in troubles)
    diverged = any(outcome.endswith(wire.NOT_FINITE) for outcome, _ in troubles)
    remedy = (
        "training has diverged: start again with a lower training.rate"
        if diverged
        else "mend that, lower rounds.quorum or raise rounds.deadline"
    )
    return f"under {rules.quorum:.0%} of its cohort counted{most}; {remedy}"


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
