"""Data centres as clients: each holds the recordings of one domain, live and attack; users have another domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.data.recordings import ATTACKS, Recordings, hold_out, join

FOUR = ("O", "C", "I", "M")  # OULU-NPU, CASIA-MFSD, Idiap Replay-Attack, MSU-MFSD: the paper's usual protocols


@dataclass(frozen=True)
class DomainData:
    """Which domains are data centres, which is the users', and how much is recorded in each."""

    source: str = "synthetic"  # or a folder of real domains (``spoof_folders``)
    target: str = "M"  # the users' domain, which nobody trains on
    centres: tuple[str, ...] = ()  # empty: those of O, C, I and M that are not the target
    size: int = 64  # pixels
    subjects: int = 20  # of each centre, to train on
    dev_subjects: int = 10  # of each centre, for the threshold
    test_subjects: int = 20  # of the users
    videos: int = 2  # of each subject, live, and as many attacks
    frames: int = 4  # of each video
    crop: str = ""  # of real videos, box or centre; empty: around the face box where every video of a set has one
    margin: float = 1.3  # of real videos: side of the crop, in longer sides of the face box
    kinds: tuple[str, ...] = ()  # of attack, one for each centre, which knows no other; empty: all kinds everywhere

    def __post_init__(self) -> None:
        if self.source != "synthetic" and not self.centres:
            raise ValueError(f"which folders in {self.source} are the data centres? Set data.centres, a list")
        if self.target in self.centres:
            raise ValueError(f"{self.target} is the users' domain: it cannot be a data centre too")
        if len(set(self.centres)) < len(self.centres):
            raise ValueError(f"each data centre is one domain, not {', '.join(self.centres)}")
        if self.kinds and len(self.kinds) != len(self.sources()):
            raise ValueError(f"{len(self.sources())} centres and {len(self.kinds)} kinds of attack: give one for each")
        if self.crop not in ("", "box", "centre"):
            raise ValueError(f"crop is box, centre or empty, not {self.crop!r}")
        if unknown := set(self.kinds) - set(ATTACKS[1:]):
            raise ValueError(f"there is no attack {min(unknown)!r}: kinds are {', '.join(ATTACKS[1:])}")

    def sources(self) -> tuple[str, ...]:
        """The domains of the data centres."""
        return self.centres or tuple(name for name in FOUR if name != self.target)

    def domains(self) -> tuple[str, ...]:
        """Theirs, and the users'."""
        return (*self.sources(), self.target)


class DrawDomain(Protocol):
    """Where recordings come from: ``coalface.data.attacks.draw_domain`` draws synthetic ones."""

    def __call__(
        self,
        name: str,
        split: str,
        subjects: int,
        videos: int,
        frames: int,
        size: int,
        seed: int,
        device: torch.device | str,
    ) -> Recordings: ...


@dataclass(frozen=True)
class DomainWorld:
    """Centres that train, their own dev recordings for the threshold, and the users' test recordings."""

    clients: Population
    dev: dict[str, Recordings]
    test: Recordings
    home: dict[str, Tensor]  # domain -> live frames there, of nobody who trained or is tested; empty: not asked for
    dev_at_home: dict[str, Recordings]  # centre -> its dev recordings of other people than those


def load(
    data: DomainData,
    seed: int,
    device: torch.device,
    draw: DrawDomain,
    users_at_home: bool = False,
    elsewhere: Population | None = None,
) -> DomainWorld:
    """All recordings of a run. Nobody is in two splits. Live frames of users who are not tested come if asked for.

    ``elsewhere``: real centres, who train on their own recordings.
    """
    if elsewhere and users_at_home:
        raise ValueError("at_home takes live frames of the centres, and these are on machines of their own")

    def drawn(name: str, split: str, subjects: int) -> Recordings:
        return draw(name, split, subjects, data.videos, data.frames, data.size, seed, device)

    def known(split: str, subjects: int) -> dict[str, Recordings]:
        all_kinds = {name: drawn(name, split, subjects) for name in data.sources()}
        if not data.kinds:
            return all_kinds
        return {name: _only(kind, all_kinds[name]) for name, kind in zip(data.sources(), data.kinds, strict=True)}

    train = {} if elsewhere else known("train", data.subjects)
    dev = known("dev", data.dev_subjects)
    test = drawn(data.target, "test", data.test_subjects)
    home, others = {}, {}
    if users_at_home:
        parted = {name: hold_out(recordings, 0.5, seed) for name, recordings in dev.items()}
        others = {name: rest for name, (rest, _) in parted.items()}
        places = {name: here for name, (_, here) in parted.items()}
        places[data.target] = drawn(data.target, "dev", data.dev_subjects)
        home = {name: held.images[held.live] for name, held in places.items()}
    return DomainWorld(elsewhere or centres(list(train.values())), dev, test, home, others)


def _only(kind: str, recordings: Recordings) -> Recordings:
    """The live recordings, and the attacks of this kind."""
    return recordings.select(recordings.live | (recordings.attack == ATTACKS.index(kind)))


def centres(domains: Sequence[Recordings]) -> Population:
    """One client for each domain. Its label 0 is attack and 1 is live; pooled, domain k has 2k and 2k + 1.

    So a population of centres is one of faces whose "identities" are the attacks and the live frames of each domain,
    and everything that runs clients runs centres.
    """
    together = join(domains)
    domain = torch.repeat_interleave(torch.tensor([len(part) for part in domains]))
    label = 2 * domain.to(together.attack.device) + together.live
    order = label.argsort(stable=True)
    counts = torch.bincount(label, minlength=2 * len(domains)).cpu()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    for number in range(len(domains)):
        attacks, live = counts[2 * number : 2 * number + 2].tolist()
        if not attacks or not live:
            raise ValueError(f"centre {number} holds {live} live and {attacks} attack frames: it needs both to learn")
    faces = FaceSet(together.images[order], offsets, together.depth[order])
    return Population(faces, tuple((2 * number, 2 * number + 1) for number in range(len(domains))))


def live(labels: Tensor) -> Tensor:
    """Whether each label of a centre, or of pooled centres, is live: float [n], the target of a detector."""
    return (labels % 2).to(torch.get_default_dtype())
