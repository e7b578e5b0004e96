"""Secure sums in a simulation: every client of the cohort runs the protocol's own client, message by message.

The masks come from the operating system's randomness and cancel exactly, so that a run repeats bit for bit although
they never do. A round whose survivors are too few stays masked, and is void.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coalface import wire
from coalface.engines.engine import Reply, Task
from coalface.federation import Rounds
from coalface.gathering import Gathered, checked
from coalface.privacy.layout import UploadLayout
from coalface.privacy.secagg import masks
from coalface.privacy.secagg.client import Client, Entropy
from coalface.privacy.secagg.fixed_point import OutOfRange
from coalface.privacy.secagg.messages import encoded_size
from coalface.privacy.secagg.rules import Refusal, Rules, TooFew
from coalface.privacy.secagg.server import Server, Tampered, Total
from coalface.received import Received

if TYPE_CHECKING:
    from coalface.privacy.dp import Noise

M = TypeVar("M")
Absent = Callable[[str, int], bool]  # whether a client is silent at a step: "advertise", "share", "agree", "unmask"


class SecureSums:
    """A way to sum (``gathering.Sums``). Node keys are made at registration and stay for the run."""

    def __init__(
        self,
        rounds: Rounds,
        rules: Rules,
        value_bound: float,
        most_images: int,
        entropy: Entropy = os.urandom,
        absent: Absent = lambda step, client: False,
    ) -> None:
        self.rounds, self.rules, self.value_bound, self.most_images = rounds, rules, value_bound, most_images
        self.entropy, self.absent = entropy, absent
        self._node_keys: dict[int, Ed25519PrivateKey] = {}
        self._directory: dict[int, bytes] = {}

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
        layout = UploadLayout(
            like,
            len(cohort),
            [len(members) for members in called.values()],
            self.value_bound,
            self.most_images,
            self.rules.needed(len(cohort)),
            noise,
        )
        name = f"{task.seed}/{task.round}/{task.attempt}".encode()
        session = hashlib.sha256(self.entropy(16) + name).digest()
        self._register(cohort)
        is_signed = lru_cache(maxsize=None)(masks.is_signed)  # many clients in one process check the same signature
        server = Server(session, self.rules, layout.size, layout.group_size, called)
        members = {client: tuple(group) for group in called.values() for client in group}
        everybody = {
            client: Client(
                client, self._node_keys[client], self._directory, self.rules, session, members.get(client, ()),
                self.entropy, is_signed,
            )
            for client in cohort
        }  # fmt: skip
        return SecureGathering(self, server, everybody, layout, Received(type(like), group_of))

    def _register(self, clients: Sequence[int]) -> None:
        for client in clients:
            if client not in self._node_keys:
                self._node_keys[client] = Ed25519PrivateKey.from_private_bytes(self.entropy(32))
                self._directory[client] = self._node_keys[client].public_key().public_bytes_raw()


class SecureGathering:
    """One round (``gathering.Gathering``)."""

    def __init__(
        self, sums: SecureSums, server: Server, clients: dict[int, Client], layout: UploadLayout, received: Received
    ) -> None:
        self.sums, self.server, self.clients, self.layout, self.received = sums, server, clients, layout, received
        self.known = wire.Known()
        self.up: dict[int, int] = dict.fromkeys(clients, 0)  # bytes of the protocol, by client
        self.down: dict[int, int] = dict.fromkeys(clients, 0)
        self.ready: set[int] = set()  # who has exchanged keys
        self.trouble = ""  # why the round is void, once it is
        try:
            self._exchange_keys()
        except (TooFew, Refusal) as reason:
            self.trouble = str(reason)

    def count_in(self, reply: Reply, expected: wire.Upload) -> str:
        """The client checks its own upload, masks it, and sends it; nobody else will ever be able to check it."""
        if self.trouble:
            return f"void: {self.trouble}"
        if reply.client not in self.ready:
            return "dropped out"
        outcome, upload = checked(reply, expected, self.sums.rounds, self.known)
        if upload is None:
            return outcome
        client = self.clients[reply.client]
        try:
            inbox = self.server.inbox(reply.client)
            self.down[reply.client] += encoded_size(inbox)
            message = client.mask(inbox, *self.layout.vectors(upload, reply.losses, reply.client))
            self.up[reply.client] += encoded_size(message)
            self.server.masked(message)
        except (Refusal, OutOfRange) as reason:
            return f"refused: {reason}"
        self.received.reveal(reply.client, upload)
        self.up[reply.client] += self.layout.revealed_bytes
        return "counted"

    def close(self) -> Gathered:
        """The survivors agree on who they are, and unmask the sum; or they are too few, and nobody ever will."""
        if self.trouble:
            return Gathered(None)
        try:
            total = self._unmasked()
        except (TooFew, Refusal, Tampered) as reason:
            self.trouble = str(reason)
            return Gathered(None)
        weight, counts = self.layout.weight_and_counts(total.vector)
        groups: dict[str, dict[int, tuple[object, int]]] = {
            name: {} for name, seen in self.layout.seen.items() if seen is wire.Seen.GROUPED
        }
        for group, words in total.groups.items():
            for name, value in self.layout.group_sums(words).items():
                groups[name][group] = (value, self.server.members(group))
        clients = [*total.clients]
        self.received.take_sums(clients, weight, self.layout.sums(total.vector), self.layout.like, counts, groups)
        return Gathered(self.received, self.layout.losses(total.vector, len(clients)))

    def told(self, reply: Reply) -> Reply:
        """What travelled; how many images a client has is known to nobody else."""
        up, down = self.up[reply.client], self.down[reply.client]
        return replace(reply, images=0, losses={}, bytes_up=up, bytes_down=reply.bytes_down + down)

    # --- the protocol's messages, each way ------------------------------------------------------------------------

    def _exchange_keys(self) -> None:
        absent = self.sums.absent
        for me, client in self.clients.items():
            if not absent("advertise", me):
                self.server.advertised(self._sent(me, client.advertise()))
        roster = self.server.roster()
        for me, client in self.clients.items():
            if not absent("advertise", me) and not absent("share", me):
                self.server.shared(self._sent(me, client.share(self._got(me, roster))))
                self.ready.add(me)
        self.server.present()

    def _unmasked(self) -> Total:
        absent = self.sums.absent
        survivors = self.server.survivors()
        needed = max(self.layout.survivors, ceil(self.sums.rounds.quorum * len(self.clients)))
        if len(survivors.clients) < needed:  # of those who were called, not only of those who sent keys
            raise TooFew(f"{len(survivors.clients)} clients sent a vector, and {needed} must")
        for me in survivors.clients:
            if not absent("agree", me):
                self.server.agreed(self._sent(me, self.clients[me].agree(self._got(me, survivors))))
        agreements = self.server.agreements()
        for me in survivors.clients:
            if not absent("agree", me) and not absent("unmask", me):
                self.server.unmasked(self._sent(me, self.clients[me].unmask(self._got(me, agreements))))
        return self.server.total()

    def _sent(self, client: int, message: M) -> M:
        self.up[client] += encoded_size(message)
        return message

    def _got(self, client: int, message: M) -> M:
        self.down[client] += encoded_size(message)
        return message
