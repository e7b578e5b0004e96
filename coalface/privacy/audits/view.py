"""What the server sees of a round, by how uploads are protected.

plain             every upload, as it was sent
secure sum        of summed fields the mean over the cohort, of group-summed ones the sums of whole groups, of counts
                  the total
secure sum + DP   the same, each client's part clipped, and Gaussian noise on every sum: its standard deviation is
                  ``noise`` times the clip

What a method REVEALS is seen under every view: a sum cannot protect what is not summed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coalface import tree, wire
from coalface.method import Method
from coalface.received import Received
from coalface.wire import Seen as Who

MIN_COHORT = 16  # fewer clients in a sum are not called protected here


@dataclass(frozen=True)
class View:
    """How uploads are protected."""

    name: str
    summed: bool
    noise: float = 0.0  # standard deviation of the noise on a sum, in units of the clip; 0: neither noise nor clip

    def __post_init__(self) -> None:
        if self.noise < 0 or (self.noise and not self.summed):
            raise ValueError(f"noise is at least 0 and goes on sums, not {self.noise} on summed={self.summed}")


PLAIN = View("plain", summed=False)
SECURE_SUM = View("secure sum", summed=True)


def with_noise(multiplier: float = 1.0) -> View:
    """The secure sum with differential privacy of this noise multiplier."""
    return View("secure sum + DP", summed=True, noise=multiplier)


@dataclass(frozen=True)
class Seen:
    """What the server can lay beside one client's name."""

    upload: Any  # of the method's upload type; summed fields hold the cohort's mean unless the client stands alone
    together: int  # clients in that mean


def seen(
    view: View,
    method: Method,
    server: Any,
    registered: int,
    uploads: dict[int, wire.Upload],
    generator: torch.Generator,
) -> dict[int, Seen]:
    """What the server sees of each client of one cohort. Fields of a group that is not whole are zeros."""
    if not view.summed:
        return {client: Seen(upload, 1) for client, upload in uploads.items()}
    if len(uploads) < MIN_COHORT:
        raise ValueError(f"a secure sum of {len(uploads)} clients: raise rounds.cohort to {MIN_COHORT} or more")
    kind = method.types.upload
    marks = {row.field: row.seen for row in wire.disclosure(kind)}
    clips = {mark: _clip(uploads, marks, mark) for mark in (Who.SUMMED, Who.GROUPED)} if view.noise else {}
    received = Received(kind, lambda client: method.group(server, client))
    weights = [float(getattr(upload, kind.weight)) if kind.weight else 1.0 for upload in uploads.values()]
    for client, upload in uploads.items():
        received.add(client, _clipped(upload, marks, clips))
    sizes = Counter(method.group(server, client) for client in range(registered))
    shared: dict[str, Any] = {}
    groups: dict[str, dict[int, Any]] = {}
    for field, mark in marks.items():
        if mark is Who.SUMMED:
            spread = view.noise * clips.get(mark, 0.0) * max(weights) / sum(weights)
            shared[field] = _noisy(received.mean(field), spread, generator)
        elif mark is Who.GROUPED:
            sums = received.whole_groups(field, lambda group: sizes[group])
            spread = view.noise * clips.get(mark, 0.0)
            groups[field] = {group: _noisy(total, spread, generator) for group, total in sums.items()}
        elif mark is Who.COUNT:
            shared[field] = received.count(field)
    found = {}
    for client, upload in uploads.items():
        group = method.group(server, client)
        own = {
            field: sums[group] if group in sums else tree.transform(torch.zeros_like, getattr(upload, field))
            for field, sums in groups.items()
        }
        found[client] = Seen(dataclasses.replace(upload, **shared, **own), len(uploads))  # type: ignore[type-var]
    return found


def _norm(upload: wire.Upload, fields: list[str]) -> float:
    leaves = [leaf for field in fields for leaf in tree.leaves(getattr(upload, field)).values()]
    return float(torch.stack([leaf.double().square().sum() for leaf in leaves]).sum().sqrt()) if leaves else 0.0


def _clip(uploads: dict[int, wire.Upload], marks: dict[str, Who], mark: Who) -> float:
    """The median norm over the cohort: half of the clients are cut, as adaptive clipping aims for."""
    fields = [field for field, who in marks.items() if who is mark]
    return float(torch.tensor([_norm(upload, fields) for upload in uploads.values()]).median())


def _clipped(upload: Any, marks: dict[str, Who], clips: dict[Who, float]) -> Any:
    changed: dict[str, Any] = {}
    for mark, clip in clips.items():
        fields = [field for field, who in marks.items() if who is mark]
        share = min(1.0, clip / max(_norm(upload, fields), 1e-12))
        changed |= {field: tree.transform(lambda leaf, s=share: s * leaf, getattr(upload, field)) for field in fields}
    return dataclasses.replace(upload, **changed)


def _noisy(value: Any, spread: float, generator: torch.Generator) -> Any:
    if not spread:
        return value

    def add(leaf: Tensor) -> Tensor:
        return leaf + spread * torch.randn(leaf.shape, generator=generator).to(leaf)

    return tree.transform(add, value)
