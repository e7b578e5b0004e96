"""FedUV: one identity per client, trained towards a secret codeword; no class embedding is shared at all.
Hosseini et al. 2021.  docs/algorithms/feduv.md maps equations to lines.

keeps   images, its codeword
sends   change of the backbone    summed
        change of the code head   summed; even a sum over a cohort tells the codewords (docs: Limits)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.algorithms.codewords import CODES, codeword
from coalface.algorithms.revealed_embedding import device_of
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, by_batch, change, moved, travelling
from coalface.received import Received
from coalface.wire import Count, Summed, sends


@dataclass(frozen=True)
class Server:
    backbone: Weights
    code_head: Tensor  # W' [c, d], no bias


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    code_head: Tensor = sends("the current code head, the same for all")
    user: int = sends("the client's number, which makes its codeword unlike all others")


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[Weights] = sends("change of the backbone")
    code_head: Summed[Tensor] = sends("change of the code head", apart="codewords are independent signs")
    images: Count = sends("how many images the client holds")


@dataclass(frozen=True)
class Private(wire.Private):
    codeword: Tensor  # [c] of ±1


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    code_head: Tensor
    codeword: Tensor  # not trained: along, so that it is kept


@dataclass(frozen=True)
class FedUV(Method):
    """One identity per client, each trained towards its own secret codeword of an error-correcting code."""

    code_length: Literal[127, 255, 511] = 511  # c
    user_bits: int = 32  # of the message; the rest of it is the client's secret
    similarity: Literal["code", "embedding"] = "code"  # unknown faces are compared by y (c numbers) or by g (d numbers)
    normalisation: SharedNormalisation = "frozen"

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    one_identity: ClassVar[bool] = True
    common = ("backbone", "code_head")

    def __post_init__(self) -> None:
        if not 0 < self.user_bits < CODES[self.code_length].message:
            most = CODES[self.code_length].message - 1
            raise ValueError(f"user_bits must be 1 to {most}, so that a secret is left, not {self.user_bits}")

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        if len(population) > 1 << self.user_bits:
            raise ValueError(f"{len(population)} clients need more than {self.user_bits} user_bits")
        return Server(weights, drawn_head(self.code_length, net.embedding, generator).to(device_of(weights)))

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone, server.code_head, user=client)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), broadcast.code_head, images=0)

    def start(
        self, net: Net, broadcast: Broadcast, private: Private | None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        if private is None:  # a generator is for one round only: the secret is drawn in the first one, and kept
            drawn = codeword(CODES[self.code_length], broadcast.user, self.user_bits, generator)
            private = Private(drawn.to(broadcast.code_head.device))
        return Local(Trained(broadcast.backbone, broadcast.code_head, private.codeword), fixed=private.codeword)

    def objective(self, net: Net, trained: Trained, fixed: Tensor, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        return towards(features, trained.code_head, fixed)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        backbone = change(broadcast.backbone, trained.backbone, self.normalisation)
        return Upload(backbone, trained.code_head - broadcast.code_head, images=len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.codeword)

    def server_round(self, server: Server, received: Received) -> Server:
        backbone = moved(server.backbone, received.mean("backbone"))
        return Server(backbone, server.code_head + received.mean("code_head"))

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.backbone

    def head(self, server: Server, private: Any = None) -> Tensor | None:
        return server.code_head if self.similarity == "code" else None


def drawn_head(code_length: int, dimensions: int, generator: torch.Generator) -> Tensor:
    """W' [c, d], as a linear layer of d inputs begins."""
    head: Tensor = (torch.rand(code_length, dimensions, generator=generator) * 2 - 1) / dimensions**0.5
    return head


def towards(features_BD: Tensor, code_head_CD: Tensor, codeword_C: Tensor) -> Losses:
    """max(0, 1 − (1/c)·vᵀy) of each image, and the share of code bits that it gets right."""
    right = (features_BD @ code_head_CD.T) * codeword_C > 0
    loss = F.relu(1 - code_scores(features_BD, code_head_CD, codeword_C))
    return {"loss": loss, "bits_right": right.to(loss.dtype).mean(dim=1)}


def code_scores(features_BD: Tensor, code_head_CD: Tensor, codeword_C: Tensor) -> Tensor:
    """(1/c)·vᵀy with y = √c·W'g/‖W'g‖: the cosine of codeword and output, [B]."""
    unit_BC: Tensor = F.normalize(features_BD @ code_head_CD.T, dim=1)
    return unit_BC @ F.normalize(codeword_C, dim=0)


def acceptance_threshold(warm_up_scores: Tensor, accepted: float = 0.9) -> float:
    """τ_u: the score that this share of the person's own warm-up images reaches."""
    return float(warm_up_scores.quantile(1 - accepted))
