"""A small world that every test can afford: a tiny network and a few grey noises that pass for faces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
from torch import nn

from coalface import models, seeding
from coalface.algorithms import METHODS
from coalface.config import method_named
from coalface.data.centres import centres
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.population import Population
from coalface.data.public import Public
from coalface.data.recordings import Recordings
from coalface.engines.sequential import Sequential
from coalface.federation import Federation, Rounds
from coalface.gathering import Sums
from coalface.local import Training
from coalface.method import Method
from coalface.models.feduv_cnn import feduv_cnn
from coalface.models.net import Net
from coalface.store import Stage


def tiny(embedding: int = 8, size: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * (size // 4) ** 2, embedding)
    )


def tiny_bn(embedding: int = 8, size: int = 16) -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.register_buffer("num_batches_tracked", None)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4, padding=1),
        norm,
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * (size // 4) ** 2, embedding),
    )


def tiny_deep(embedding: int = 8, size: int = 16) -> nn.Module:
    """Convolutions that keep the size, channel by channel, and of single pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.PReLU(4), nn.Conv2d(4, 4, 3, padding=1), nn.PReLU(4),
        nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4), nn.Conv2d(4, 6, 1), nn.Flatten(),
        nn.Linear(6 * (size // 4) ** 2, embedding),
    )  # fmt: skip


def tiny_pools(embedding: int = 8, size: int = 16) -> nn.Module:
    """Convolutions, pools and group norm."""
    return feduv_cnn(embedding, size, pools=(2, 2), channels=(4, 6))


@pytest.fixture(autouse=True)
def small_and_steady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tiny networks are in the table; tests compute on one thread, so that bits repeat, and no disk is too slow."""
    monkeypatch.setattr("coalface.federation.SLOW_CHECKPOINT", inf)
    monkeypatch.setitem(models.MODELS, "tiny", tiny)
    monkeypatch.setitem(models.MODELS, "tiny_bn", tiny_bn)
    monkeypatch.setitem(models.MODELS, "tiny_deep", tiny_deep)
    monkeypatch.setitem(models.MODELS, "tiny_pools", tiny_pools)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def float64() -> Iterator[None]:
    """Weights, and so everything, in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def net() -> Net:
    return Net("tiny", embedding=8, size=16)


def noise_faces(identities: int, images: int, seed: int) -> FaceSet:
    """Each identity is a random pattern, each image that pattern with noise on it."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randint(0, 200, (identities, 1, 3, 16, 16), generator=generator)
    pixels = patterns + torch.randint(0, 55, (identities, images, 3, 16, 16), generator=generator)
    return FaceSet(pixels.reshape(-1, 3, 16, 16).to(torch.uint8), torch.arange(0, identities * images + 1, images))


def noise_population(clients: int = 8, identities_each: int = 1, images: int = 4) -> Population:
    """Clients with noise for faces, and three public people whom all of them may see."""
    count = clients * identities_each
    held = torch.arange(count).reshape(clients, identities_each).tolist()
    private, public = noise_faces(count, images, seed=7), noise_faces(3, 2, seed=8)
    offsets = torch.cat([private.offsets, private.offsets[-1] + public.offsets[1:]])
    faces = FaceSet(torch.cat([private.images, public.images]), offsets)
    seen = Public(FaceView.of(faces, range(count, count + 3)))
    return Population(faces, tuple(tuple(identities) for identities in held), public=seen)


@pytest.fixture
def population() -> Population:
    return noise_population()


@pytest.fixture
def two_each() -> Population:
    return noise_population(identities_each=2)


def noise_recordings(seed: int, frames: int = 6, size: int = 32) -> Recordings:
    """A domain is a random pattern; every other frame is live: brighter in the middle, and with a depth."""
    generator = torch.Generator().manual_seed(seed)
    attack = torch.arange(frames) % 2 * (1 + torch.arange(frames) // 2 % 4)
    depth = torch.zeros(frames, 32, 32, dtype=torch.uint8)
    depth[attack == 0, 8:24, 8:24] = 200
    pattern = torch.randint(0, 150, (1, 3, size, size), generator=generator)
    pixels = pattern + torch.randint(0, 55, (frames, 3, size, size), generator=generator)
    pixels[attack == 0, :, size // 4 : -size // 4, size // 4 : -size // 4] += 50
    return Recordings(pixels.to(torch.uint8), attack, depth, torch.arange(frames), torch.arange(frames) // 2)


def small_net(name: str) -> Net:
    """A network that the method takes."""
    kind = METHODS[name]
    if kind.world == "faces":
        return Net("tiny", embedding=8, size=16)
    return Net("resnet18", outputs=1, width=2) if kind.network == "resnet18" else Net(kind.network, size=32, width=2)


def small_population(name: str) -> Population:
    """Clients that the method takes: with two people each if it may be, so that a private head can tell them apart."""
    if METHODS[name].world == "faces":
        return noise_population(identities_each=1 if METHODS[name].one_identity else 2)
    return centres([noise_recordings(seed) for seed in range(5)])


class SmallRun:
    """A federation of the small world in a folder; ``run`` goes on from whatever the folder holds."""

    def __init__(self, method: Method, net: Net, population: Population, folder: Path, training: Training) -> None:
        self.method, self.net, self.training = method, net, training
        method.check(population)
        started = replace(population.public, backbone=net.fresh(0))
        self.population = method.clients(replace(population, public=started))
        self.stage = Stage(folder, method.types.server, method.types.private, "small", torch.device("cpu"))
        self.engine = Sequential(self.population, self.stage.private)
        self.sums: Sums | None = None
        self.seed = 0

    def run(self, rules: Rounds, stop_after: int | None = None) -> object:
        federation = Federation(
            self.method,
            self.net,
            len(self.population),
            self.engine,
            rules,
            self.training,
            self.seed,
            self.stage,
            lambda server: {},
            self.sums,
        )
        done, server = self.stage.resume() or (0, self.begin())
        for entry, after in federation.run(server, done + 1):
            server = after
            if stop_after == entry.round and not entry.void:
                break
        return server

    def begin(self) -> object:
        return self.method.begin(self.net, self.net.fresh(0), self.population, seeding.generator(0, "begin"))


def small_run(name: str, net: Net, population: Population, folder: Path, **training: object) -> SmallRun:
    chosen = Training(**{"rate": 0.05, "batch": 2, "momentum": 0.9, **training})  # type: ignore[arg-type]
    return SmallRun(method_named(name)(), net, population, folder, chosen)
