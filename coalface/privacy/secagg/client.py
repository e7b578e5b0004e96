"""A client's side of one session. Each step checks what the server sent before it gives anything away.

advertise   fresh keys, signed by the node's key
share       the roster: enough clients, each signed by its node → shares of two secrets, sealed for each neighbour
mask        the neighbours' shares → the masked vector
agree       the survivors: enough of them, this client among them → a signature
unmask      the survivors' signatures on the same list → one share for each neighbour, never both kinds
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import wraps
from itertools import islice
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from coalface.privacy.secagg import masks, shamir
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
from coalface.privacy.secagg.rules import Layout, Refusal, Rules

P = ParamSpec("P")
M = TypeVar("M")
Entropy = Callable[[int], bytes]


class NodeKey(Protocol):
    """What a node signs with; ``IsSigned`` is the other half of the same scheme."""

    def sign(self, data: bytes, /) -> bytes: ...


IsSigned = Callable[[bytes, bytes, bytes], bool]
STEPS = ("advertise", "share", "mask", "agree", "unmask", "nothing")


def _step(take: Callable[Concatenate[Client, P], M]) -> Callable[Concatenate[Client, P], M]:
    """Refuse a step out of order or taken twice. If one fails, the session is over."""

    @wraps(take)
    def once(client: Client, /, *given: P.args, **named: P.kwargs) -> M:
        if STEPS[client.next] != take.__name__:
            raise Refusal(f"client {client.me} was asked to {take.__name__}, and can only do {STEPS[client.next]}")
        after, client.next = client.next + 1, STEPS.index("nothing")
        answer = take(client, *given, **named)
        client.next = after
        return answer

    return once


class Client:
    """One client in one session: every step is taken once, in order, and a session is never used again."""

    def __init__(
        self,
        me: int,
        node_key: NodeKey,
        directory: Mapping[int, bytes],
        rules: Rules,
        session: bytes,
        group: Collection[int] = (),
        entropy: Entropy = os.urandom,
        is_signed: IsSigned = masks.is_signed,
    ) -> None:
        """A ``session`` is one round's hash; ``directory`` has the nodes' public keys, from registration and no server.

        ``group`` is everybody in whose sum this client's group vector may be, itself included: its choir.
        """
        if group and (me not in group or len(set(group)) < rules.min_group):
            raise Refusal(f"a group of {len(set(group))} would give its members away: it takes {rules.min_group}")
        if len(session) != KEY_BYTES:
            raise Refusal(f"a session of {len(session)} bytes, not {KEY_BYTES}")
        self.me, self.rules, self.session = me, rules, session
        self._node_key, self._directory, self._entropy, self._is_signed = node_key, directory, entropy, is_signed
        self._group = frozenset(group)
        self._secrets = {name: entropy(32) for name in ("share", "mask", "group", "self")}
        self.next = 0  # of the steps
        self._roster: dict[int, Advertisement] = {}
        self._digest = b""
        self._layout = Layout({}, 0, 0)
        self._present: frozenset[int] = frozenset()
        self._survivors: frozenset[int] = frozenset()
        self._signed_text = b""
        self._sealing: dict[int, bytes] = {}  # by neighbour: what the keys of both directions come from
        self._held: dict[int, tuple[bytes, bytes]] = {}  # by neighbour: its share of self mask and of mask key

    @_step
    def advertise(self) -> Advertisement:
        """Fresh public keys, and a commitment to the self mask."""
        share_key, mask_key, group_key = (masks.public_of(self._secrets[name]) for name in ("share", "mask", "group"))
        commitment = hashlib.sha256(self._secrets["self"]).digest()
        bare = Advertisement(self.me, share_key, mask_key, group_key, commitment, b"")
        return replace(bare, signature=self._node_key.sign(bare.signed_text(self.session)))

    @_step
    def share(self, roster: Roster) -> Shares:
        """Check who takes part; share out the self mask's seed and the private mask key among the neighbours."""
        self._check_roster(roster)
        self._layout = self.rules.layout(self._roster, self._digest)
        holders, needed = self._layout.holders(self.me), self._layout.holders_needed
        self_shares = shamir.split(self._secrets["self"], sorted(holders), needed, self._entropy)
        key_shares = shamir.split(self._secrets["mask"], sorted(holders), needed, self._entropy)
        self._held[self.me] = (self_shares[self.me], key_shares[self.me])
        sealed = {}
        for other in sorted(self._layout.neighbours(self.me)):
            about = self._about(self.me, other)
            sealed[other] = masks.seal(self._seal_key(other, about), self_shares[other] + key_shares[other], about)
        return Shares(self.me, sealed)

    @_step
    def mask(self, inbox: Inbox, vector: Words, group_vector: Words) -> Masked:
        """Keep the neighbours' shares; mask the vectors, in place."""
        self._present = self._part_of("shared", inbox.present, frozenset(self._roster))
        there = self._layout.neighbours(self.me) & self._present
        if inbox.sealed.keys() != there:
            raise Refusal("the shares are not those of the neighbours who are said to be there")
        for other, sealed in inbox.sealed.items():
            about = self._about(other, self.me)
            both = masks.open_sealed(self._seal_key(other, about), sealed, about)
            self._held[other] = (both[: shamir.SHARE_BYTES], both[shamir.SHARE_BYTES :])
        pairs = [Stream(self._pair_seed("mask", other), "pair", sign_of(self.me, other)) for other in there]
        masks.add_streams(vector, [Stream(self._secrets["self"], "self"), *pairs])
        masks.add_streams(group_vector, [Stream(self._secrets["self"], "self in group"), *self._group_streams()])
        return Masked(self.me, vector, group_vector)

    @_step
    def agree(self, survivors: Survivors) -> Agreement:
        """Sign the list of those who are in the sum, if it is long enough and this client is on it."""
        self._survivors = self._part_of("survived", survivors.clients, self._present)
        self._signed_text = survivors.signed_text(self.session, self._digest)
        return Agreement(self.me, self._node_key.sign(self._signed_text))

    @_step
    def unmask(self, agreements: Agreements) -> Unmasking:
        """If enough survivors signed the same list: a share by which the server removes one mask of each neighbour."""
        signed = (
            client
            for client, signature in agreements.signatures.items()
            if client in self._survivors and self._is_signed(self._directory[client], self._signed_text, signature)
        )
        needed = self.fewest
        count = len([*islice(signed, needed)])  # enough is enough: checking takes most of this step's time
        if count < needed:
            raise Refusal(f"{count} clients signed this list of survivors, and {needed} must")
        alive = {client: both[0] for client, both in self._held.items() if client in self._survivors}
        gone = {client: both[1] for client, both in self._held.items() if client not in self._survivors}
        return Unmasking(self.me, alive, gone)

    @property
    def fewest(self) -> int:
        """Who must be in a sum that this client helps to unmask, of those whose keys it was sent."""
        return self.rules.needed(len(self._roster))

    # --- parts ----------------------------------------------------------------------------------------------------

    def _check_roster(self, roster: Roster) -> None:
        if len(roster.advertisements) < self.rules.min_cohort:
            raise Refusal(
                f"a cohort of {len(roster.advertisements)} is under the minimum of {self.rules.min_cohort} clients"
            )
        for entry in roster.advertisements:
            if entry.client in self._roster:
                raise Refusal(f"client {entry.client} is on the roster twice")
            if any(len(part) != KEY_BYTES for part in entry.parts):
                raise Refusal(f"the keys of client {entry.client} are not of {KEY_BYTES} bytes")
            key = self._directory.get(entry.client)
            if key is None or not self._is_signed(key, entry.signed_text(self.session), entry.signature):
                raise Refusal(f"the keys of client {entry.client} are not signed by a registered node")
            self._roster[entry.client] = entry
        own = self._roster.get(self.me)
        if own is None or own.mask_key != masks.public_of(self._secrets["mask"]):
            raise Refusal(f"the roster does not have the keys of client {self.me}")
        self._digest = roster.digest

    def _part_of(self, what: str, clients: tuple[int, ...], known: frozenset[int]) -> frozenset[int]:
        """A list of clients, checked: known ones, this one among them, and enough of everybody and of its holders."""
        listed = frozenset(clients)
        if len(listed) != len(clients) or not listed <= known:
            raise Refusal(f"the list of those who {what} has strangers or doubles")
        if self.me not in listed:
            raise Refusal(f"client {self.me} is not on the list of those who {what}")
        needed = self.fewest
        if len(listed) < needed:
            raise Refusal(f"{len(listed)} clients {what}, and {needed} must")
        holders = len(self._layout.holders(self.me) & listed)
        if holders < self._layout.holders_needed:
            raise Refusal(f"{holders} neighbours {what}, and {self._layout.holders_needed} must")
        return listed

    def _group_streams(self) -> list[Stream]:
        """Masks that only the whole group cancels: nobody holds a share of the keys they come from."""
        if not self._group <= self._present or not self._group:
            return [Stream(self._entropy(32), "pad")]  # the group cannot be whole: this is never unmasked
        others = self._group - {self.me}
        return [Stream(self._pair_seed("group", other), "pair", sign_of(self.me, other)) for other in others]

    def _pair_seed(self, key: str, other: int) -> bytes:
        return pair_seed(self._secrets[key], self._roster[other], self.session, key)

    def _seal_key(self, other: int, about: bytes) -> bytes:
        """A key for one message in one direction."""
        if other not in self._sealing:
            public = self._roster[other].share_key
            self._sealing[other] = masks.agreed(self._secrets["share"], public, self.session, "seal")
        return masks.derived(self._sealing[other], about)

    def _about(self, sender: int, recipient: int) -> bytes:
        return self._digest + sender.to_bytes(8, "big") + recipient.to_bytes(8, "big")


def sign_of(me: int, other: int) -> int:
    """Of two clients the lower adds the mask that they share, and the higher takes it away."""
    return 1 if me < other else -1


def pair_seed(private: bytes, other: Advertisement, session: bytes, key: str) -> bytes:
    """The seed of the mask between the holder of a private key and another client."""
    return masks.agreed(private, other.mask_key if key == "mask" else other.group_key, session, f"pair {key}")
