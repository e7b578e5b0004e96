"""Identities dealt out to roles: public, clients, validation, test. No identity has two of them."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from coalface.data.faceset import FaceSet
from coalface.data.population import Population

FORMAT = "coalface partition 1"


@dataclass(frozen=True, repr=False)
class Partition:
    """Who does what, by identity number. Refused where an identity has two roles, or two clients.

    ``identities`` is the size of the set that was split. Numbers mean nothing in another set, so a partition that knows
    it refuses a face set of another size.
    """

    public: tuple[int, ...]  # what the server may see: pre-training, proxies
    validation: tuple[int, ...]  # for choices: thresholds, settings
    test: tuple[int, ...]  # for the reported number only
    clients: tuple[tuple[int, ...], ...]
    images_each: tuple[int, ...] | None = None  # client -> at most so many of each identity
    identities: int | None = None
    seed: int | None = None  # None where it was put together by hand

    def __post_init__(self) -> None:
        used = np.fromiter(chain(self.public, self.validation, self.test, *self.clients), dtype=np.int64)
        if len(used) and used.min() < 0:
            raise ValueError(f"identity numbers start at 0, not {used.min()}")
        if self.identities is not None and len(used) and used.max() >= self.identities:
            raise ValueError(f"identity {used.max()} is not among the {self.identities} that were split")
        if len(np.unique(used)) < len(used):
            raise ValueError(self._overlap())
        empty = next((client for client, held in enumerate(self.clients) if not held), None)
        if empty is not None:
            raise ValueError(f"client {empty} holds no identity")
        if self.images_each is not None:
            if len(self.images_each) != len(self.clients):
                raise ValueError(f"images_each has {len(self.images_each)} numbers for {len(self.clients)} clients")
            if min(self.images_each, default=1) < 1:
                raise ValueError(f"images_each must be at least 1 everywhere, not {min(self.images_each)}")

    def __repr__(self) -> str:
        roles = f"{len(self.public)} public, {len(self.validation)} validation, {len(self.test)} test"
        return f"Partition({roles}, {len(self.clients)} clients, seed {self.seed})"

    def _roles(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from (("public", self.public), ("validation", self.validation), ("test", self.test))
        yield from ((f"client {number}", held) for number, held in enumerate(self.clients))

    def _overlap(self) -> str:
        role_of: dict[int, str] = {}
        found = []
        for role, held in self._roles():
            for identity in held:
                if identity in role_of:
                    found.append(f"identity {identity} is in {role_of[identity]} and in {role}")
                role_of.setdefault(identity, role)
        more = f", and {len(found) - 3} more" if len(found) > 3 else ""
        return f"roles overlap: {'; '.join(found[:3])}{more}"

    def population(self, faces: FaceSet) -> Population:
        """The clients, over the set that was split."""
        self._check_set(faces)
        return Population(faces, self.clients, self.images_each)

    def subset(self, faces: FaceSet, identities: Sequence[int]) -> FaceSet:
        """The faces of one role, e.g. ``subset(faces, partition.test)``: a view where its numbers are neighbours."""
        self._check_set(faces)
        return faces.subset(identities)

    def _check_set(self, faces: FaceSet) -> None:
        if self.identities is not None and len(faces) != self.identities:
            raise ValueError(
                f"this partition splits {self.identities} identities and the face set has {len(faces)}: "
                "read the same folder with the same exclusions, or split anew"
            )

    def manifest(self) -> dict[str, Any]:
        """All of it as values that JSON takes, with counts and a sha256 over the canonical JSON of the rest."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "seed": self.seed,
            "identities": self.identities,
            "counts": {
                "public": len(self.public),
                "validation": len(self.validation),
                "test": len(self.test),
                "clients": len(self.clients),
                "client_identities": sum(map(len, self.clients)),
            },
            "public": self.public,
            "validation": self.validation,
            "test": self.test,
            "clients": self.clients,
            "images_each": self.images_each,
        }
        return {**content, "sha256": _digest(content)}

    def text(self) -> str:
        """The manifest as it is written: equal for equal partitions, and for no others."""
        return _canonical(self.manifest())

    def write_manifest(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest whole or not at all."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="ascii") as file:
                file.write(self.text())
                file.flush()
                os.fsync(file.fileno())  # what is half there after a power cut would be another partition
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def read_manifest(path: str | os.PathLike[str]) -> Partition:
    """The partition that ``write_manifest`` wrote; refused where its content has changed since."""
    try:
        manifest = json.loads(Path(path).read_text(encoding="ascii"))
    except ValueError as reason:
        raise ValueError(f"{path} is not JSON ({reason}): restore it, or split anew from the seed") from reason
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is not a partition manifest: it does not say format {FORMAT!r}")
    stated = manifest.pop("sha256", None)
    found = _digest(manifest)
    if stated != found:
        raise ValueError(
            f"{path} was altered after it was written: it states sha256 {stated} and its content has {found}; "
            "restore it, or split anew from the seed"
        )
    images_each = manifest["images_each"]
    return Partition(
        public=tuple(manifest["public"]),
        validation=tuple(manifest["validation"]),
        test=tuple(manifest["test"]),
        clients=tuple(map(tuple, manifest["clients"])),
        images_each=None if images_each is None else tuple(images_each),
        identities=manifest["identities"],
        seed=manifest["seed"],
    )


def split(
    identities: int,
    *,
    public: int,
    clients: int,
    identities_each: int = 1,
    validation: int = 0,
    test: int,
    seed: int,
    images: Literal["all", "unequal"] = "all",
    images_min: int = 10,
    images_max: int = 100,
) -> Partition:
    """Shuffle the identities by ``seed`` and deal them: test first, then validation, public, and the clients.

    In that order, a run with more clients keeps the same people in test and in public. Identities left over are unused.
    ``images="unequal"`` lets each client use at most n images of each identity, n log-uniform between ``images_min``
    and ``images_max`` inclusive: P(n) = log((n+1)/n) / log((max+1)/min), so that the few who have many images have far
    more than most. Equal bounds give every client the same cap.
    """
    for name, number in (("public", public), ("clients", clients), ("validation", validation), ("test", test)):
        if number < 0:
            raise ValueError(f"{name} must not be negative: {number}")
    if images not in ("all", "unequal"):
        raise ValueError(f"images must be 'all' or 'unequal', not {images!r}")
    if identities_each < 1:
        raise ValueError(f"identities_each must be at least 1, not {identities_each}")
    needed = test + validation + public + clients * identities_each
    if needed > identities:
        raise ValueError(
            f"{needed - identities} identities are missing: {test} test + {validation} validation + {public} public + "
            f"{clients} clients × {identities_each} = {needed}, and the set has {identities}"
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(identities, generator=generator).numpy()
    in_test, in_validation, in_public, in_clients = np.split(order[:needed], np.cumsum([test, validation, public]))
    dealt = np.sort(in_clients.reshape(clients, identities_each), axis=1)
    return Partition(
        public=tuple(np.sort(in_public).tolist()),
        validation=tuple(np.sort(in_validation).tolist()),
        test=tuple(np.sort(in_test).tolist()),
        clients=tuple(zip(*dealt.T.tolist(), strict=True)),
        images_each=_log_uniform(clients, images_min, images_max, generator) if images == "unequal" else None,
        identities=identities,
        seed=seed,
    )


def _log_uniform(draws: int, low: int, high: int, generator: torch.Generator) -> tuple[int, ...]:
    if not 1 <= low <= high:
        raise ValueError(f"image counts need 1 ≤ images_min ≤ images_max, not {low} and {high}")
    uniform = torch.rand(draws, generator=generator, dtype=torch.float64)
    counts = (low * torch.exp(uniform * math.log((high + 1) / low))).floor().to(torch.int64)
    return tuple(counts.clamp(low, high).tolist())  # the clamp is for rounding at the two ends only


def _canonical(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(content).encode("ascii")).hexdigest()
