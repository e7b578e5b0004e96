"""The shape of a method. Each file in ``algorithms/`` holds frozen dataclasses like this: settings are its fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from coalface import cohort, wire
from coalface.data.population import ClientFaces, Population
from coalface.data.public import Faces
from coalface.local import Batch, Losses
from coalface.models.net import Net, Weights
from coalface.received import Received


@dataclass(frozen=True)
class Local:
    """What a client holds before its first step: the tensors that training moves, and those that it only reads."""

    trained: Any
    fixed: Any = None
    faces: Faces | None = None  # what it trains on, if not its own faces alone; `common` must then be None


@dataclass(frozen=True)
class Types:
    """The dataclasses of a method: what is held, and what travels."""

    server: type
    broadcast: type[wire.Broadcast]
    upload: type[wire.Upload]
    private: type[wire.Private] | None = None  # what a client keeps between its rounds
    collected: type[wire.Upload] | None = None  # what leaves once, before the first round


class Method(Protocol):
    """In the order in which a round calls them. Types differ by method; contract tests check what mypy cannot."""

    types: ClassVar[Types]
    generic: ClassVar[bool] = True  # the server ends with a model for everyone
    personal: ClassVar[bool] = False  # each client ends with a model of its own
    # What every client starts a round with alike, by its name in what is trained and in what is uploaded. If a round
    # is one plain step, one backward pass then serves a whole cohort. None: clients start apart.
    common: ClassVar[tuple[str, ...] | None] = ("backbone",)

    one_identity: ClassVar[bool] = False  # takes one person per client, no more
    holds_public: ClassVar[bool] = False  # its clients hold what is public before the first round
    world: ClassVar[Literal["faces", "recordings"]] = "faces"  # what clients hold: faces, or live and attack recordings
    network: ClassVar[str] = ""  # the one of the method's paper, where a run names no other

    def check(self, population: Population) -> None:
        """Refuse clients that the method cannot serve, before anything is done."""
        if self.one_identity and population.classes > len(population):
            raise ValueError(
                f"{type(self).__name__} takes one identity per client, and {len(population)} clients hold "
                f"{population.classes}: set data.identities_each=1, or choose a method for several"
            )

    def clients(self, population: Population) -> Population:
        """Who takes part: everyone, or, in central training, everyone's faces in one pair of hands."""
        return population

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Any:
        """The server's state before the first round."""

    def cohort(self, server: Any, clients: int, size: int, generator: torch.Generator) -> list[int]:
        """Who is called in a round, in rising order."""
        return cohort.draw(clients, size, generator)

    def group(self, server: Any, client: int) -> int:
        """The group in which this client's group-summed fields are summed: by default it is alone."""
        return client

    def groups(self, client: int, clients: int) -> list[tuple[int, ...]]:
        """The members, rising, of every group that this client is ever summed in, of so many clients: by default none.

        A real client works it out for itself, and is in no other group's sum.
        """
        return []

    def open_round(self, server: Any, called: list[int], generator: torch.Generator) -> Any:
        """What the server draws or computes once per round, for the whole cohort."""
        return None

    def broadcast(self, server: Any, opened: Any, client: int) -> Any:
        """What the server sends to one client."""

    def expected(self, broadcast: Any) -> Any:
        """An upload of the right shapes: the server holds every real one against it."""

    def start(self, net: Net, broadcast: Any, private: Any, faces: ClientFaces, generator: torch.Generator) -> Local:
        """What a client holds before its first step. ``generator`` is the client's own, for this round."""

    def objective(self, net: Net, trained: Any, fixed: Any, batch: Batch) -> Losses:
        """Pure: the loss and its named parts, per image [b] (a term that no image owns: one number)."""

    def upload(self, broadcast: Any, trained: Any, faces: ClientFaces) -> Any:
        """What leaves."""

    def keep(self, trained: Any) -> Any:
        """What stays, for this client's next round."""
        return None

    def server_round(self, server: Any, received: Received) -> Any:
        """What the server does with the sums, and with what was revealed."""

    def monitors(self, server: Any) -> dict[str, float]:
        """Numbers about the server's state after a round, for the record: signs of collapse, say. Keep them cheap."""
        return {}

    def embedder(self, server: Any, private: Any = None) -> Weights:
        """The model that evaluation and export use: the global one, or this client's own."""

    def collect(self, faces: ClientFaces) -> Any:
        """What leaves a client once, before the first round; only where ``types.collected`` says so."""
        return None

    def expected_collection(self, images: int, size: int) -> Any:
        """A collection of so many images, of the right shapes."""
        return None

    def assembled(self, collected: Sequence[Any]) -> Population:
        """The faces that all clients gave, each client's people as before."""
        raise TypeError(f"{type(self).__name__} collects nothing")

    def ensemble(self, server: Any, private: Any = None) -> list[Weights]:
        """The models whose scores evaluation averages: one, unless the method ends with several."""
        return [self.embedder(server, private)]

    def head(self, server: Any, private: Any = None) -> Tensor | None:
        """A linear map [c, d] after the embedder, where faces are compared by its output; None compares embeddings.

        [c, d + 1] is an affine map, with the offset in the last column. With ``private``, of the client's own model.
        """
        return None
