"""What a real client is told before it does anything, and what its owner must have agreed to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from math import inf
from typing import Any

from coalface import tree, wire
from coalface.bounds import check_bounds, check_numbers
from coalface.config import ConfigError, from_json, to_json
from coalface.local import Training
from coalface.method import Method
from coalface.models.detector import detector
from coalface.models.net import Net
from coalface.privacy.noise import SLACK

PROTOCOL = 4  # counts up when messages change


@dataclass(frozen=True)
class SecureTerms:
    """How sums are masked; ``min_cohort`` 0: they are not."""

    min_cohort: int = 0
    threshold: float = 1.0
    value_bound: float = 0.0  # the largest number in an upload
    most_images: int = 0  # the most that a client may hold, where images weigh
    max_norm: float = 0.0  # a client leaves a longer upload out itself, as nobody else can; 0 sets no bound


@dataclass(frozen=True)
class NoiseTerms:
    """How long an upload may be, and how much noise its sum carries; ``clip`` 0: as long as it is, and none."""

    clip: float = 0.0
    group_clip: float = 0.0
    noise: float = 0.0  # standard deviation of the noise on the cohort's sum, over the clip
    group_noise: float = 0.0  # the same on a group's sum
    in_shares: bool = False  # the clients add it, under the masks; otherwise the server says that it does

    def __post_init__(self) -> None:
        numbers = self.clip, self.group_clip, self.noise, self.group_noise
        if not all(0 <= number < inf for number in numbers):
            raise ValueError(f"clips and noise are at least 0 and finite, not {numbers}")
        if (self.noise or self.group_noise or self.in_shares) and not (self.clip and self.group_clip):
            raise ValueError("noise without a clip protects nobody")


@dataclass(frozen=True)
class Terms:
    """What a client must know to take part. It travels with every call, so that a client may come and go."""

    protocol: int
    method: Method
    model: str
    embedding: int  # of faces; 1 for a detector
    width: int  # of a detector; 0 for faces
    size: int  # of images
    training: Training
    clients: int
    classes: int  # identities in the whole federation; of a detector two for each centre, attack and live
    client: int  # this client's number
    first_class: int  # where its identities begin
    identities: int  # how many it holds
    public: str = ""  # hash of the public set, where clients hold one
    secure: SecureTerms = field(default_factory=SecureTerms)
    noise: NoiseTerms = field(default_factory=NoiseTerms)

    def to_json(self) -> str:
        return json.dumps(to_json(self))

    @classmethod
    def from_json(cls, text: str) -> Terms:
        try:
            terms: Terms = from_json(cls, json.loads(text))
        except (json.JSONDecodeError, RecursionError, TypeError, OverflowError) as error:
            raise ConfigError(f"terms that cannot be read: {error}") from error
        before, after = terms.client, terms.clients - terms.client - 1
        behind = terms.classes - terms.first_class - terms.identities
        if before < 0 or after < 0 or terms.identities < 1 or terms.first_class < before or behind < after:
            raise ConfigError("terms that contradict each other")
        if terms.noise.in_shares and not terms.secure.min_cohort:
            raise ConfigError("shares of noise are added under masks, and these sums would be open")
        if terms.noise.clip and terms.secure.min_cohort:
            check_silence(terms.secure, terms.noise)
        check_bounds(to_json(terms))
        return terms

    def net(self) -> Net:
        """The network of the federation, by this machine's own code; ConfigError if it is too large for a client."""
        if self.method.world == "recordings":
            net = detector(self.model, self.size, self.width)
        else:
            net = Net(self.model, embedding=self.embedding, size=self.size)
        check_numbers(f"the weights of {net}", sum(leaf.numel() for leaf in tree.leaves(net.shapes).values()))
        return net


def check_silence(secure: SecureTerms, noise: NoiseTerms) -> None:
    """Under noise a client must not refuse by its exact update, which would tell of it what no noise covers."""
    longest = SLACK * max(noise.clip, noise.group_clip)
    if secure.value_bound < longest:
        raise ConfigError(
            f"value_bound is {secure.value_bound:g}, and clipped updates may have numbers up to {longest:g}: "
            "clients would say which do not fit; raise privacy.value_bound or lower the clips"
        )
    if secure.max_norm:
        raise ConfigError(f"a norm bound of {secure.max_norm:g} beside a clip: clients would say who is over it")


def fingerprint(method: Any) -> str:
    """Sixteen hex digits that stand for all that leaves a client under a method, to the word."""
    rows = [*wire.disclosure(method.types.upload)]
    if method.types.collected is not None:
        rows += wire.disclosure(method.types.collected)
    told = [[row.field, row.who, row.words, row.type] for row in rows]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
