"""The faces of one run: public ones for the server, clients with theirs, and test people whom nobody trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from coalface import seeding
from coalface.data import synthetic
from coalface.data.faces import read_folder
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.partition import Partition, split
from coalface.data.population import Population
from coalface.data.public import Public

Progress = Callable[[int, int], None]  # (images done, images in all)
CONDITIONS = {"easy": synthetic.EASY, "standard": synthetic.STANDARD, "hard": synthetic.HARD}


@dataclass(frozen=True)
class Data:
    """Which faces, and how identities become public, clients and test."""

    source: str = "synthetic"  # or a folder of photographs with one sub-folder per identity
    cache: str = ""  # a folder for decoded photographs, mapped into memory; empty: they are decoded into memory
    skip_broken: bool = False  # leave out photographs that cannot be decoded, and say how many; else they are refused
    size: int = 64  # pixels
    difficulty: Literal["easy", "standard", "hard"] = "hard"  # of synthetic photographs of clients and test people
    public_difficulty: Literal["same", "easy", "standard", "hard"] = "same"  # of the server's: "easy" is a studio
    public: int = 200  # identities that the server pre-trains on; 0 starts from scratch
    public_images: int = 20  # at most so many of each
    clients: int = 100
    identities_each: int = 1
    images_each: int = 20  # at most so many of each identity
    probe_images: int = 0  # of each client's identity so many are kept from training, for the personal numbers
    probed_clients: int = 0  # so many clients' own models are measured, evenly spread; 0 measures all
    unequal: bool = False  # clients hold unequal numbers of images, between 2 and images_each
    test: int = 100  # identities that nobody trains on
    test_images: int = 10
    pairs: int = 6000  # LFW-style test pairs, half of them genuine, in 10 folds

    def __post_init__(self) -> None:
        if self.size < 16 or self.clients < 1 or self.identities_each < 1 or self.images_each < 2 or self.test < 20:
            raise ValueError(
                "size must be at least 16, clients and identities_each at least 1, images_each at least 2, test at "
                f"least 20, not {self.size}, {self.clients}, {self.identities_each}, {self.images_each}, {self.test}"
            )
        if self.probe_images < 0 or self.probe_images == 1 or self.probed_clients < 0:
            raise ValueError(
                "probe_images is 0, or 2 and more to make a pair, and probed_clients at least 0, not "
                f"{self.probe_images} and {self.probed_clients}"
            )
        if self.pairs < 20 or self.pairs % 20:
            raise ValueError(f"pairs must be a multiple of 20 (10 folds, half genuine), not {self.pairs}")

    def kind(self) -> str:
        """The faces in words, without the name of a folder."""
        return "synthetic faces" if self.source == "synthetic" else "photographs"

    def images(self) -> int | None:
        """How many synthetic photographs this takes; None for a folder, which has as many as it has."""
        if self.source != "synthetic":
            return None
        clients = self.clients * self.identities_each * (self.images_each + self.probe_images)
        return self.public * self.public_images + clients + self.test * self.test_images


@dataclass(frozen=True)
class World:
    """Three disjoint sets of people over one FaceSet; and images of the clients' people that nobody trains on."""

    public: Population | None  # one client, the server itself; None: from scratch
    clients: Population
    probes: FaceView | None  # labels are classes of the federation; None: none were asked for
    test: FaceSet
    partition: Partition
    skipped: int = 0  # photographs left out as broken
    files: str | None = None  # a hash over the photographs' files; None: they were drawn, or somebody else read them

    def everyone(self) -> Population:
        """The clients, and the public people as one more: whom central training sees if clients hold public faces."""
        return self.clients if self.public is None else self.clients.joined(self.public)


def load(
    data: Data,
    seed: int,
    device: torch.device,
    progress: Progress | None = None,
    elsewhere: Population | None = None,
) -> World:
    """Draw or read the faces, decode them once, and deal the identities out.

    ``elsewhere``: real clients, whose faces are not here. A folder then holds public and test people only; synthetic
    people are dealt as ever, so that a rehearsal has the public and test people of the simulation.
    """
    skipped = 0
    files = None
    if data.source == "synthetic":
        needed = data.public + data.clients * data.identities_each + data.test
        partition = _split(needed, data, seed, data.clients)
        faces = _drawn(partition, data, seeding.derive(seed, "faces"), device, progress)
    else:
        folder = Path(data.source)
        fewest = 2 + data.probe_images
        photos = read_folder(
            folder,
            data.size,
            cache=data.cache or None,
            min_images=fewest,
            skip_broken=data.skip_broken,
            progress=progress,
        )
        skipped = photos.skipped
        files = photos.files
        partition = _split(len(photos.faces), data, seed, clients=0 if elsewhere else data.clients)
        faces = FaceSet(resident(photos.faces.images, device), photos.faces.offsets)
    away = None if faces.images.device.type == device.type else device  # faces that do not fit go there by the batch
    seen = Public(FaceView.of(faces, partition.public, data.public_images) if partition.public else None)
    caps = partition.images_each or (data.images_each,) * data.clients
    if elsewhere:
        clients = replace(elsewhere, public=seen)
    else:
        clients = Population(faces, partition.clients, caps, device=away, public=seen)
    probes = None
    if data.probe_images and elsewhere is None:
        clients, probes = with_probes(clients, data.probe_images)
    public = Population(faces, (partition.public,), (data.public_images,), device=away) if partition.public else None
    test = _at_most(partition.subset(faces, partition.test), data.test_images)
    return World(public, clients, probes, test, partition, skipped, files)


def resident(images: Tensor, device: torch.device) -> Tensor:
    """The images on the device, if they leave half of its free memory to training; else where they are."""
    if device.type == "cuda" and images.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return images
    return images.to(device)


def with_probes(clients: Population, images: int) -> tuple[Population, FaceView]:
    """The last images of each of the clients' identities as probes, and the clients without them."""
    identities = torch.tensor([who for held in clients.clients for who in held])
    caps = torch.tensor(clients.images_each).repeat_interleave(torch.tensor([len(held) for held in clients.clients]))
    left = clients.faces.counts()[identities] - images
    trained = replace(clients, images_each=None, images_of_class=tuple(caps.minimum(left).tolist()))
    rows = (clients.faces.offsets[identities + 1] - images)[:, None] + torch.arange(images)
    labels = torch.arange(len(identities)).repeat_interleave(images)
    return trained, FaceView(clients.faces, rows.flatten(), labels, len(identities))


def _split(identities: int, data: Data, seed: int, clients: int) -> Partition:
    return split(
        identities,
        public=data.public,
        clients=clients,
        identities_each=data.identities_each,
        test=data.test,
        seed=seeding.derive(seed, "partition"),
        images="unequal" if data.unequal else "all",
        images_min=2,
        images_max=data.images_each,
    )


def _drawn(partition: Partition, data: Data, seed: int, device: torch.device, progress: Progress | None) -> FaceSet:
    """Photographs of everyone: as many as their role uses, the public ones under conditions of their own."""
    everyone = partition.identities or 0
    public, test = set(partition.public), set(partition.test)
    rows = [
        data.public_images
        if who in public
        else data.test_images
        if who in test
        else data.images_each + data.probe_images
        for who in range(everyone)
    ]
    private = synthetic.draw_faceset(
        0, everyone, rows, data.size, seed, CONDITIONS[data.difficulty], str(device), progress
    )
    if data.public_difficulty in ("same", data.difficulty):
        return private
    theirs = [count if who in public else 0 for who, count in enumerate(rows)]
    studio = synthetic.draw_faceset(
        0, everyone, theirs, data.size, seed, CONDITIONS[data.public_difficulty], str(device)
    )
    is_public = torch.tensor([who in public for who in range(everyone)]).repeat_interleave(private.counts())
    private.images[is_public.to(device)] = studio.images
    return private


def _at_most(faces: FaceSet, images: int) -> FaceSet:
    rows, labels = faces.rows(range(len(faces)), images)
    counts = torch.bincount(labels, minlength=len(faces))
    return FaceSet(faces.gather(rows), torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))
