"""Secure sums: a round in which the server can unmask the sum of a cohort's uploads, and nothing else.

The same session in simulation, where every client of the cohort runs the protocol's own client in this process, and
between machines (``engines.flower_secure``): ``Parties`` are whoever answers. Masks come from the operating system's
randomness and cancel exactly, so that a run repeats bit for bit although they never do. A round whose survivors are
too few stays masked, and is void.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coalface import wire
from coalface.engines.engine import Reply, Task
from coalface.federation import Rounds
from coalface.gathering import Gathered, checked
from coalface.privacy.layout import UploadLayout
from coalface.privacy.secagg import masks
from coalface.privacy.secagg.client import Client, Entropy
from coalface.privacy.secagg.fixed_point import OutOfRange
from coalface.privacy.secagg.messages import Inbox, Masked, Opening, encoded_size
from coalface.privacy.secagg.rules import Refusal, Rules, TooFew
from coalface.privacy.secagg.server import Server, Tampered, Total
from coalface.received import Received

if TYPE_CHECKING:
    from coalface.privacy.noise import Noise

Step = Literal["advertise", "share", "agree", "unmask"]
Absent = Callable[[str, int], bool]  # whether a simulated client is silent at a step


class Parties(Protocol):
    """The clients of one session, wherever they are."""

    def ask(self, step: Step, clients: Sequence[int], message: Any) -> Iterator[Any]:
        """Hand a message to each of them, and take the answers of those who give one."""

    def exchanged(self, inbox: Callable[[int], Inbox | None]) -> None:
        """Keys and shares are there. ``inbox`` has a client's part of them; None: it is not in the sum."""

    def masked(self, reply: Reply, expected: wire.Upload) -> tuple[str, Masked | None, wire.Upload | None]:
        """ "counted", what a client sent under masks, and an upload that holds what it reveals; or else why not."""


class Meet(Protocol):
    """How the parties of a session come together."""

    def __call__(self, task: Task, openings: dict[int, Opening], layout: UploadLayout) -> Parties: ...


class SecureSums:
    """A way to sum (``gathering.Sums``). ``meet`` reaches real clients; without it they are simulated."""

    def __init__(
        self,
        rounds: Rounds,
        rules: Rules,
        value_bound: float,
        most_images: int,
        entropy: Entropy = os.urandom,
        absent: Absent = lambda step, client: False,
        meet: Meet | None = None,
    ) -> None:
        self.rounds, self.rules, self.value_bound, self.most_images = rounds, rules, value_bound, most_images
        self.entropy = entropy
        self.meet = meet or Simulation(rounds, rules, entropy, absent).meet

    def open(
        self,
        task: Task,
        cohort: Sequence[int],
        group_of: Callable[[int], int],
        clients: int,
        noise: Noise | None = None,
    ) -> SecureGathering:
        """Keys and shares travel before anybody trains."""
        like = task.method.expected(task.broadcast(cohort[0]))
        grouped = any(row.seen is wire.Seen.GROUPED for row in wire.disclosure(type(like)))
        groups: dict[int, list[int]] = {}
        for client in range(clients) if grouped else ():
            groups.setdefault(group_of(client), []).append(client)
        called = {group: members for group, members in groups.items() if not set(members).isdisjoint(cohort)}
        sizes = [len(members) for members in called.values()]
        needed = self.rules.needed(len(cohort))
        layout = UploadLayout(like, len(cohort), sizes, self.value_bound, self.most_images, needed, noise)
        name = f"{task.seed}/{task.round}/{task.attempt}".encode()
        session = hashlib.sha256(self.entropy(16) + name).digest()
        server = Server(session, self.rules, layout.size, layout.group_size, called)
        members = {client: tuple(group) for group in called.values() for client in group}
        openings = {client: Opening(session, len(cohort), members.get(client, ()), tuple(sizes)) for client in cohort}
        return SecureGathering(
            self.rounds, server, self.meet(task, openings, layout), openings, layout, Received(type(like), group_of)
        )


class SecureGathering:
    """One round (``gathering.Gathering``)."""

    def __init__(
        self,
        rounds: Rounds,
        server: Server,
        parties: Parties,
        openings: dict[int, Opening],
        layout: UploadLayout,
        received: Received,
    ) -> None:
        self.rounds, self.server, self.parties, self.layout, self.received = rounds, server, parties, layout, received
        self.cohort = list(openings)
        self.up: dict[int, int] = dict.fromkeys(openings, 0)  # bytes of the protocol, by client
        self.down: dict[int, int] = dict.fromkeys(openings, 0)
        self.ready: list[int] = []  # who has exchanged keys
        self.trouble = ""  # why the round is void, once it is
        try:
            advertised = self._asked("advertise", self.cohort, None, server.advertised)
            self.ready = self._asked("share", advertised, server.roster(), server.shared)
            server.present()
        except (TooFew, Refusal) as reason:
            self.trouble = str(reason)
        parties.exchanged(self._inbox)

    def count_in(self, reply: Reply, expected: wire.Upload) -> str:
        """The client has checked and masked its own upload; nobody else will ever be able to check it."""
        if self.trouble:
            return f"void: {self.trouble}"
        if reply.client not in self.ready:
            return "dropped out"
        try:
            outcome, message, upload = self.parties.masked(reply, expected)
            if message is None or upload is None:
                return outcome
            self.down[reply.client] += encoded_size(self.server.inbox(reply.client))
            self.up[reply.client] += encoded_size(message)
            self.server.masked(message)
        except (Refusal, OutOfRange, wire.Refused) as reason:
            return f"refused: {reason}"
        self.received.reveal(reply.client, upload)
        self.up[reply.client] += self.layout.revealed_bytes
        return "counted"

    def close(self) -> Gathered:
        """The survivors agree on who they are, and unmask the sum; or they are too few, and nobody ever will."""
        if self.trouble:
            return Gathered(None, why=self.trouble)
        try:
            total = self._unmasked()
        except (TooFew, Refusal, Tampered) as reason:
            self.trouble = str(reason)
            return Gathered(None, why=self.trouble)
        clients = [*total.clients]
        try:
            weight, counts = self.layout.weight_and_counts(total.vector, len(clients))
        except OutOfRange as reason:  # whose word it was is masked for ever; but the sum has been seen
            self.trouble = f"somebody spoilt the sum: {reason}; leave members out until nobody does"
            return Gathered(None, why=self.trouble, unmasked=total.clients)
        groups: dict[str, dict[int, tuple[object, int]]] = {
            name: {} for name, seen in self.layout.seen.items() if seen is wire.Seen.GROUPED
        }
        for group, words in total.groups.items():
            for name, value in self.layout.group_sums(words).items():
                groups[name][group] = (value, self.server.members(group))
        self.received.take_sums(clients, weight, self.layout.sums(total.vector), self.layout.like, counts, groups)
        return Gathered(self.received, self.layout.losses(total.vector, len(clients)))

    def told(self, reply: Reply) -> Reply:
        """What travelled; how many images a client has is known to nobody else."""
        up, down = self.up[reply.client], self.down[reply.client]
        return replace(reply, images=0, losses={}, bytes_up=up, bytes_down=reply.bytes_down + down)

    # --- the protocol's messages, each way ------------------------------------------------------------------------

    def _unmasked(self) -> Total:
        survivors = self.server.survivors()
        needed = max(self.layout.survivors, self.rounds.needed(len(self.cohort)))
        if len(survivors.clients) < needed:  # of those who were called, not only of those who sent keys
            raise TooFew(f"{len(survivors.clients)} clients sent a vector, and {needed} must")
        agreed = self._asked("agree", survivors.clients, survivors, self.server.agreed)
        self._asked("unmask", agreed, self.server.agreements(), self.server.unmasked)
        return self.server.total()

    def _asked(self, step: Step, clients: Sequence[int], message: Any, take: Callable[[Any], None]) -> list[int]:
        """Who answered, when everybody has answered or is given up."""
        answered = []
        for answer in self.parties.ask(step, clients, message):
            self.up[answer.client] += encoded_size(answer)
            self.down[answer.client] += 0 if message is None else encoded_size(message)
            try:
                take(answer)
            except Refusal:
                continue  # one client's message is wrong: it drops out, and the others go on
            answered.append(answer.client)
        return answered

    def _inbox(self, client: int) -> Inbox | None:
        return None if self.trouble or client not in self.ready else self.server.inbox(client)


class Simulation:
    """Clients in this process. Node keys are made at registration, and stay for the run."""

    def __init__(self, rounds: Rounds, rules: Rules, entropy: Entropy, absent: Absent) -> None:
        self.rounds, self.rules, self.entropy, self.absent = rounds, rules, entropy, absent
        self._keys: dict[int, Ed25519PrivateKey] = {}
        self._directory: dict[int, bytes] = {}

    def meet(self, task: Task, openings: dict[int, Opening], layout: UploadLayout) -> SimulatedParties:
        """Part of ``Meet``."""
        for client in openings:
            if client not in self._keys:
                self._keys[client] = Ed25519PrivateKey.from_private_bytes(self.entropy(32))
                self._directory[client] = self._keys[client].public_key().public_bytes_raw()
        is_signed = lru_cache(maxsize=None)(masks.is_signed)  # many clients in one process check the same signature
        everybody = {
            me: Client(
                me, self._keys[me], self._directory, self.rules, opening.session, opening.group, self.entropy, is_signed
            )
            for me, opening in openings.items()
        }
        return SimulatedParties(self, everybody, layout)


class SimulatedParties:
    """One session's clients (``Parties``)."""

    def __init__(self, simulation: Simulation, clients: dict[int, Client], layout: UploadLayout) -> None:
        self.simulation, self.clients, self.layout = simulation, clients, layout
        self.known = wire.Known()
        self.inbox: Callable[[int], Inbox | None] = lambda client: None

    def ask(self, step: Step, clients: Sequence[int], message: Any) -> Iterator[Any]:
        for me in clients:
            if not self.simulation.absent(step, me):
                take = getattr(self.clients[me], step)
                yield take() if message is None else take(message)

    def exchanged(self, inbox: Callable[[int], Inbox | None]) -> None:
        self.inbox = inbox

    def masked(self, reply: Reply, expected: wire.Upload) -> tuple[str, Masked | None, wire.Upload | None]:
        outcome, upload = checked(reply, expected, self.simulation.rounds, self.known)
        inbox = self.inbox(reply.client)
        if upload is None or inbox is None:
            return outcome, None, None
        vectors = self.layout.vectors(upload, reply.losses, reply.client)
        return outcome, self.clients[reply.client].mask(inbox, *vectors), upload
