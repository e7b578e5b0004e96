"""FedUV, secret: nothing that tells clients apart inside a sum. Our form of it.  docs/algorithms/feduv.md

keeps   images, its codeword
sends   change of the backbone   summed

The change of FedUV's code head is a mixture of codewords, and a sum over a cohort can be taken apart again. Here the
code head is drawn once and stands still, so that no change of it is sent; and the client draws the whole message, so
that the server does not know how its codeword begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from coalface import wire
from coalface.algorithms.backbone_only import Upload
from coalface.algorithms.codewords import CODES, codeword
from coalface.algorithms.feduv import Private, Server, drawn_head, towards
from coalface.algorithms.revealed_embedding import device_of
from coalface.data.population import ClientFaces, Population
from coalface.local import Batch, Losses
from coalface.method import Local, Method, Types
from coalface.models.net import Net, Weights
from coalface.normalisation import SharedNormalisation, by_batch, change, moved, travelling
from coalface.received import Received
from coalface.wire import sends


@dataclass(frozen=True)
class Broadcast(wire.Broadcast):
    backbone: Weights = sends("the current backbone")
    code_head: Tensor = sends("the code head, drawn once and the same for all")


@dataclass(frozen=True)
class Trained:
    backbone: Weights
    codeword: Tensor  # not trained: along, so that it is kept


@dataclass(frozen=True)
class Fixed:
    code_head: Tensor  # [c, d]
    codeword: Tensor  # [c]


@dataclass(frozen=True)
class SecretFedUV(Method):
    """FedUV with a code head that stands still and is not sent back, and codewords that the server has no part in."""

    code_length: Literal[127, 255, 511] = 511  # c
    similarity: Literal["code", "embedding"] = "code"  # unknown faces are compared by y (c numbers) or by g (d numbers)
    normalisation: SharedNormalisation = "frozen"

    types: ClassVar[Types] = Types(Server, Broadcast, Upload, Private)
    one_identity: ClassVar[bool] = True

    def begin(self, net: Net, weights: Weights, population: Population, generator: torch.Generator) -> Server:
        return Server(weights, drawn_head(self.code_length, net.embedding, generator).to(device_of(weights)))

    def broadcast(self, server: Server, opened: None, client: int) -> Broadcast:
        return Broadcast(server.backbone, server.code_head)

    def expected(self, broadcast: Broadcast) -> Upload:
        return Upload(travelling(broadcast.backbone, self.normalisation), images=0)

    def start(
        self,
        net: Net,
        broadcast: Broadcast,
        private: Private | None,
        faces: ClientFaces,
        generator: torch.Generator,
    ) -> Local:
        if private is None:
            drawn = codeword(CODES[self.code_length], user=0, user_bits=0, generator=generator)
            private = Private(drawn.to(broadcast.code_head.device))
        fixed = Fixed(broadcast.code_head, private.codeword)
        return Local(Trained(broadcast.backbone, private.codeword), fixed)

    def objective(self, net: Net, trained: Trained, fixed: Fixed, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        return towards(features, fixed.code_head, fixed.codeword)

    def upload(self, broadcast: Broadcast, trained: Trained, faces: ClientFaces) -> Upload:
        return Upload(change(broadcast.backbone, trained.backbone, self.normalisation), len(faces))

    def keep(self, trained: Trained) -> Private:
        return Private(trained.codeword)

    def server_round(self, server: Server, received: Received) -> Server:
        return Server(moved(server.backbone, received.mean("backbone")), server.code_head)

    def embedder(self, server: Server, private: Private | None = None) -> Weights:
        return server.backbone

    def head(self, server: Server, private: Any = None) -> Tensor | None:
        return server.code_head if self.similarity == "code" else None
