"""The server's side of one session. It can add up masked vectors, and unmask their sum; it has no other choice."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from coalface.privacy.secagg import masks, shamir
from coalface.privacy.secagg.client import pair_seed, sign_of
from coalface.privacy.secagg.fixed_point import Words
from coalface.privacy.secagg.masks import Stream
from coalface.privacy.secagg.messages import (
    KEY_BYTES,
    Advertisement,
    Agreement,
    Agreements,
    Inbox,
    Masked,
    Roster,
    Shares,
    Survivors,
    Unmasking,
)
from coalface.privacy.secagg.rules import Layout, Refusal, Rules, TooFew


class Tampered(RuntimeError):
    """Shares that do not restore what was committed to: the round is void."""


@dataclass(frozen=True)
class Total:
    """What the server learns."""

    clients: tuple[int, ...]  # whose vectors are in it
    vector: Words
    groups: dict[int, Words]  # of the groups whose members are all in it; nothing of the others


class Server:
    """One session. Messages of a step may come in any order; asking for the next step closes it."""

    def __init__(
        self, session: bytes, rules: Rules, size: int, group_size: int = 0, groups: Mapping[int, Collection[int]] = {}
    ) -> None:
        """Vectors have ``size`` words, and ``group_size`` more that are summed in groups: group → its members."""
        self.session, self.rules = session, rules
        self._groups = {group: frozenset(members) for group, members in groups.items()}
        self._group_of = {client: group for group, members in self._groups.items() for client in members}
        self._sum = np.zeros(size, np.uint32)
        self._group_sums = {group: np.zeros(group_size, np.uint32) for group in self._groups}
        self._roster: dict[int, Advertisement] = {}
        self._layout = Layout({}, 0, 0)
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._masked: set[int] = set()
        self._signatures: dict[int, bytes] = {}
        self._unmasking: dict[int, Unmasking] = {}

    # --- messages in, messages out --------------------------------------------------------------------------------

    def advertised(self, message: Advertisement) -> None:
        """A client's keys. Everybody else refuses a roster with a bad one, so that it must not be on it."""
        self._once(message.client, self._roster)
        keys = message.share_key, message.mask_key, message.group_key
        if not all(map(masks.is_public_key, keys)) or len(message.commitment) != KEY_BYTES:
            raise Refusal(f"client {message.client} sent keys that nobody can use")
        self._roster[message.client] = message

    def roster(self) -> Roster:
        """Everybody's keys, for everybody."""
        self._enough("advertised", len(self._roster))
        roster = Roster(tuple(self._roster[client] for client in sorted(self._roster)))
        self._layout = self.rules.layout(self._roster, roster.digest)
        return roster

    def shared(self, message: Shares) -> None:
        """A client's sealed shares."""
        self._once(message.client, self._sealed)
        if message.client not in self._roster:
            raise Refusal(f"client {message.client} did not advertise its keys")
        if message.sealed.keys() != self._layout.neighbours(message.client):
            raise Refusal(f"client {message.client} did not share with its neighbours")
        self._sealed[message.client] = message.sealed

    def present(self) -> tuple[int, ...]:
        """Who shared."""
        self._enough("shared", len(self._sealed))
        return tuple(sorted(self._sealed))

    def inbox(self, client: int) -> Inbox:
        """Who shared, and what they sealed for this client."""
        present = self.present()
        senders = sorted(self._layout.neighbours(client) & self._sealed.keys())
        return Inbox(present, {sender: self._sealed[sender][client] for sender in senders})

    def masked(self, message: Masked) -> None:
        """A masked vector: added, and forgotten."""
        self._once(message.client, self._masked)
        group = self._group_of.get(message.client)
        wanted = len(self._group_sums[group]) if group is not None else 0
        if message.client not in self._sealed:
            raise Refusal(f"client {message.client} did not share its masks")
        if len(message.vector) != len(self._sum) or len(message.group_vector) != wanted:
            raise Refusal(f"client {message.client} sent a vector of another length")
        self._masked.add(message.client)
        np.add(self._sum, message.vector, out=self._sum)
        if group is not None:
            np.add(self._group_sums[group], message.group_vector, out=self._group_sums[group])

    def survivors(self) -> Survivors:
        """Whose vectors are in the sum."""
        self._enough("sent a vector", len(self._masked))
        return Survivors(tuple(sorted(self._masked)))

    def agreed(self, message: Agreement) -> None:
        """A survivor's signature on the list."""
        self._once(message.client, self._signatures)
        self._signatures[message.client] = message.signature

    def agreements(self) -> Agreements:
        """All signatures, for the survivors to check."""
        self._enough("agreed", len(self._signatures))
        return Agreements(dict(self._signatures))

    def unmasked(self, message: Unmasking) -> None:
        """A survivor's shares of its neighbours' secrets."""
        self._once(message.client, self._unmasking)
        self._unmasking[message.client] = message

    def total(self) -> Total:
        """The sum without its masks."""
        self._enough("unmasked", len(self._unmasking))
        whole = {group for group, members in self._groups.items() if members <= self._masked}
        streams = []
        for client in sorted(self._masked):
            seed = self._restored(client, {u.client: u.self_shares for u in self._unmasking.values()})
            if hashlib.sha256(seed).digest() != self._roster[client].commitment:
                raise Tampered(f"the shares of client {client}'s self mask are not what it committed to")
            streams.append(Stream(seed, "self", -1))
            if self._group_of.get(client) in whole:
                masks.add_streams(self._group_sums[self._group_of[client]], [Stream(seed, "self in group", -1)])
        for client in sorted(self._sealed.keys() - self._masked):
            streams += self._pair_streams(client)
        masks.add_streams(self._sum, streams)
        return Total(tuple(sorted(self._masked)), self._sum, {group: self._group_sums[group] for group in whole})

    def members(self, group: int) -> int:
        """How many clients are in a group."""
        return len(self._groups[group])

    # --- parts ----------------------------------------------------------------------------------------------------

    def _pair_streams(self, gone: int) -> list[Stream]:
        """What takes away the masks that the neighbours of a client who dropped out have added for it."""
        private = self._restored(gone, {u.client: u.key_shares for u in self._unmasking.values()})
        if masks.public_of(private) != self._roster[gone].mask_key:
            raise Tampered(f"the shares of client {gone}'s mask key are not of the key it advertised")
        return [
            Stream(pair_seed(private, self._roster[other], self.session, "mask"), "pair", -sign_of(other, gone))
            for other in sorted(self._layout.neighbours(gone) & self._masked)
        ]

    def _restored(self, client: int, by_holder: Mapping[int, Mapping[int, bytes]]) -> bytes:
        holders = self._layout.holders(client) & by_holder.keys()
        shares = {holder: by_holder[holder][client] for holder in holders if client in by_holder[holder]}
        if len(shares) < self._layout.holders_needed:
            raise TooFew(f"{len(shares)} shares of client {client}'s masks, of {self._layout.holders_needed} needed")
        return shamir.join(shares, self._layout.holders_needed)

    def _once(self, client: int, done: Collection[int]) -> None:
        if client in done:
            raise Refusal(f"client {client} sent the same step twice")

    def _enough(self, what: str, count: int) -> None:
        needed = self.rules.needed(len(self._roster))
        if count < needed:
            raise TooFew(f"{count} clients {what}, and {needed} must")
