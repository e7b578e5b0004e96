"""What the server holds of a cohort's uploads: weighted sums, and what was revealed. Nothing else survives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from coalface import tree, wire

PIECE = 1 << 18  # numbers that a CPU converts at once, and finds in its cache when it adds them


class Received:
    """A streaming sum of uploads: memory for one model, whatever the size of the cohort.

    Sums are kept in float64, so that the order of clients and the weights do not show in float32 results,
    and one client alone gives back exactly what it sent.
    """

    def __init__(self, upload: type[wire.Upload], group_of: Callable[[int], int] | None = None) -> None:
        """``group_of`` says which group a client's group-summed fields are summed in."""
        self._upload = upload
        self._group_of = group_of
        self._seen = {row.field: row.seen for row in wire.disclosure(upload)}
        self._sums: dict[str, Any] = {}
        self._dtypes: dict[str, Any] = {}  # of each leaf, as an empty tensor of that dtype
        self._revealed: dict[str, dict[int, Any]] = {field: {} for field in self._fields(wire.Seen.REVEALED)}
        self._groups: dict[str, dict[int, tuple[Any, int]]] = {field: {} for field in self._fields(wire.Seen.GROUPED)}
        self._counts = dict.fromkeys(self._fields(wire.Seen.COUNT), 0)
        self._waiting: dict[str, tuple[Any, float]] = {}  # the last value of each summed field, and its weight so far
        self.weight = 0.0  # of all that counted
        self.clients: list[int] = []

    def add(self, client: int, upload: wire.Upload) -> None:
        """Count one checked upload in; only its revealed fields and counts are remembered as this client's."""
        weight = float(getattr(upload, self._upload.weight)) if self._upload.weight else 1.0
        for field, seen in self._seen.items():
            value = getattr(upload, field)
            if seen is wire.Seen.SUMMED:
                self._collect(field, value, weight)
            elif seen is wire.Seen.GROUPED:
                self._add_to_group(field, client, value)
            elif seen is wire.Seen.REVEALED:
                self._revealed[field][client] = value
            else:
                self._counts[field] += int(value)
        self.weight += weight
        self.clients.append(client)

    def reveal(self, client: int, upload: wire.Upload) -> None:
        """Remember what one upload reveals, and nothing else of it: the rest comes as sums."""
        for field in self._fields(wire.Seen.REVEALED):
            self._revealed[field][client] = getattr(upload, field)

    def take_sums(
        self,
        clients: list[int],
        weight: float,
        sums: dict[str, Any],
        like: wire.Upload,
        counts: dict[str, int],
        groups: dict[str, dict[int, tuple[Any, int]]],
    ) -> None:
        """Sums that were made elsewhere, under masks; ``like`` has the dtypes, a group's sum its number of members."""
        self.clients, self.weight, self._sums, self._counts, self._groups = clients, weight, sums, counts, groups
        self._dtypes = {field: tree.transform(lambda leaf: leaf.new_empty(0), getattr(like, field)) for field in sums}

    def disturb(self, noise: Callable[[str, Tensor], Tensor]) -> None:
        """Add noise to every sum: ``noise`` has the field and the sum so far, and gives the sum with noise on it."""
        for field in self._fields(wire.Seen.SUMMED):
            self._settle(field)
            self._sums[field] = _noisy(field, self._sums[field], noise)
        for field, groups in self._groups.items():
            for group, (total, members) in sorted(groups.items()):
                groups[group] = (_noisy(field, total, noise), members)

    def mean(self, field: str) -> Any:
        """The weighted mean of a summed field over the cohort, in the dtype in which it travelled."""
        self._must_be(field, wire.Seen.SUMMED, "only the sum over the cohort of a summed field exists")
        if not self.weight:
            raise ValueError("no upload counted: there is no mean of nothing")
        if field in self._waiting and field not in self._sums:  # all handed in the same: it is the mean
            return tree.transform(Tensor.detach, self._waiting[field][0])
        self._settle(field)
        return tree.transform(
            lambda total, dtype: (total / self.weight).to(dtype.dtype), self._sums[field], self._dtypes[field]
        )

    def whole_groups(self, field: str, size_of: Callable[[int], int]) -> dict[int, Any]:
        """The sums of the groups whose members all counted; a partial group's sum is never given out."""
        self._must_be(field, wire.Seen.GROUPED, "it is not summed in groups")
        sums = self._groups[field]
        return {group: total for group, (total, members) in sums.items() if members == size_of(group)}

    def revealed(self, field: str) -> dict[int, Any]:
        """Each client's own value of a revealed field."""
        self._must_be(field, wire.Seen.REVEALED, "the server does not see one client's value of it")
        return self._revealed[field]

    def count(self, field: str) -> int:
        """The total of a count over the cohort."""
        self._must_be(field, wire.Seen.COUNT, "it has no total")
        return self._counts[field]

    def _add_to_group(self, field: str, client: int, value: Any) -> None:
        if self._group_of is None:
            raise ValueError(f"{field} is summed in groups, but nobody said which group client {client} is in")
        group = self._group_of(client)
        if group not in self._groups[field]:
            self._groups[field][group] = (tree.transform(torch.zeros_like, value), 0)
        total, members = self._groups[field][group]
        self._groups[field][group] = (
            tree.transform(torch.add, total, tree.transform(Tensor.detach, value)),
            members + 1,
        )

    def _collect(self, field: str, value: Any, weight: float) -> None:
        """Clients that an engine trained together hand in the same object: it is added once, with their weights."""
        last, so_far = self._waiting.get(field, (value, 0.0))
        if last is not value:
            self._settle(field)
            so_far = 0.0
        self._waiting[field] = (value, so_far + weight)

    def _settle(self, field: str) -> None:
        if field not in self._waiting:
            return
        value, weight = self._waiting.pop(field)
        if field not in self._sums:
            self._sums[field] = tree.transform(lambda leaf: torch.zeros_like(leaf, dtype=torch.float64), value)
            self._dtypes[field] = tree.transform(lambda leaf: torch.empty(0, dtype=leaf.dtype), value)
        tree.transform(lambda total, leaf: _added(total, leaf.detach(), weight), self._sums[field], value)

    def _fields(self, seen: wire.Seen) -> list[str]:
        return [field for field, who in self._seen.items() if who is seen]

    def _must_be(self, field: str, seen: wire.Seen, otherwise: str) -> None:
        if field not in self._seen:
            raise KeyError(f"{self._upload.__qualname__} has no field {field!r}")
        if self._seen[field] is not seen:
            raise PermissionError(f"{field} is {self._seen[field].value}: {otherwise}")


def _added(total: Tensor, leaf: Tensor, weight: float) -> Tensor:
    """``total`` with so many times the leaf, in place. A CPU is slow to add two dtypes, and quick to convert first."""
    if total.is_cuda or not total.is_contiguous():
        return total.add_(leaf, alpha=weight)
    for part, more in zip(total.flatten().split(PIECE), leaf.flatten().split(PIECE), strict=True):
        part.add_(more.double(), alpha=weight)
    return total


def _noisy(field: str, total: Any, noise: Callable[[str, Tensor], Tensor]) -> Any:
    """In the order of names, which is the same after a resume; that of a dict need not be."""
    flat = tree.leaves(total, field)
    return tree.refill(total, {path: noise(field, flat[path]) for path in sorted(flat)}, field)
