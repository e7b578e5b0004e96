"""Chorus: one hears the choir, never a voice. Our own method.  docs/algorithms/chorus.md

keeps   images, its class embedding, its noise
sends   change of the backbone   summed
        its part of the chord    summed over its choir of k: the server never holds one client's

One identity per client. Clients sing in fixed choirs of k, and a choir's chord reaches the server only as the sum over
all its members. The server broadcasts the chords of all choirs; a client learns to be its own class embedding, and
unlike every other choir.

parts = 0   the chord is the sum of the members' class embeddings, normalised: one negative per choir. Choirs are fixed,
            so the server holds one equation in k unknowns for ever; in R groupings, R equations of each voice, R < k.
parts = m   each member multiplies its class embedding by m fresh random numbers of its own, and the chord is the sum of
            those: m mixtures of the choir's embeddings. Gaussian mixtures look the same for every rotation of the
            embeddings within their span, so the span is what is told, however often a choir sings.
anchors = n class embeddings of the server's public people, n drawn anew for each round, are further negatives. They are
            nobody's secret; where public faces are many and like the clients', they fill in what chords do not tell.
chords = n  so many choirs' chords are sent, drawn anew for each round. 0 sends all: more, the more clients there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import cohort, wire
from coalface.algorithms.fedavg import mean_feature
from coalface.algorithms.hard_negatives import class_means
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses, slowed
from coalface.method import Local, Method, Types
from coalface.metrics.collapse import of_every_round
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, by_batch, change, moved, next_step, travelling
from coalface.received import Received
from coalface.wire import Count, Summed, SummedInGroup, sends

MONITORED = 4096  # rows of chords; of more, a sample is looked at


@dataclass(frozen=True)
class Server:
    backbone: Weights
    chords: Tensor  # [groupings · choirs, rows, d]
    heard: Tensor  # [groupings · choirs]: 1 where a whole choir has sung
    clients: int
    grouping: int = 0  # the one that sings next
    last_step: Weights | None = None  # of the backbone, where steps have momentum
    anchors: Tensor | None = None  # [K, d], unit: class embeddings of the public people, where they are asked for


@dataclass(frozen=True)
class Opened:
    """A round's draws, the same for all its clients."""

    chords: Tensor  # [n, rows, d]
    heard: Tensor  # [n]
    places: Tensor  # [groupings · choirs]: where a choir is among the n; behind them, if it is not
    anchors: Tensor  # [m, d]


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    chords: Tensor = sends("the last chords of all choirs, or of some: mixtures of a choir's k class embeddings")
    heard: Tensor = sends("which of these choirs have sung")
    own: Tensor = sends("which of them are the client's own, in each grouping")
    anchors: Tensor = sends("class embeddings of some public people; none unless method.anchors says so")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends("change of the backbone")
    chord: SummedInGroup[Tensor] = sends("the client's part of its choir's chord")
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Private(wire.Private):
    class_embedding: Tensor  # [d]
    noise: Tensor  # [d]


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    class_embedding: Tensor
    noise: Tensor  # [d]: drawn once, not trained
    parts: Tensor  # [rows]: drawn for this round, not trained


@dataclass(frozen=True)
class Fixed:
    chords: Tensor  # [n, rows, d]
    heard: Tensor  # [n]
    own: Tensor  # [n]: 1 for the client's own choirs
    anchors: Tensor  # [m, d]


@dataclass(frozen=True)
class Chorus(Method):
    """Negatives from secretly summed choirs; nobody sees a single class embedding."""

    choir: int = 4  # k, members of a choir
    groupings: int = 1  # R, ways in which all clients are dealt out to choirs; they sing in turn
    noise: float = 0.0  # σ, length of a secret vector that a client adds to its voice, the same in every round
    parts: int = 0  # m, random mixtures in a chord; 0 sings the plain sum
    init: Literal["mean_feature", "random"] = "mean_feature"  # of a voice; a backbone without training needs "random"
    scale: float = 16.0
    margin: float = 0.0
    embedding_rate: float = 1.0  # of the class embedding, as a share of the backbone's; from scratch it must be slow
    anchors: int = 0  # n, public people whose class embeddings are negatives too, drawn anew for each round
    chords: int = 0  # n, choirs whose chords are sent, drawn anew for each round; 0: all
    enrol_first: bool = False  # nobody trains until every choir has sung
    normalisation: SharedNormalisation = "frozen"
    momentum: float = 0.0  # of the server's steps along the mean change of the backbone

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    one_identity: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # In a sum of two each member could solve for the other. Mixtures tell the inner products of the embeddings too,
        # and leave (k − 1)(k − 2) / 2 freedoms.
        least = 4 if self.parts else 3
        if self.choir < least:
            raise ValueError(f"a choir of {self.choir} would give its members away; choir must be at least {least}")
        if not 1 <= self.groupings < self.choir:  # with k groupings there are as many equations as voices
            raise ValueError(f"groupings must be from 1 to {self.choir - 1}, under choir, not {self.groupings}")
        if self.parts and self.groupings > 1:
            raise ValueError(
                f"parts={self.parts} tells the span of each choir, and the spans of a person's {self.groupings} choirs "
                "meet in that person: mixtures take one grouping"
            )
        if min(self.noise, self.anchors, self.chords) < 0:
            raise ValueError(
                "noise is a length, anchors and chords are numbers, and none is below 0, not "
                f"{self.noise}, {self.anchors} and {self.chords}"
            )

    def check(self, population: Population) -> None:
        super().check(population)
        if len(population) < 2 * self.choir:
            raise ValueError(
                f"chorus needs two choirs of {self.choir} or more, and there are {len(population)} clients: "
                "set data.clients or method.choir"
            )
        public = population.public.faces
        if self.anchors > (public.classes if public else 0):
            raise ValueError(
                f"anchors={self.anchors} are public people, and there are {public.classes if public else 'none'}: "
                "set data.public or method.anchors"
            )

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        choirs = self.groupings * max(1, len(population) // self.choir)
        device = next(iter(weights.parameters.values())).device
        chords = torch.zeros(choirs, max(1, self.parts), net.embedding, device=device)
        heard = torch.zeros(choirs, device=device)
        if not self.anchors or population.public.faces is None:
            return Server(weights, chords, heard, len(population))
        head = population.public.head
        known = class_means(net, weights, population.public.faces) if head is None else F.normalize(head, dim=1)
        return Server(weights, chords, heard, len(population), anchors=known)

    def group(self, server: Server, client: int) -> int:
        return self.choir_of(server, client, server.grouping)

    def groups(self, client: int, clients: int) -> list[tuple[int, ...]]:
        choirs = self.groupings * max(1, clients // self.choir)
        places = Server(Weights({}, {}), torch.zeros(choirs, 1, 0), torch.zeros(choirs), clients)
        mine = [self.choir_of(places, client, grouping) for grouping in range(self.groupings)]
        return [tuple(sorted(self.members(places, choir))) for choir in mine]

    def choir_of(self, server: Server, client: int, grouping: int) -> int:
        """The choir of a client in one of the groupings.

        Clients stand in rows of k, and a row is a choir of the first grouping; for each further one, a column moves on
        by its number. With more than R·k rows, no two clients sing together twice.
        """
        rows = len(server.heard) // self.groupings
        row, column = divmod(client, self.choir)
        if row >= rows:  # those who are left over join the first rows, one each
            column, row = divmod(client - rows * self.choir, rows)
            column += self.choir
        return grouping * rows + (row + grouping * column) % rows

    def members(self, server: Server, choir: int) -> list[int]:
        """The clients of a choir: k, or a few more where clients are left over."""
        rows = len(server.heard) // self.groupings
        grouping, shifted = divmod(choir, rows)
        whole = [(shifted - grouping * column) % rows * self.choir + column for column in range(self.choir)]
        rest = range(rows * self.choir, server.clients)
        return whole + [client for client in rest if self.choir_of(server, client, grouping) == choir]

    def cohort(self, server: Server, clients: int, size: int, generator: torch.Generator) -> list[int]:
        """Whole choirs: a choir is heard only if every member sings."""
        rows = len(server.heard) // self.groupings
        choirs = list(range(server.grouping * rows, (server.grouping + 1) * rows))
        if self.enrol_first:
            heard = server.heard.tolist()
            choirs = [choir for choir in choirs if not heard[choir]] or choirs
        drawn = cohort.draw(len(choirs), max(1, size // self.choir) if size else 0, generator)
        return sorted(client for place in drawn for client in self.members(server, choirs[place]))

    def open_round(self, server: Server, called: list[int], generator: torch.Generator) -> Opened:
        if server.anchors is None:  # there are none to be sent; or a client works out what it will be sent
            anchors = server.chords.new_zeros(self.anchors, server.chords.shape[-1])
        else:
            people = torch.randperm(len(server.anchors), generator=generator)[: self.anchors]
            anchors = server.anchors[people.to(server.anchors.device)]
        choirs = torch.arange(len(server.heard))
        if not 0 < self.chords < len(choirs):
            return Opened(server.chords, server.heard, choirs, anchors)
        sent = self.drawn(server.heard.cpu(), generator)
        places = torch.full_like(choirs, len(sent)).index_copy(0, sent, choirs[: len(sent)])
        there = sent.to(server.chords.device)
        return Opened(server.chords[there], server.heard[there], places, anchors)

    def drawn(self, heard: Tensor, generator: torch.Generator) -> Tensor:
        """The choirs whose chords are sent: those that have sung first.

        While everybody waits for all to enrol, those that have not come first: from them a client knows that it waits.
        """
        drawn = torch.randperm(len(heard), generator=generator)
        waiting = self.enrol_first and not bool(heard.all())
        return drawn[heard[drawn].argsort(descending=not waiting, stable=True)][: self.chords]

    def broadcast(self, server: Server, opened: Opened, client: int) -> Broadcast:
        own = torch.tensor([self.choir_of(server, client, grouping) for grouping in range(self.groupings)])
        return Broadcast(server.backbone, opened.chords, opened.heard, opened.places[own], opened.anchors)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), broadcast.chords[0], images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        places = broadcast.heard.new_zeros(len(broadcast.heard) + 1)  # and one for choirs that were not sent
        own = places.index_fill(0, broadcast.own.to(places.device), 1.0)[:-1]
        fixed = Fixed(broadcast.chords, broadcast.heard, own, broadcast.anchors)
        if private is not None:
            embedding, noise = private.class_embedding, private.noise
        else:
            drawn = torch.randn(net.embedding, generator=generator)  # once: fresh noise would be averaged away
            noise = (self.noise * net.embedding**-0.5 * drawn).to(fixed.chords)
            if self.init == "mean_feature":
                embedding = mean_feature(net, broadcast.backbone, faces.images)
            else:
                embedding = F.normalize(torch.randn(net.embedding, generator=generator), dim=0).to(fixed.chords)
        parts = torch.randn(self.parts, generator=generator) if self.parts else torch.ones(1)
        return Local(Trained(broadcast.backbone, embedding, noise, parts.to(embedding)), fixed)

    def objective(self, net: Net, trained: Trained, fixed: Fixed, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        return self.among_choirs(F.normalize(features, dim=1), trained, fixed)

    def among_choirs(self, features: Tensor, trained: Trained, fixed: Fixed) -> Losses:
        """Unit features [b, d]: like the client's own class embedding, unlike every other choir and the anchors."""
        mine = features @ F.normalize(slowed(trained.class_embedding, self.embedding_rate), dim=0)  # [b]
        heights = torch.einsum("bd,crd->bcr", features, fixed.chords)
        # Of a chord of mixtures, the sum of squares: how much of the image lies in the span of the choir.
        negatives = heights.square().sum(dim=2).clamp(min=1e-6).sqrt() if self.parts else heights[:, :, 0]
        # The client's own voice is in its own choir, in an amount that the chord does not tell: that choir is left out.
        silent = (fixed.heard == 0) | (fixed.own == 1)
        negatives = negatives.masked_fill(silent, -torch.inf)
        logits = self.scale * torch.cat([mine[:, None] - self.margin, negatives, features @ fixed.anchors.T], dim=1)
        loss = torch.logsumexp(logits, dim=1) - logits[:, 0]
        return {"loss": loss * fixed.heard.min() if self.enrol_first else loss, "cosine": mine}

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        voice = F.normalize(trained.class_embedding, dim=0) + trained.noise
        backbone = change(broadcast.backbone, trained.backbone, self.normalisation)
        return Upload(backbone, trained.parts[:, None] * voice, images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(F.normalize(trained.class_embedding, dim=0), trained.noise)

    def server_round(self, server: Server, received: Received) -> Server:
        chords, heard = server.chords.clone(), server.heard.clone()
        for choir, chord in received.whole_groups("chord", lambda c: len(self.members(server, c))).items():
            # Rows have variance 1 in each embedding: over √m their squares sum to those of the embeddings themselves.
            chords[choir] = chord / self.parts**0.5 if self.parts else F.normalize(chord, dim=1)
            heard[choir] = 1
        step = next_step(received.mean("backbone"), server.last_step, self.momentum)
        turn, kept = (server.grouping + 1) % self.groupings, step if self.momentum else None
        return Server(moved(server.backbone, step), chords, heard, server.clients, turn, kept, server.anchors)

    def monitors(self, server: Server) -> dict[str, float]:
        sung = server.chords[server.heard.nonzero().flatten()].flatten(0, 1)
        if len(sung) < 2:
            return {}
        mean, highest, rank = of_every_round(sung[:: ceil(len(sung) / MONITORED)])
        return {"chord_mean_cosine": mean, "chord_max_cosine": highest, "chord_rank": rank}

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.backbone
