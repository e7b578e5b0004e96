"""Simulated class embeddings, sent by the methods' own code: what an audit can be tried on without training.

Directions are random, so nearly orthogonal, with a common part if wanted. Trained embeddings are less regular.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.algorithms import chorus, revealed_embedding
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedfv import FedFV
from coalface.data.population import ClientFaces
from coalface.models.net import Weights
from coalface.received import Received

NOTHING = Weights({}, {})  # the backbone plays no part here
ONE_FACE = ClientFaces(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), torch.zeros(1).long(), torch.zeros(1).long())


@dataclass(frozen=True)
class Equivalents:
    """What one client was sent by FedFV, and who was in it."""

    broadcasts: list[Tensor]  # [n, D] for each round
    mixed: list[Tensor]  # who was in any equivalent of a round, int64


@dataclass(frozen=True)
class Sung:
    """What chorus broadcast, and what its members know."""

    chords: Tensor  # [T, choirs, rows, D]
    parts: Tensor  # [T, choirs, rows, k]


def embeddings(
    people: int, dimensions: int, generator: torch.Generator, mean_cosine: float = 0.0, common: Tensor | None = None
) -> Tensor:
    """Unit vectors [people, D] whose pairs have this cosine on average; ``common`` is the direction that they share."""
    if not 0 <= mean_cosine < 1:
        raise ValueError(f"mean_cosine must be from 0 to below 1, not {mean_cosine}")
    own = F.normalize(torch.randn(people, dimensions, generator=generator), dim=1)
    shared = torch.randn(dimensions, generator=generator) if common is None else common
    return F.normalize(mean_cosine**0.5 * F.normalize(shared, dim=0) + (1 - mean_cosine) ** 0.5 * own, dim=1)


def moved(embeddings_PD: Tensor, cosine: float, generator: torch.Generator) -> Tensor:
    """Each turned to a random side until it has exactly this cosine to itself: a photograph, or a round of drift."""
    side = torch.randn(embeddings_PD.shape, generator=generator)
    side = F.normalize(side - (side * embeddings_PD).sum(dim=1, keepdim=True) * embeddings_PD, dim=1)
    return F.normalize(cosine * embeddings_PD + (1 - cosine**2) ** 0.5 * side, dim=1)


def fedfv(
    method: FedFV, embeddings_PD: Tensor, rounds: int, cohort: int, generator: torch.Generator, drift: float = 1.0
) -> Equivalents:
    """Client 0 and ``cohort`` − 1 others are called in each round; everybody drifts by a cosine between rounds."""
    broadcasts, mixed = [], []
    for _ in range(rounds):
        others = 1 + torch.randperm(len(embeddings_PD) - 1, generator=generator)[: cohort - 1]
        server = revealed_embedding.Server(NOTHING, embeddings_PD, torch.ones(len(embeddings_PD), dtype=torch.bool))
        opened = method.open_round(server, [0, *others.tolist()], generator)
        broadcasts.append(method.broadcast(server, opened, 0).equivalents)
        mixed.append(opened.members[0].unique())
        embeddings_PD = moved(embeddings_PD, drift, generator) if drift < 1 else embeddings_PD
    return Equivalents(broadcasts, mixed)


def choirs(method: Chorus, embeddings_PD: Tensor, rounds: int, generator: torch.Generator, drift: float = 1.0) -> Sung:
    """Every choir sings in every round; the number of people must be a multiple of the choir."""
    people, dimensions = embeddings_PD.shape
    if people % method.choir or method.groupings > 1 or method.noise:
        raise ValueError(f"{people} people must fill choirs of {method.choir}, in one grouping, without noise")
    rows = max(1, method.parts)
    silent = torch.zeros(people // method.choir, rows, dimensions)
    server = chorus.Server(NOTHING, silent, torch.zeros(len(silent)), people)
    heard, sung = [], []
    for _ in range(rounds):
        parts = torch.randn(people, rows, generator=generator) if method.parts else torch.ones(people, 1)
        received, opened = (
            Received(chorus.Upload, partial(method.group, server)),
            method.open_round(server, [], generator),
        )
        for client in range(people):
            broadcast = method.broadcast(server, opened, client)
            trained = chorus.Trained(NOTHING, embeddings_PD[client], torch.zeros(dimensions), parts[client])
            received.add(client, method.upload(broadcast, trained, ONE_FACE))
        server = method.server_round(server, received)
        heard.append(server.chords)
        sung.append(parts.reshape(len(silent), method.choir, rows).transpose(1, 2))
        embeddings_PD = moved(embeddings_PD, drift, generator) if drift < 1 else embeddings_PD
    return Sung(torch.stack(heard), torch.stack(sung))


@dataclass(frozen=True)
class Sums:
    """What chorus's server was given by every choir of every grouping, once."""

    members: Tensor  # [N, P]: 1 where a person is in a choir
    sums: Tensor  # [N, D]


def groupings(method: Chorus, embeddings_PD: Tensor, generator: torch.Generator) -> Sums:
    """Plain sums of static embeddings, each with its person's own noise: the server's view, lengths included."""
    people, dimensions = embeddings_PD.shape
    choirs = method.groupings * (people // method.choir)
    noise_PD = method.noise * dimensions**-0.5 * torch.randn(people, dimensions, generator=generator)
    members, sums = torch.zeros(choirs, people), torch.zeros(choirs, dimensions)
    for grouping in range(method.groupings):
        server = chorus.Server(NOTHING, torch.zeros(choirs, 1, dimensions), torch.zeros(choirs), people, grouping)
        received, opened = (
            Received(chorus.Upload, partial(method.group, server)),
            method.open_round(server, [], generator),
        )
        for client in range(people):
            trained = chorus.Trained(NOTHING, embeddings_PD[client], noise_PD[client], torch.ones(1))
            broadcast = method.broadcast(server, opened, client)
            received.add(client, method.upload(broadcast, trained, ONE_FACE))
            members[method.group(server, client), client] = 1
        everybody = members.sum(dim=1).int().tolist()
        for choir, chord in received.whole_groups("chord", everybody.__getitem__).items():
            sums[choir] = chord[0]
    return Sums(members, sums)
