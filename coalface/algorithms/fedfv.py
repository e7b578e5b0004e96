"""FedFV: one identity per client, against mixtures of other clients' class embeddings.
Liu et al. 2022.  docs/algorithms/fedfv.md maps equations to lines.

keeps   images
sends   change of the backbone   summed
        class embedding          REVEALED to the server: it is a face template
                                 and other clients are sent mixtures of it, from which it can be solved (docs: Limits)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import cohort
from coalface.algorithms import revealed_embedding
from coalface.algorithms.revealed_embedding import RevealedEmbedding, Server, Trained, known_of, with_revealed
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses, slowed
from coalface.method import Local, Types
from coalface.models.net import Net
from coalface.normalisation import by_batch
from coalface.received import Received
from coalface.transfer import sent
from coalface.wire import sends

TOO_SHORT = 1e-3  # a sum of class embeddings that cancel has no direction
REDRAWS = 20


@dataclass(frozen=True)
class Opened:
    """A round's equivalents, by client; one tensor for all where they are the same."""

    members: dict[int, Tensor]  # who is in each of them, int64 [n, k]; empty where nobody can be
    equivalents: dict[int, Tensor]  # [n, d]
    known: dict[int, int]  # whether the server has its class embedding


@dataclass(frozen=True)
class Broadcast(revealed_embedding.Broadcast):
    equivalents: Tensor = sends(
        "equivalent class embeddings: normalised means of a few OTHER clients' class embeddings; zeros where none"
    )


@dataclass(frozen=True)
class FedFV(RevealedEmbedding):
    """One identity per client, by softmax against normalised means of a few other clients' class embeddings."""

    equivalents: int = 100  # n, negatives sent to a client
    fused: int = 2  # k, class embeddings in each of them; 3 is the paper's safe variant
    scale: float = 16.0  # the paper has 1, which is a nearly uniform softmax
    margin: float = 0.0
    embedding_rate: float = 1.0  # of the class embedding, as a share of the backbone's; from scratch it must be slow
    enrol_first: bool = False  # nobody trains until everybody's class embedding is there

    types: ClassVar[Types] = replace(RevealedEmbedding.types, broadcast=Broadcast)

    def __post_init__(self) -> None:
        if self.equivalents < 1 or self.fused < 1:
            raise ValueError(f"equivalents and fused must be at least 1, not {self.equivalents} and {self.fused}")

    def cohort(self, server: Server, clients: int, size: int, generator: torch.Generator) -> list[int]:
        missing = (~server.known).nonzero().flatten().tolist() if self.enrol_first else []
        called = cohort.draw(len(missing) or clients, size, generator)
        return [missing[place] for place in called] if missing else called

    def open_round(self, server: Server, called: list[int], generator: torch.Generator) -> Opened:
        """Equivalents of clients that are not called, the same for all; or, if they are too few, of all others."""
        known = server.known.cpu()
        there = known_of(known, called)
        if self.enrol_first and not bool(known.all()):
            known = torch.zeros_like(known)  # there is nobody to be told from yet
        outside = known.index_fill(0, torch.tensor(called), False).nonzero().flatten()
        if len(outside) >= self.fused:
            members, mixed = self.draw(server, outside, generator)
            return Opened(dict.fromkeys(called, members), dict.fromkeys(called, mixed), there)
        known = known.nonzero().flatten()
        each = self.draw_each(server, [known[known != client] for client in called], generator)
        return Opened(
            {client: members for client, (members, _) in zip(called, each, strict=True)},
            {client: mixed for client, (_, mixed) in zip(called, each, strict=True)},
            there,
        )

    def draw_each(self, server: Server, pools: list[Tensor], generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
        """``draw`` from each pool in turn. All are fused at once, unless some cancel, which hardly ever happens."""
        before = generator.get_state()
        if min(len(pool) for pool in pools) >= self.fused:
            members = [pool[distinct(len(pool), self.equivalents, self.fused, generator)] for pool in pools]
            mixed = fuse(server.class_embeddings, torch.cat(members))
            if bool(mixed.any(dim=1).all()):
                return list(zip(members, mixed.split(self.equivalents), strict=True))
        generator.set_state(before)
        return [self.draw(server, pool, generator) for pool in pools]

    def draw(self, server: Server, pool: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Members [n, k] of the equivalents, distinct within each, and the equivalents [n, d].

        Those that cancel are drawn again. From too small a pool there are no members, and rows of zeros.
        """
        bank = server.class_embeddings
        if len(pool) < self.fused:
            return torch.empty(0, self.fused, dtype=torch.int64), bank.new_zeros(self.equivalents, bank.shape[1])
        members = pool[distinct(len(pool), self.equivalents, self.fused, generator)]
        mixed = fuse(bank, members)
        for _ in range(REDRAWS):
            cancelled = ~mixed.any(dim=1).cpu()
            if not bool(cancelled.any()):
                break
            members[cancelled] = pool[distinct(len(pool), int(cancelled.sum()), self.fused, generator)]
            mixed = fuse(bank, members)
        return members, mixed

    def broadcast(self, server: Server, opened: Opened, client: int) -> Broadcast:
        return Broadcast(
            server.backbone, server.class_embeddings[client], opened.known[client], opened.equivalents[client]
        )

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(self.trained_from(net, broadcast, faces), fixed=broadcast.equivalents)

    def objective(self, net: Net, trained: Trained, fixed: Tensor, batch: Batch) -> Losses:
        features = F.normalize(
            net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images)), dim=1
        )
        own = features @ F.normalize(slowed(trained.class_embedding, self.embedding_rate), dim=0)
        absent = (fixed == 0).all(dim=1)  # without any equivalent the softmax has one class: loss and gradient are 0
        others = (features @ fixed.T).masked_fill(absent, -torch.inf)
        logits = self.scale * torch.cat([own[:, None] - self.margin, others], dim=1)
        return {"loss": -F.log_softmax(logits, dim=1)[:, 0], "own_cosine": own}

    def server_round(self, server: Server, received: Received) -> Server:
        return with_revealed(server, received, self.momentum)


def fuse(embeddings_CD: Tensor, members_NK: Tensor) -> Tensor:
    """The normalised mean of each row's members, [N, D]; zeros where they cancel."""
    total = embeddings_CD[sent(members_NK, embeddings_CD.device)].sum(dim=1)
    length = total.norm(dim=1, keepdim=True)
    return torch.where(length < TOO_SHORT, 0.0, total / length.clamp(min=TOO_SHORT))


def distinct(pool: int, rows: int, each: int, generator: torch.Generator) -> Tensor:
    """``each`` different numbers below ``pool`` in each row, every subset as likely as any other (Floyd's method)."""
    first, *others = range(pool - each, pool)
    chosen = torch.randint(first + 1, (rows, 1), generator=generator)
    for last in others:
        drawn = torch.randint(last + 1, (rows, 1), generator=generator)
        taken = (chosen == drawn).any(dim=1, keepdim=True)
        chosen = torch.cat([chosen, torch.where(taken, last, drawn)], dim=1)
    return chosen
