"""A session in one process, for the tests: who is silent when, and what each side says, can be chosen."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coalface.privacy.secagg import masks
from coalface.privacy.secagg.client import Client
from coalface.privacy.secagg.fixed_point import Words
from coalface.privacy.secagg.rules import Rules
from coalface.privacy.secagg.server import Server, Total

STEPS = ("advertise", "share", "mask", "agree", "unmask")


def entropy(seed: int) -> Callable[[int], bytes]:
    """Bytes that repeat, so that a test does."""
    return random.Random(seed).randbytes


class World:
    """``clients`` nodes that are registered, each with a vector of random words."""

    def __init__(
        self,
        clients: int = 6,
        rules: Rules | None = None,
        size: int = 50,
        groups: Mapping[int, Sequence[int]] = {},
        seed: int = 0,
        group_size: int = 8,
    ) -> None:
        self.rules = rules or Rules(min_cohort=3)
        self.session = hashlib.sha256(b"a test").digest()
        drawn = np.random.default_rng(seed)
        self.vectors = {client: drawn.integers(0, 1 << 32, size, dtype=np.uint32) for client in range(clients)}
        self.group_vectors = {
            client: drawn.integers(0, 1 << 32, group_size, dtype=np.uint32) for client in range(clients)
        }
        group_of = {client: members for members in groups.values() for client in members}
        self.node_keys = {c: Ed25519PrivateKey.from_private_bytes(entropy(1000 + c)(32)) for c in range(clients)}
        self.directory = {c: key.public_key().public_bytes_raw() for c, key in self.node_keys.items()}
        is_signed = lru_cache(maxsize=None)(masks.is_signed)  # they all check the same signatures
        self.clients = {
            c: Client(
                c, self.node_keys[c], self.directory, self.rules, self.session, group_of.get(c, ()), entropy(c),
                is_signed,
            )
            for c in range(clients)
        }  # fmt: skip
        self.server = Server(self.session, self.rules, size, group_size if groups else 0, groups)
        if not groups:
            self.group_vectors = {client: np.zeros(0, np.uint32) for client in range(clients)}
        self.uploads: dict[int, Words] = {}  # what the server was sent
        self.group_uploads: dict[int, Words] = {}

    def until(self, last: str, silent: Mapping[str, Collection[int]] = {}) -> None:
        """All steps up to one; a client that is silent at a step stays so."""
        there = set(self.clients)
        for step in STEPS[: STEPS.index(last) + 1]:
            there -= set(silent.get(step, ()))
            getattr(self, step)(sorted(there))

    def advertise(self, there: Sequence[int]) -> None:
        for client in there:
            self.server.advertised(self.clients[client].advertise())

    def share(self, there: Sequence[int]) -> None:
        roster = self.server.roster()
        for client in there:
            self.server.shared(self.clients[client].share(roster))

    def mask(self, there: Sequence[int]) -> None:
        for client in there:
            vectors = self.vectors[client].copy(), self.group_vectors[client].copy()
            message = self.clients[client].mask(self.server.inbox(client), *vectors)
            self.uploads[client], self.group_uploads[client] = message.vector, message.group_vector
            self.server.masked(message)

    def agree(self, there: Sequence[int]) -> None:
        survivors = self.server.survivors()
        for client in there:
            self.server.agreed(self.clients[client].agree(survivors))

    def unmask(self, there: Sequence[int]) -> None:
        agreements = self.server.agreements()
        for client in there:
            self.server.unmasked(self.clients[client].unmask(agreements))

    def total(self, silent: Mapping[str, Collection[int]] = {}) -> Total:
        self.until("unmask", silent)
        return self.server.total()

    def plain(self, clients: Collection[int]) -> Words:
        """The sum in the open."""
        return np.sum([self.vectors[client] for client in clients], axis=0, dtype=np.uint32)
