"""A secure sum between machines: its steps as calls to real clients, each signed by its node's own key.

    advertise → share → train, with the shares that others sealed → agree → unmask

The server passes sealed shares on and adds up masked vectors. It checks signatures too, so that one client's bad
message costs that client its place and not everybody the round; what protects a client are the client's own checks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coalface import wire
from coalface.engines.engine import Reply, Task
from coalface.engines.flower import Flower
from coalface.engines.flower_messages import ADVERTISE, AGREE, SHARE, UNMASK
from coalface.privacy.layout import UploadLayout
from coalface.privacy.secagg.messages import (
    Advertisement,
    Agreement,
    Inbox,
    Masked,
    Opening,
    Sent,
    Shares,
    Unmasking,
    decode,
    encode,
)
from coalface.privacy.secagg.node_keys import is_signed
from coalface.privacy.secagg.rules import Refusal
from coalface.privacy.secure_sum import Step

STEPS: dict[Step, tuple[str, type[Any]]] = {
    "advertise": (ADVERTISE, Advertisement),
    "share": (SHARE, Shares),
    "agree": (AGREE, Agreement),
    "unmask": (UNMASK, Unmasking),
}

PER_MEMBER = 1024  # bytes; of a client's answer about each of the cohort: two shares, sealed or not, and their numbers

log = logging.getLogger("coalface.server")


class FlowerParties:
    """One session's clients (``secure_sum.Parties``) behind the engine that calls them for a round."""

    def __init__(
        self, flower: Flower, keys: Sequence[bytes], task: Task, openings: dict[int, Opening], layout: UploadLayout
    ) -> None:
        """``keys`` are the public keys of all clients, by number, as PEM."""
        self.flower, self.keys, self.task, self.openings, self.layout = flower, keys, task, openings, layout

    def ask(self, step: Step, clients: Sequence[int], message: Any) -> Iterator[Any]:
        kind, expected = STEPS[step]
        told = b"" if message is None else encode(message)

        def data(client: int) -> bytes:
            return told or encode(self.openings[client])

        most = PER_MEMBER * len(self.openings)
        for reply in self.flower.ask(kind, self.task, clients, data, lambda client: most):
            if reply.trouble:
                log.info("client %d does not %s: %s", reply.client, step, reply.trouble)
                continue
            try:
                answer = decode(expected, reply.upload)
                self._check(answer, reply.client)
            except Refusal as reason:
                log.warning("client %d: its %s is refused: %s", reply.client, step, reason)
                continue
            yield answer

    def exchanged(self, inbox: Callable[[int], Inbox | None]) -> None:
        def sealed(client: int) -> bytes | None:
            found = inbox(client)
            return None if found is None else encode(found)

        self.flower.sealed = sealed
        self.flower.masked_bytes = 4 * (self.layout.size + self.layout.group_size) + self.layout.revealed_bytes

    def masked(self, reply: Reply, expected: wire.Upload) -> tuple[str, Masked | None, wire.Upload | None]:
        if reply.trouble:
            return reply.trouble, None, None
        sent = decode(Sent, reply.upload)
        self._check(sent.masked, reply.client)
        return "counted", sent.masked, wire.decode_fields(sent.revealed, expected, self.layout.revealed)

    def _check(self, answer: Any, client: int) -> None:
        if answer.client != client:
            raise Refusal("it is in another client's name")
        if isinstance(answer, Advertisement):
            session = self.openings[client].session
            if not is_signed(self.keys[client], answer.signed_text(session), answer.signature):
                raise Refusal("its keys are not signed by the node")
