"""Who takes part, as files: ``clients.toml`` at the server, ``client.toml`` at each client. Names stay where they are.

    # clients.toml                            # client.toml
    [[client]]                                name = "north"
    name = "north"                            server = "faces.example.org:9092"
    key = "north.pub"                         data = "photographs"
    identities = 1                            key = "north.key"
                                              ca = "ca.crt"
                                              accept = ["chorus 4f2a…"]
                                              [limits]
                                              rounds = 1000
                                              [secure_sum]
                                              require = true
                                              [noise]
                                              least = 0.3

Paths are relative to the file that holds them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from coalface.config import ConfigError, from_json
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.data.recordings import DEPTH

World = Literal["faces", "recordings"]  # what clients hold


@dataclass(frozen=True)
class Tls:
    """The server's certificate chain and its key."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: Path) -> Tls:
        """``server.pem`` and ``server.key`` of a folder."""
        tls = cls(folder / "server.pem", folder / "server.key")
        for file in (tls.certificate, tls.key):
            _must_exist(file, "make them with `coalface keys`, or put those of your CA there")
        return tls


@dataclass(frozen=True)
class Entry:
    """A client, as the server knows it."""

    name: str = ""
    key: str = ""  # file of its public key
    identities: int = 1  # how many people it holds: agreed when it is registered, and checked by the client

    def __post_init__(self) -> None:
        if not self.name or not self.key or self.identities < 1:
            raise ValueError("a client has a name, the file of its public key, and one identity or more")


@dataclass(frozen=True)
class Clients:
    """clients.toml: the order of its entries numbers the clients, so new ones go to the end."""

    client: tuple[Entry, ...]

    @classmethod
    def read(cls, file: Path) -> Clients:
        values = _toml(file)
        entries = values.get("client")
        if values.keys() != {"client"} or not isinstance(entries, list) or not entries:
            raise ConfigError(f"{file} must hold [[client]] tables, one or more, and nothing else")
        found = cls(tuple(from_json(Entry, entry, f"client[{i}]") for i, entry in enumerate(entries)))
        for what in ("name", "key"):
            given = [getattr(entry, what) for entry in found.client]
            if twice := [value for value in given if given.count(value) > 1]:
                raise ConfigError(f"{file}: {what} {twice[0]!r} stands there twice")
        return replace(found, client=tuple(replace(e, key=str(file.parent / e.key)) for e in found.client))

    def public_keys(self) -> list[bytes]:
        """As Flower knows them: PEM, in order. The files are OpenSSH's."""
        for entry in self.client:
            _must_exist(Path(entry.key), f"ask {entry.name} for it")
        return [pem_of(Path(entry.key).read_bytes(), entry.key) for entry in self.client]

    def roster(self, size: int, world: World = "faces") -> Population:
        """The clients as a population whose photographs are elsewhere; a centre holds attacks and live people."""
        held = [entry.identities if world == "faces" else 2 for entry in self.client]
        return absent(held, size, world)


@dataclass(frozen=True)
class Limits:
    """What a client spends at most, until its owner removes state/spent.json; 0 sets no limit. Then it declines."""

    rounds: int = 0
    minutes: float = 0.0  # of training
    megabytes: float = 0.0  # sent

    def __post_init__(self) -> None:
        if min(self.rounds, self.minutes, self.megabytes) < 0:
            raise ValueError(
                f"limits are 0 for none, or more, not {self.rounds}, {self.minutes:g} and {self.megabytes:g}"
            )


@dataclass(frozen=True)
class Insisted:
    """What a client insists on where sums are secure. A server may ask for more, never for less."""

    require: bool = False  # decline rounds whose sums are open
    min_cohort: int = 16  # never be in a sum of fewer
    threshold: float = 2 / 3  # share of a cohort that must be left before anything is unmasked


@dataclass(frozen=True)
class InsistedNoise:
    """What a client insists on of the noise on sums that it is in: rounds with less are declined."""

    least: float = 0.0  # standard deviation on the cohort's sum, over the clip
    least_in_group: float = 0.0  # the same on a group's sum, where the method has groups
    in_shares: bool = False  # only noise that clients add themselves counts: a server's is a promise

    def suffices(self, noise: float, group_noise: float, in_shares: bool, grouped: bool) -> bool:
        """Whether a round with this noise is accepted; ``grouped``: the method sums in groups too."""
        if not self.least and not self.least_in_group:
            return True
        enough = noise >= self.least and (not grouped or group_noise >= self.least_in_group)
        return enough and (in_shares or not self.in_shares)


@dataclass(frozen=True)
class Client:
    """client.toml: who I am, where my data is, what I agree to, and how much of it."""

    name: str = ""
    server: str = ""  # HOST:PORT
    data: str = ""  # photographs, one sub-folder per person; or a centre's recordings (``data.own_recordings``)
    layout: str = ""  # of recordings: the name of a published set's layout; empty takes folders live, print, replay …
    frames: int = 10  # of recordings: taken from each video
    public: str = ""  # the public set of a federation whose clients hold one: its server's public.safetensors
    key: str = ""  # file of the private key
    ca: str = "ca.crt"
    members: str = ""  # everybody's public keys, a line each in the order of clients.toml; for secure sums
    state: str = "state"  # a folder for what this client keeps
    accept: tuple[str, ...] = ()  # "METHOD FINGERPRINT", as `coalface list` shows them
    limits: Limits = field(default_factory=Limits)
    secure_sum: Insisted = field(default_factory=Insisted)
    noise: InsistedNoise = field(default_factory=InsistedNoise)
    seed: int = -1  # for rehearsals only: whoever knows it knows every random choice of this client

    @classmethod
    def read(cls, file: Path) -> Client:
        found: Client = from_json(cls, _toml(file))

        paths = ("data", "public", "key", "ca", "members", "state")
        near = {name: str(file.parent / given) for name in paths if (given := getattr(found, name))}
        return replace(found, **near)  # type: ignore[arg-type]  # all of them are strings


def absent(identities: Sequence[int], size: int, world: World = "faces") -> Population:
    """A population of so many identities each, without a single image: all that a server knows of real clients."""
    total = sum(identities)
    depth = torch.empty(0, DEPTH, DEPTH, dtype=torch.uint8) if world == "recordings" else None
    images = torch.empty(0, 3, size, size, dtype=torch.uint8)
    nothing = FaceSet(images, torch.zeros(total + 1, dtype=torch.int64), depth)
    dealt, first = [], 0
    for held in identities:
        dealt.append(tuple(range(first, first + held)))
        first += held
    return Population(nothing, tuple(dealt))


def pem_of(ssh: bytes, where: str) -> bytes:
    """A public key as ssh-keygen writes it, as PEM."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  (optional)

    try:
        key = serialization.load_ssh_public_key(ssh)
    except ValueError as error:
        raise ConfigError(f"{where} is not a public key as ssh-keygen writes it: {error}") from error
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _toml(file: Path) -> dict[str, Any]:
    _must_exist(file, "`coalface keys` writes one to begin with")
    try:
        return tomllib.loads(file.read_text())
    except ValueError as error:  # of TOML, or of UTF-8
        raise ConfigError(f"{file} is not TOML: {error}") from error


def _must_exist(file: Path, remedy: str) -> None:
    if not file.is_file():
        raise ConfigError(f"there is no {file}; {remedy}")
