"""A real client, apart from how messages reach it: consent, limits, its own faces, secret and state.

It trusts the server with nothing that it can check itself: what would leave is read from its own code, the shapes of a
broadcast come from its own code, and its random numbers come from a secret that it drew for itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from coalface import seeding, tree, wire
from coalface.config import ConfigError, from_json, method_name, to_json
from coalface.data.faces import read_folder
from coalface.data.population import ClientFaces
from coalface.local import Training, client_round
from coalface.method import Method
from coalface.models.net import Net
from coalface.private_store import PrivateStore
from coalface.registry import Client, Limits, absent
from coalface.store import write_atomically

PROTOCOL = 1  # counts up when messages change
MOST_CLASSES = 10_000_000  # the shapes of a broadcast may grow with them
DECLINED = {  # why a client declines; only these words enter a ledger
    "terms": "it cannot read the terms",
    "protocol": "it speaks another protocol",
    "method": "it has not agreed to what this method sends",
    "identities": "it holds another number of people than was agreed",
    "limit": "a limit of its own is reached",
    "broadcast": "the broadcast is not what the method sends",
    "trouble": "it has trouble of its own",
}

log = logging.getLogger("coalface.client")


class Declined(Exception):
    """The client will not do it; the argument is a key of DECLINED."""


@dataclass(frozen=True)
class Terms:
    """What a client must know to take part. It travels with every call, so that a client may come and go."""

    protocol: int
    method: Method
    model: str
    embedding: int
    size: int  # of images
    training: Training
    clients: int
    classes: int  # identities in the whole federation
    client: int  # this client's number
    first_class: int  # where its identities begin
    identities: int  # how many it holds

    def to_json(self) -> str:
        return json.dumps(to_json(self))

    @classmethod
    def from_json(cls, text: str) -> Terms:
        try:
            terms: Terms = from_json(cls, json.loads(text))
        except (json.JSONDecodeError, RecursionError, TypeError) as error:
            raise ConfigError(f"terms that cannot be read: {error}") from error
        before, after = terms.client, terms.clients - terms.client - 1
        behind = terms.classes - terms.first_class - terms.identities
        if before < 0 or after < 0 or terms.identities < 1 or terms.first_class < before or behind < after:
            raise ConfigError("terms that contradict each other")
        if terms.classes > MOST_CLASSES:
            raise ConfigError(f"{terms.classes} identities are more than this client makes room for")
        return terms


def fingerprint(method: Any) -> str:
    """Sixteen hex digits that stand for all that leaves a client under a method, to the word."""
    rows = [*wire.disclosure(method.types.upload)]
    if method.types.collected is not None:
        rows += wire.disclosure(method.types.collected)
    told = [[row.field, row.seen.value, row.what, row.type] for row in rows]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Spent:
    """What this client has spent, on all federations together: a server can begin a new one whenever it likes."""

    rounds: int = 0
    minutes: float = 0.0
    megabytes: float = 0.0

    def exceeds(self, limits: Limits) -> bool:
        """Whether nothing more may be spent."""
        pairs = ((self.rounds, limits.rounds), (self.minutes, limits.minutes), (self.megabytes, limits.megabytes))
        return any(limit and spent > limit for spent, limit in pairs)


class Participant:
    """One client on its own machine. Everything that it keeps is in ``client.state``, per federation."""

    def __init__(self, client: Client, device: torch.device) -> None:
        self.client = client
        self.device = device
        if client.seed >= 0:
            log.warning("a seed is set in client.toml: this client's random choices are no secret. Rehearsals only.")
        self._offered: tuple[str, Offer] | None = None

    def train(self, terms: str, federation: str, round_: int, counted: list[int], broadcast: bytes) -> bytes:
        """One round: the upload. Private state is on the disk before the upload is in the caller's hands."""
        offer = self._offer(terms)
        folder = self._folder(federation)
        spent = _read_spent(Path(self.client.state))
        if replace(spent, rounds=spent.rounds + 1).exceeds(self.client.limits):
            raise Declined("limit")
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
        began = time.perf_counter()
        result = client_round(
            offer.terms.method,
            offer.net,
            received,
            private,
            self._faces(offer),
            offer.terms.training,
            round_,
            self.seed(federation),
            offer.terms.client,
        )
        data = wire.encode(_to(result.upload, torch.device("cpu")))
        spent = Spent(
            spent.rounds + 1,
            spent.minutes + (time.perf_counter() - began) / 60,
            spent.megabytes + len(data) / 1e6,
        )
        _write_spent(Path(self.client.state), spent)
        if spent.exceeds(self.client.limits):
            raise Declined("limit")
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
        faces = self._faces(offer)
        return len(faces), wire.encode(offer.terms.method.collect(faces))

    def _offer(self, text: str) -> Offer:
        """The terms, read and agreed to; Declined otherwise."""
        if self._offered is not None and self._offered[0] == text:
            return self._offered[1]
        try:
            if json.loads(text).get("protocol") != PROTOCOL:
                raise Declined("protocol")
            offer = Offer(Terms.from_json(text), self.device)
        except (ValueError, AttributeError, RecursionError) as reason:
            log.warning("the terms are refused: %s", reason)
            raise Declined("terms") from reason
        line = f"{method_name(offer.terms.method)} {fingerprint(offer.terms.method)}"
        if line not in self.client.accept:
            log.warning("not agreed to yet. %s would make leave:", method_name(offer.terms.method))
            for row in wire.disclosure(offer.terms.method.types.collected or offer.terms.method.types.upload):
                log.warning("  %s (%s): %s", row.field, row.seen.value, row.what)
            log.warning('to agree, put "%s" into accept in client.toml', line)
            raise Declined("method")
        self._offered = (text, offer)
        return offer

    def _faces(self, offer: Offer) -> ClientFaces:
        return offer.faces(Path(self.client.data))

    def _folder(self, federation: str) -> Path:
        if not (federation.isalnum() and federation.isascii()):
            raise Declined("terms")
        return Path(self.client.state) / federation


class Offer:
    """Terms, with what follows from them by this machine's own code."""

    def __init__(self, terms: Terms, device: torch.device) -> None:
        self.terms = terms
        self.device = device
        self.net = Net(terms.model, embedding=terms.embedding, size=terms.size)
        self._held: ClientFaces | None = None

    @cached_property
    def broadcast(self) -> wire.Broadcast:
        """A broadcast of the right shapes, made by playing server with fresh weights: nobody else is asked."""
        terms, method = self.terms, self.terms.method
        after = terms.clients - terms.client - 1
        behind = terms.classes - terms.first_class - terms.identities
        sizes = [*_dealt(terms.client, terms.first_class), terms.identities, *_dealt(after, behind)]
        luck = seeding.generator(0, "shapes")
        server = method.begin(self.net, self.net.fresh(0), absent(sizes, terms.size), luck)
        shown: wire.Broadcast = method.broadcast(server, method.open_round(server, [terms.client], luck), terms.client)
        return shown

    def faces(self, folder: Path) -> ClientFaces:
        """This client's photographs, read once."""
        if self._held is None:
            found = read_folder(folder, self.terms.size).faces
            if len(found) != self.terms.identities:
                log.warning("%d people are here, and %d were agreed", len(found), self.terms.identities)
                raise Declined("identities")
            labels = torch.repeat_interleave(torch.arange(len(found)), found.counts()).to(self.device)
            classes = torch.arange(self.terms.first_class, self.terms.first_class + len(found), device=self.device)
            self._held = ClientFaces(found.images.to(self.device), labels, classes)
        return self._held


def own_secret(file: Path) -> bytes:
    """Where this client's private randomness comes from: 256 bits, drawn once, that only the owner can read."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_bytes(secrets.token_bytes(32))
    return file.read_bytes()


def _dealt(clients: int, identities: int) -> list[int]:
    """Some way to deal identities to clients, one each at least: only the totals matter to shapes."""
    return [1] * (clients - 1) + [identities - clients + 1] if clients else []


def _to(message: Any, device: torch.device) -> Any:
    return tree.transform(lambda leaf: leaf.to(device), message)


def _read_spent(folder: Path) -> Spent:
    file = folder / "spent.json"
    return Spent(**json.loads(file.read_text())) if file.exists() else Spent()


def _write_spent(folder: Path, spent: Spent) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "spent.json", json.dumps(vars(spent)).encode())
