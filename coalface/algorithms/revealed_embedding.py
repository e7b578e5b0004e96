"""The contract of FedAwS, FedFace and FedFV: one identity per client, whose class embedding the server holds.

keeps   images
sends   change of the backbone   summed
        class embedding          REVEALED to the server: it is a face template

What the server does with the class embeddings, and what it sends besides a client's own, is each method's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.algorithms.fedavg import mean_feature
from coalface.data.population import ClientFaces, Population
from coalface.method import Method, Types
from coalface.metrics.collapse import mean_cosine, of_every_round
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, change, moved, next_step, travelling
from coalface.received import Received
from coalface.transfer import at_hand, sent
from coalface.wire import Count, Revealed, Summed, sends

MONITORED = 4096  # classes; of more, a sample is looked at: all pairs would cost more than the round

Init = Literal["random", "mean_feature"]


@dataclass(frozen=True)
class Server:
    backbone: Weights
    class_embeddings: Tensor  # [C, d], unit rows; a row of zeros is a client that was not heard from yet
    known: Tensor  # bool [C]: whose class embedding is here
    last_step: Weights | None = None  # of the backbone, where steps have momentum
    restless: Tensor | None = None  # bool [C]: of two class embeddings too close, one is among these; None: all may be
    # Both masks are on the host, so that asking them does not wait for a GPU. From a checkpoint they come to where
    # everything else is: hence `.cpu()` where they are read.


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    class_embedding: Tensor = sends("the client's own class embedding; zeros if the server has none yet")
    known: int = sends("1 if the server has it, else 0")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends("change of the backbone")
    class_embedding: Revealed[Tensor] = sends("the class embedding of the client's one person: A FACE TEMPLATE")
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    class_embedding: Tensor  # [d]


@dataclass(frozen=True)
class RevealedEmbedding(Method):
    """What these methods share. ``start``, ``objective`` and ``server_round`` are their own."""

    init: Init = "mean_feature"  # of a class embedding: by the server, or on the client from its own images
    normalisation: SharedNormalisation = "frozen"
    momentum: float = 0.0  # of the server's steps along the mean change of the backbone

    types: ClassVar[Types] = Types(Server, Broadcast, Upload)
    one_identity: ClassVar[bool] = True

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        embeddings = torch.zeros(len(population), net.embedding)
        if self.init == "random":
            embeddings = F.normalize(torch.randn(embeddings.shape, generator=generator), dim=1)
        known = torch.full((len(population),), self.init == "random")
        return Server(weights, embeddings.to(device_of(weights)), known)

    def open_round(self, server: Server, called: list[int], generator: torch.Generator) -> Any:
        return known_of(server.known, called)

    def broadcast(self, server: Server, opened: Any, client: int) -> Any:
        return Broadcast(server.backbone, server.class_embeddings[client], opened[client])

    def expected(self, broadcast: Any) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), broadcast.class_embedding, images=0)

    def trained_from(self, net: Net, broadcast: Any, faces: ClientFaces) -> Trained:
        """The backbone and the class embedding as sent; one that the server does not have is made here."""
        embedding = broadcast.class_embedding
        if not broadcast.known:
            embedding = mean_feature(net, broadcast.backbone, faces.images)
        return Trained(broadcast.backbone, embedding)

    def upload(self, broadcast: Any, trained: Trained, faces: ClientFaces) -> Upload:
        backbone = change(broadcast.backbone, trained.backbone, self.normalisation)
        return Upload(backbone, F.normalize(trained.class_embedding, dim=0), images=len(faces))

    def monitors(self, server: Server) -> dict[str, float]:
        known = int(server.known.sum())
        if known < 2:
            return {}
        rows = at_hand(of_known(server, every=ceil(known / MONITORED)))
        if len(rows) < known:  # the highest cosine of a sample would say little of the highest of all
            return {"class_mean_cosine": mean_cosine(rows)}
        mean, highest, rank = of_every_round(rows)
        return {"class_mean_cosine": mean, "class_max_cosine": highest, "class_rank": rank}

    def embedder(self, server: Server, private: None = None) -> Weights:
        return server.backbone


def known_of(known: Tensor, called: list[int]) -> dict[int, int]:
    """Whose class embedding the server has, 1 or 0."""
    return dict(zip(called, known.cpu()[called].int().tolist(), strict=True))


def of_known(server: Server, every: int = 1) -> Tensor:
    """The class embeddings that the server has, or one in so many of them; not copied where it has all."""
    known = server.known.cpu()
    if every == 1 and bool(known.all()):
        return server.class_embeddings
    return server.class_embeddings[sent(known.nonzero().flatten()[::every], server.class_embeddings.device)]


def with_revealed(server: Server, received: Received, momentum: float) -> Server:
    """The server after its step, and with what clients have just sent; of unit length, whatever they sent."""
    revealed = received.revealed("class_embedding")
    device = server.class_embeddings.device
    clients = torch.tensor(list(revealed))
    rows = torch.stack([embedding.to(device) for embedding in revealed.values()])
    step = next_step(received.mean("backbone"), server.last_step, momentum)
    return Server(
        moved(server.backbone, step),
        server.class_embeddings.index_copy(0, sent(clients, device), F.normalize(rows, dim=1)),
        server.known.cpu().index_copy(0, clients, rows.any(dim=1).cpu()),
        step if momentum else None,
        None if server.restless is None else server.restless.cpu().index_fill(0, clients, True),
    )


def device_of(weights: Weights) -> torch.device:
    """Where the server computes."""
    return next(iter(weights.parameters.values())).device
