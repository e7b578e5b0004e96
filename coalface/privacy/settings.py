"""The privacy settings of a run, and what they refuse. No cryptography in here: a run without them needs none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from coalface import wire

if TYPE_CHECKING:
    from coalface.federation import Rounds
    from coalface.method import Method


HIDING = 1.0  # clips of noise on a sum, under which no attack of docs/audits.md told anybody apart


@dataclass(frozen=True)
class DP:
    """Differential privacy for users: what is known of everybody else's data hardly changes what is told of theirs."""

    noise: float = 0.0  # z: standard deviation of the noise on the sum, over the clip; 0 switches all of this off
    where: Literal["central", "distributed"] = "central"  # added by the server, or in shares by the clients
    clip: float = 1.0  # the largest L2 norm of a client's summed fields together; where it adapts, the first one
    clip_quantile: float = 0.0  # the clip follows this quantile of the norms (Andrew et al. 2021); 0 keeps it fixed
    group_clip: float = 1.0  # the same for what is summed in groups: chorus's embeddings
    group_noise: float = 0.0  # standard deviation of the noise on a group's sum, over group_clip
    delta: float = 1e-5  # below one over the number of clients
    budget: float = 0.0  # the run stops before ε passes this; 0 sets no bound
    summed_only: bool = False  # noise on sums over a cohort alone, beside what is revealed or summed in groups; no ε

    def __post_init__(self) -> None:
        if min(self.noise, self.group_noise, self.budget) < 0 or min(self.clip, self.group_clip) <= 0:
            raise ValueError(
                "dp.noise, group_noise and budget are at least 0, dp.clip and group_clip above 0, not "
                f"{self.noise:g}, {self.group_noise:g}, {self.budget:g}, {self.clip:g} and {self.group_clip:g}"
            )
        if not 0 < self.delta < 1 or not 0 <= self.clip_quantile < 1:
            raise ValueError(f"dp.delta and clip_quantile are shares, not {self.delta} and {self.clip_quantile}")
        if self.budget and not self.noise:
            raise ValueError(f"a budget of {self.budget} needs noise: set privacy.dp.noise")
        if self.budget and self.summed_only:
            raise ValueError("dp.summed_only has no ε, so that there is nothing to hold against dp.budget")


@dataclass(frozen=True)
class Privacy:
    """How sums are protected."""

    secure_sum: bool = False  # Summed fields travel masked: the server can only unmask their sum
    require_secure_sum: bool = False  # refuse sums in the open, and methods that reveal or whose sums hide nobody
    min_cohort: int = 16  # a client is never in a secure sum of fewer
    threshold: float = 2 / 3  # share of a cohort that must be left to unmask its sum; more than half
    value_bound: float = 4.0  # the largest number in an upload; it sets the quantum of the fixed point
    most_images: int = 0  # the most that a client may hold, where images weigh; 0 asks the simulation
    dp: DP = field(default_factory=DP)

    def __post_init__(self) -> None:
        if self.value_bound <= 0 or self.most_images < 0:
            raise ValueError(
                f"value_bound is above 0 and most_images at least 0, not {self.value_bound}, {self.most_images}"
            )
        if self.dp.noise and self.dp.where == "distributed" and not self.secure_sum:
            raise ValueError(
                "shares of noise hide nobody in the open: privacy.dp.where=distributed needs secure_sum=true"
            )

    def without_bounds(self, rules: Rounds) -> Rounds:
        """Under noise nobody is left out for a long update or many images: that would show in how many counted.

        Clipping is enough, and everybody weighs the same.
        """
        return replace(rules, max_norm=0.0, most_images=0) if self.dp.noise else rules

    def largest_weight(self) -> int:
        """Of a client in a secure sum; 0 asks the simulation. Under noise everybody weighs the same."""
        return 1 if self.dp.noise else self.most_images

    def any(self) -> bool:
        """Whether anything is protected."""
        return self.secure_sum or self.dp.noise > 0

    def noise_hides(self) -> bool:
        """Whether the server itself sees sums only with so much noise that no audit told a client apart."""
        return self.dp.where == "distributed" and self.dp.noise >= HIDING

    def check(self, method: Method, name: str, cohort: int, clients: int) -> None:
        """Refuse, by name, what these settings cannot protect."""
        self.check_method(method, name)
        if self.secure_sum and cohort < self.min_cohort:
            raise ValueError(
                f"a cohort of {cohort} is under privacy.min_cohort={self.min_cohort}: "
                "no client would take part; raise rounds.cohort"
            )
        if self.dp.noise and self.dp.delta >= 1 / clients:
            raise ValueError(
                f"privacy.dp.delta={self.dp.delta} would allow one of {clients} clients to be published: "
                f"set it below {1 / clients:.2g}"
            )

    def check_method(self, method: Method, name: str) -> None:
        """The part of it that needs no clients: before a face is drawn or read."""
        reveals = revealed(method)
        if self.require_secure_sum and not self.secure_sum:
            raise ValueError("privacy.require_secure_sum=true, and the sums would be open: set privacy.secure_sum=true")
        if self.require_secure_sum and reveals:
            raise ValueError(
                f"privacy.require_secure_sum=true refuses {name}: it reveals {' and '.join(reveals)} of each client"
            )
        for row in told_apart(method) if self.require_secure_sum and not self.noise_hides() else ():
            raise ValueError(
                f"privacy.require_secure_sum=true refuses {name}: a sum does not hide a client's part of {row.field}, "
                f"as {row.apart}; choose a method whose sums do, or privacy.dp.where=distributed with "
                f"privacy.dp.noise={HIDING:g} or more"
            )
        if self.dp.noise:
            self._check_noise(method, name, reveals)

    def _check_noise(self, method: Method, name: str, reveals: list[str]) -> None:
        seen = {row.seen for row in wire.disclosure(method.types.upload)}
        if reveals and not self.dp.summed_only:
            raise ValueError(
                f"no ε holds for {name}: it reveals {' and '.join(reveals)} of each client, beside any noise; "
                "privacy.dp.summed_only=true runs it with the noise, and without an ε"
            )
        if wire.Seen.SUMMED not in seen:
            raise ValueError(f"{name} sums nothing, so that there is nothing to add noise to: set privacy.dp.noise=0")
        if wire.Seen.GROUPED in seen and not self.dp.group_noise and not self.dp.summed_only:
            raise ValueError(
                f"{name} sums in groups too: set privacy.dp.group_noise; or privacy.dp.summed_only=true, which leaves "
                "these sums without noise, and the run without an ε"
            )
        if wire.Seen.GROUPED not in seen and self.dp.group_noise:
            raise ValueError(f"{name} sums nothing in groups: privacy.dp.group_noise={self.dp.group_noise} must be 0")
        if getattr(method, "normalisation", "frozen") == "average":
            raise ValueError(
                f"batch-norm statistics of {name} have no bound to clip at: set method.normalisation=frozen"
            )


def told_apart(method: Method) -> list[wire.Disclosure]:
    """The summed fields of a method in which an attack tells one client's part from the sum."""
    return [row for row in wire.disclosure(method.types.upload) if row.apart]


def revealed(method: Method) -> list[str]:
    """The fields of a method that the server sees of each client."""
    types = [method.types.upload, *([method.types.collected] if method.types.collected else [])]
    return [row.field for kind in types for row in wire.disclosure(kind) if row.seen is wire.Seen.REVEALED]
