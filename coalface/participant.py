"""A real client, apart from how messages reach it: consent, limits, its own faces, secret and state.

It trusts the server with nothing that it can check itself: what would leave is read from its own code, the shapes of a
broadcast come from its own code, and its random numbers come from a secret that it drew for itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from coalface import tree, wire
from coalface.config import method_name
from coalface.local import client_round
from coalface.offer import Declined, Offer
from coalface.privacy.noise import clip
from coalface.private_store import PrivateStore
from coalface.registry import Client
from coalface.spending import Purse
from coalface.store import own_secret
from coalface.terms import PROTOCOL, NoiseTerms, Terms, fingerprint

if TYPE_CHECKING:
    from coalface.secure_participant import SecureParticipant

LONGEST_NAME = 64  # letters of a federation's, which a server chooses; a folder here is called so

log = logging.getLogger("coalface.client")


class Participant:
    """One client on its own machine. Everything that it keeps is in ``client.state``, per federation."""

    def __init__(self, client: Client, device: torch.device) -> None:
        self.client = client
        self.device = device
        if client.seed >= 0:
            log.warning("a seed is set in client.toml: this client's random choices are no secret. Rehearsals only.")
        self._purse = Purse(Path(client.state), client.limits)
        self._offered: tuple[str, Offer] | None = None
        self._secure: SecureParticipant | None = None

    def train(
        self, terms: str, federation: str, round_: int, counted: list[int], broadcast: bytes, sealed: bytes = b""
    ) -> bytes:
        """One round: the upload. Private state is on the disk before the upload is in the caller's hands.

        ``sealed``: where sums are secure, what the others sealed for this client; the upload then leaves under masks.
        """
        offer = self._offer(terms)
        folder = self._folder(federation)
        self._purse.check()
        try:
            received = wire.decode(broadcast, offer.broadcast)
        except wire.Refused as reason:
            log.warning("the broadcast of round %d is refused: %s", round_, reason)
            raise Declined("broadcast") from reason
        received = _to(received, self.device)
        store = PrivateStore(folder / "private", offer.terms.method.types.private, self.device)
        store.retain(offer.terms.client, counted)
        private = store.load(offer.terms.client, round_)
        if private is None and any(made < round_ for made in counted):
            log.warning("what this client kept is not in %s; it starts anew", folder)
        faces = offer.faces  # what cannot be read costs its owner no round
        with self._purse.round() as bill:
            result = client_round(
                offer.terms.method,
                offer.net,
                received,
                private,
                faces,
                offer.terms.training,
                round_,
                self.seed(federation),
                offer.terms.client,
            )
            upload = _clipped(_to(result.upload, torch.device("cpu")), offer.terms.noise)
            masked = offer.terms.secure.min_cohort > 0
            data = self._masked(offer, received, upload, sealed) if masked else wire.encode(upload)
            bill.sent = len(data)
        if result.private is not None:
            store.keep(offer.terms.client, round_, result.private)
            store.flush()
        return data

    def seed(self, federation: str) -> int:
        """Of this client's random choices in one federation: from its own secret, unless one is pinned."""
        if self.client.seed >= 0:
            return self.client.seed
        secret = own_secret(Path(self.client.state) / "secret")
        return int.from_bytes(hashlib.blake2b(federation.encode(), digest_size=32, key=secret).digest(), "big")

    def collect(self, terms: str) -> tuple[int, bytes]:
        """What leaves once, before the first round, under a method that collects: how many images, and the bytes."""
        offer = self._offer(terms)
        self._purse.check()
        faces = offer.faces
        with self._purse.round() as bill:
            data = wire.encode(offer.terms.method.collect(faces))
            bill.sent = len(data)
        return len(faces), data

    def take_step(self, step: str, terms: str, federation: str, data: bytes) -> bytes:
        """A step of a secure sum: "advertise", "share", "agree" or "unmask". Declined if it would expose anybody."""
        offer = self._offer(terms)
        folder = self._folder(federation)
        answer = self._protected(lambda secure: secure.take(step, offer.terms, folder, data))
        self._purse.pay(len(answer))
        return answer

    def _masked(self, offer: Offer, broadcast: Any, upload: wire.Upload, sealed: bytes) -> bytes:
        """The server cannot check what it cannot see: an honest client leaves itself out where the server would."""
        bound = offer.terms.secure.max_norm or None
        try:
            wire.check(upload, offer.terms.method.expected(broadcast), max_norm=bound)
        except wire.Refused as reason:
            log.warning("this client leaves itself out: %s", reason)
            raise Declined("norm") from reason
        return self._protected(lambda secure: secure.mask(offer.terms, upload, sealed))

    def _protected(self, act: Callable[[SecureParticipant], bytes]) -> bytes:
        from coalface import secure_participant  # noqa: PLC0415  (cryptography is optional)

        try:
            self._secure = self._secure or secure_participant.SecureParticipant(self.client)
            return act(self._secure)
        except secure_participant.OutOfRange as reason:
            log.warning("this client leaves itself out: %s", reason)
            raise Declined("range") from reason
        except (secure_participant.Refusal, ValueError, OSError) as reason:
            log.warning("this client takes no part in a secure sum: %s", reason)
            raise Declined("secure") from reason

    def _offer(self, text: str) -> Offer:
        """The terms, read and agreed to; Declined otherwise."""
        if self._offered is not None and self._offered[0] == text:
            return self._offered[1]
        try:
            if json.loads(text).get("protocol") != PROTOCOL:
                raise Declined("protocol")
            offer = Offer(Terms.from_json(text), self.client, self.device)
        except (ValueError, AttributeError, RecursionError) as reason:
            log.warning("the terms are refused: %.300s", reason)  # it may quote them, and they may be long
            raise Declined("terms") from reason
        line = f"{method_name(offer.terms.method)} {fingerprint(offer.terms.method)}"
        if line not in self.client.accept:
            log.warning("not agreed to yet. %s would make leave:", method_name(offer.terms.method))
            for row in wire.disclosure(offer.terms.method.types.collected or offer.terms.method.types.upload):
                log.warning("  %s (%s): %s", row.field, row.who, row.words)
            log.warning('to agree, put "%s" into accept in client.toml', line)
            raise Declined("method")
        open_ = not offer.terms.secure.min_cohort or offer.terms.method.types.collected
        if self.client.secure_sum.require and open_:
            log.warning("what leaves would be seen by the server, and secure_sum.require in client.toml says no")
            raise Declined("open")
        noise, seen = offer.terms.noise, wire.disclosure(offer.terms.method.types.upload)
        grouped = any(row.seen is wire.Seen.GROUPED for row in seen)
        if not self.client.noise.suffices(noise.noise, noise.group_noise, noise.in_shares, grouped):
            log.warning("sums would carry %s, and noise in client.toml insists on more", noise)
            raise Declined("noise")
        self._offered = (text, offer)
        return offer

    def _folder(self, federation: str) -> Path:
        if not (federation.isalnum() and federation.isascii() and len(federation) <= LONGEST_NAME):
            raise Declined("terms")
        return Path(self.client.state) / federation


def _clipped(upload: wire.Upload, noise: NoiseTerms) -> wire.Upload:
    """No longer than noise of this size can hide; how many images there are is not told either."""
    return clip(upload, noise.clip, noise.group_clip)[0] if noise.clip else upload


def _to(message: Any, device: torch.device) -> Any:
    return tree.transform(lambda leaf: leaf.to(device), message)
