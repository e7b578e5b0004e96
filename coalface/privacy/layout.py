"""An upload as the two vectors of a secure sum, and the sums back as fields.

    vector         weight × every Summed leaf, in fixed point; then, as whole numbers, the weight and every Count;
                   then the losses, in a coarser fixed point
    group vector   every SummedInGroup leaf, in fixed point, unweighted

So weights, counts and losses are summed inside, and the server sees nobody's. A Revealed field is in neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalface import tree, wire
from coalface.privacy.noise import SLACK
from coalface.privacy.secagg.fixed_point import FixedPoint, OutOfRange, Words

if TYPE_CHECKING:
    from coalface.privacy.noise import Noise

LOSS_SLOTS = 8  # named parts of a loss; which part is in which slot is no secret
LOSS_BOUND = 1000.0


@dataclass
class UploadLayout:
    """Where everything is. ``like`` is an upload of the right shapes."""

    like: wire.Upload
    cohort: int
    group_sizes: list[int]  # members of each group that is called
    value_bound: float
    most_images: int  # the largest weight that a client may have
    survivors: int  # the fewest clients that can be in a sum
    noise: Noise | None = None
    among: tuple[int, int] = (0, 0)  # how many have all of the noise on a sum, and on a group's; 0: the fewest
    loss_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.seen = {row.field: row.seen for row in wire.disclosure(type(self.like))}
        self.counts = [name for name, seen in self.seen.items() if seen is wire.Seen.COUNT]
        self.revealed = [name for name, seen in self.seen.items() if seen is wire.Seen.REVEALED]
        spread = sqrt(self.cohort / self.survivors)  # more shares of noise than the fewest that must be there
        bound = min(self.value_bound, SLACK * self.noise.clip) if self.noise else self.value_bound
        in_group = min(self.value_bound, SLACK * self.noise.group_clip) if self.noise else self.value_bound
        room = 12 * spread * self.noise.summed if self.noise else 0.0
        self.fixed = FixedPoint(bound, self.cohort, room)
        sizes = self.group_sizes or [1]
        room = 12 * sqrt(max(sizes) / min(sizes)) * self.noise.grouped if self.noise else 0.0
        self.fixed_in_group = FixedPoint(in_group, max(sizes), room)
        room = 12 * spread * self.noise.losses if self.noise else 0.0
        self.fixed_loss = FixedPoint(LOSS_BOUND, self.cohort, room)
        self.most = self.most_images if self.like.weight else 1  # that one client can weigh
        self.values = self._numbers(wire.Seen.SUMMED)
        self.size = self.values + 1 + len(self.counts) + LOSS_SLOTS
        self.group_size = self._numbers(wire.Seen.GROUPED)
        self.revealed_bytes = sum(leaf.nbytes for leaf in self._leaves(self.like, wire.Seen.REVEALED).values())

    def vectors(self, upload: wire.Upload, losses: dict[str, float], client: int) -> tuple[Words, Words]:
        """One client's two vectors; OutOfRange if a number does not fit."""
        weight = float(getattr(upload, upload.weight)) if upload.weight else 1.0
        most = self.most
        if not weight <= most:
            raise OutOfRange(f"{weight:.0f} images, and privacy.most_images is {most}")
        whole = [weight, *(getattr(upload, name) for name in self.counts)]
        if max(whole) * self.cohort >= 1 << 31:
            raise OutOfRange(f"a count of {max(whole):.0f} in a cohort of {self.cohort}")
        vector = np.empty(self.size, np.uint32)
        summed, slots = vector[: self.values], vector[-LOSS_SLOTS:]
        self._encode(upload, wire.Seen.SUMMED, self.fixed, weight / most, summed)
        vector[self.values : -LOSS_SLOTS] = whole
        self.fixed_loss.encode(self._slots(losses), out=slots)
        grouped = np.empty(self.group_size, np.uint32)
        self._encode(upload, wire.Seen.GROUPED, self.fixed_in_group, 1.0, grouped)
        if self.noise is not None:
            n, fewest_in_group = self.noise, min(self.group_sizes, default=1)
            among, in_group = self.among[0] or self.survivors, self.among[1] or fewest_in_group
            _add(summed, n.share("summed", among, len(summed), self.fixed.quantum, client))
            used = slots[: len(self.loss_names)]
            _add(used, n.share("losses", among, len(used), self.fixed_loss.quantum, client))
            _add(grouped, n.share("grouped", in_group, len(grouped), self.fixed_in_group.quantum, client))
        return vector, grouped

    def weight_and_counts(self, total: Words, clients: int) -> tuple[float, dict[str, int]]:
        """The sum of the weights, and of each count; OutOfRange if so many honest clients cannot weigh that."""
        whole = total[self.values : self.values + 1 + len(self.counts)].view(np.int32)
        if not 0 < whole[0] <= clients * self.most:
            raise OutOfRange(f"{clients} clients weigh 1 to {clients * self.most} together, and not {whole[0]}")
        return float(whole[0]), {name: int(value) for name, value in zip(self.counts, whole[1:], strict=True)}

    def sums(self, total: Words) -> dict[str, Any]:
        """Each Summed field: the weighted sum, in float64."""
        return self._fields(wire.Seen.SUMMED, self.fixed.decode(total[: self.values]) * self.most)

    def group_sums(self, total: Words) -> dict[str, Any]:
        """Each SummedInGroup field of one group, in the dtype in which it travels."""
        fields = self._fields(wire.Seen.GROUPED, self.fixed_in_group.decode(total))
        return {
            name: tree.transform(lambda leaf, like: leaf.to(like.dtype), value, getattr(self.like, name))
            for name, value in fields.items()
        }

    def losses(self, total: Words, clients: int) -> dict[str, float]:
        """The mean of each named part."""
        slots = self.fixed_loss.decode(total[-LOSS_SLOTS:])
        return {name: float(value) / clients for name, value in zip(self.loss_names, slots, strict=False)}

    # --- parts ----------------------------------------------------------------------------------------------------

    def _slots(self, losses: dict[str, float]) -> NDArray[np.float64]:
        if not self.loss_names:
            self.loss_names = tuple(losses)
        if set(losses) != set(self.loss_names) or len(losses) > LOSS_SLOTS:
            raise OutOfRange(f"losses named {sorted(losses)}, and {LOSS_SLOTS} at most, the same for all, are summed")
        slots = np.zeros(LOSS_SLOTS)
        slots[: len(losses)] = [losses[name] for name in self.loss_names]
        return slots

    def _encode(self, upload: wire.Upload, seen: wire.Seen, fixed: FixedPoint, factor: float, out: Words) -> None:
        """Leaf by leaf into its place: an update is large, and a copy of it in float64 twice that."""
        start = 0
        for leaf in self._leaves(upload, seen).values():
            flat = leaf.detach().cpu().flatten()
            flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
            fixed.encode(flat.numpy(), factor, out[start : start + len(flat)])
            start += len(flat)

    def _leaves(self, upload: wire.Upload, seen: wire.Seen) -> dict[str, Tensor]:
        """In the order of names, which all machines have in common; that of a dict changes on its way over a disk."""
        names = [name for name, who in self.seen.items() if who is seen]
        found = {path: leaf for name in names for path, leaf in tree.leaves(getattr(upload, name), name).items()}
        return dict(sorted(found.items()))

    def _numbers(self, seen: wire.Seen) -> int:
        return sum(leaf.numel() for leaf in self._leaves(self.like, seen).values())

    def _fields(self, seen: wire.Seen, flat: NDArray[np.float64]) -> dict[str, Any]:
        like = self._leaves(self.like, seen)
        pieces = torch.from_numpy(flat).split([leaf.numel() for leaf in like.values()])
        found = {
            path: piece.reshape(leaf.shape).to(leaf.device)
            for (path, leaf), piece in zip(like.items(), pieces, strict=True)
        }
        names = [name for name, who in self.seen.items() if who is seen]
        return {name: tree.refill(getattr(self.like, name), found, name) for name in names}


def _add(words: Words, noise: NDArray[np.int64]) -> None:
    np.add(words, noise.astype(np.uint32), out=words)
