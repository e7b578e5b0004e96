"""Everything that travels in the protocol, typed, as bytes and back. No pickle; a wrong message is a Refusal."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from coalface.privacy.secagg.fixed_point import Words
from coalface.privacy.secagg.rules import Refusal

M = TypeVar("M")
KEY_BYTES = 32  # of a public key, and of a hash


@dataclass(frozen=True)
class Opening:
    """Server → one client: a session begins."""

    session: bytes  # fresh for every try at a round
    cohort: int  # how many are called
    group: tuple[int, ...]  # everybody in whose sum this client's group vector may be; empty: nothing is so summed
    group_sizes: tuple[int, ...]  # of all groups that are called


@dataclass(frozen=True)
class Advertisement:
    """Client → server → all: fresh keys for this session, signed by the node's own key."""

    client: int
    share_key: bytes  # seals shares
    mask_key: bytes  # pairwise masks; its private half is shared out, to remove the masks of one who drops out
    group_key: bytes  # masks within a group; its private half never leaves the client
    commitment: bytes  # hash of the self-mask's seed
    signature: bytes

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The keys, and the commitment."""
        return self.share_key, self.mask_key, self.group_key, self.commitment

    def signed_text(self, session: bytes) -> bytes:
        """What the node's key signs. Each part has its length before it: else one could be taken for another.

        A server chooses sessions, and a longer one could hold the keys that a shorter one is to be followed by.
        """
        return b"coalface advertisement" + _packed(session) + encode(replace(self, signature=b""))


@dataclass(frozen=True)
class Roster:
    """Server → all: everybody who advertised."""

    advertisements: tuple[Advertisement, ...]

    @cached_property
    def digest(self) -> bytes:
        """A hash of everybody's keys, the same for everybody who was sent the same roster."""
        return hashlib.sha256(encode(self)).digest()


@dataclass(frozen=True)
class Shares:
    """Client → server: for each neighbour, a sealed share of each of two secrets."""

    client: int
    sealed: dict[int, bytes]


@dataclass(frozen=True)
class Inbox:
    """Server → one client: who shared, and what its neighbours sealed for it."""

    present: tuple[int, ...]
    sealed: dict[int, bytes]


@dataclass(frozen=True)
class Masked:
    """Client → server: its masked vector, and its masked part of its group's sum."""

    client: int
    vector: Words
    group_vector: Words


@dataclass(frozen=True)
class Sent:
    """Client → server, where they are machines: the masked vectors, and what the method reveals beside them."""

    masked: Masked
    revealed: bytes  # of ``wire``


@dataclass(frozen=True)
class Survivors:
    """Server → all: whose vectors are in the sum."""

    clients: tuple[int, ...]

    def signed_text(self, session: bytes, digest: bytes) -> bytes:
        """What each survivor signs, once."""
        return b"coalface survivors" + _packed(session) + _packed(digest) + encode(self)


@dataclass(frozen=True)
class Agreement:
    """Client → server: its signature on the list of survivors."""

    client: int
    signature: bytes


@dataclass(frozen=True)
class Agreements:
    """Server → all: the signatures of the survivors."""

    signatures: dict[int, bytes]


@dataclass(frozen=True)
class Unmasking:
    """Client → server: of each neighbour one share, of its self mask if it survived, of its mask key if it did not."""

    client: int
    self_shares: dict[int, bytes]
    key_shares: dict[int, bytes]


# --- bytes ------------------------------------------------------------------------------------------------------------


def encode(message: Any) -> bytes:
    """A message as bytes: numbers in 8, everything else with its length before it."""
    return b"".join(_packed(getattr(message, field.name)) for field in fields(message))


def encoded_size(message: Any) -> int:
    """``len(encode(message))`` without the copy."""
    return sum(_size(getattr(message, field.name)) for field in fields(message))


def decode(kind: type[M], data: bytes) -> M:
    """The message of this type in these bytes, all of them, or Refusal."""
    values, rest = {}, memoryview(data)
    for name, hint in get_type_hints(kind).items():
        values[name], rest = _unpacked(hint, rest)
    if len(rest):
        raise Refusal(f"{len(rest)} bytes too many for a {kind.__name__}")
    return kind(**values)


def _packed(value: Any) -> bytes:
    if isinstance(value, int):
        return value.to_bytes(8, "big")
    if isinstance(value, bytes):
        return len(value).to_bytes(8, "big") + value
    if isinstance(value, np.ndarray):
        return len(value).to_bytes(8, "big") + value.astype("<u4", copy=False).tobytes()
    if isinstance(value, dict):
        return len(value).to_bytes(8, "big") + b"".join(_packed(k) + _packed(v) for k, v in value.items())
    if isinstance(value, tuple):
        return len(value).to_bytes(8, "big") + b"".join(_packed(item) for item in value)
    return encode(value)


def _size(value: Any) -> int:
    if isinstance(value, int):
        return 8
    if isinstance(value, bytes):
        return 8 + len(value)
    if isinstance(value, np.ndarray):
        return 8 + value.nbytes
    if isinstance(value, dict):
        return 8 + sum(8 + _size(item) for item in value.values())
    if isinstance(value, tuple):
        return 8 + sum(_size(item) for item in value)
    return encoded_size(value)


def _unpacked(hint: Any, data: memoryview) -> tuple[Any, memoryview]:
    if hint is int:
        return _number(data)
    if isinstance(hint, type) and hint.__module__ == __name__:
        values: dict[str, Any] = {}
        for name, inner in get_type_hints(hint).items():
            values[name], data = _unpacked(inner, data)
        return hint(**values), data
    count, data = _number(data)
    if hint is bytes:
        return bytes(_taken(data, count)), data[count:]
    if get_origin(hint) is np.ndarray:
        return np.frombuffer(_taken(data, 4 * count), dtype="<u4").copy(), data[4 * count :]
    if count > len(data):
        raise Refusal(f"{count} entries are announced in {len(data)} bytes")
    entries: list[Any] = []
    for _ in range(count):
        key, data = _number(data) if get_origin(hint) is dict else (len(entries), data)
        value, data = _unpacked(get_args(hint)[-1 if get_origin(hint) is dict else 0], data)
        entries.append((key, value))
    return (dict(entries) if get_origin(hint) is dict else tuple(value for _, value in entries)), data


def _number(data: memoryview) -> tuple[int, memoryview]:
    return int.from_bytes(_taken(data, 8), "big"), data[8:]


def _taken(data: memoryview, count: int) -> memoryview:
    if count > len(data):
        raise Refusal(f"{count} bytes are announced, and {len(data)} are there")
    return data[:count]
