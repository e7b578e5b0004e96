"""FedAwS: one identity per client; the server spreads the class embeddings out.
Yu et al. 2020.  docs/algorithms/fedaws.md maps equations to lines.

keeps   images
sends   change of the backbone   summed
        class embedding          REVEALED to the server: it is a face template
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from coalface.algorithms.revealed_embedding import (
    Broadcast,
    Init,
    RevealedEmbedding,
    Server,
    Trained,
    of_known,
    with_revealed,
)
from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses
from coalface.method import Local
from coalface.models.net import Net
from coalface.normalisation import by_batch
from coalface.objectives import spread_out
from coalface.objectives.positive_hinge import positive_hinge
from coalface.received import Received
from coalface.transfer import sent


@dataclass(frozen=True)
class FedAwS(RevealedEmbedding):
    """One identity per client, pulled to its class embedding; the server pushes class embeddings apart."""

    init: Init = "random"
    target: float = 0.9  # m: the hinge is dead once the cosine is this high
    spread_max_cos: float = 0.3  # pairs of class embeddings closer than this are pushed apart; ν is 1 − this
    spread_step: Literal["sound", "paper", "release"] = "sound"
    spread_iterations: int = 5  # of the sound step, in a round; the others have the number of their source
    spread_lambda: float = 10.0  # λ of the paper's step
    spread_rate: float = 1e-3  # η of the paper's step, which is λη; 1 is FedFace's Alg. 1 as printed
    spread_nearest: int = 0  # only so many nearest of each class push it; 0: all
    spread_block: int = 4096  # classes in a tile of pairs: memory, not results

    def __post_init__(self) -> None:
        if not -1 <= self.spread_max_cos < 1:
            raise ValueError(f"spread_max_cos is a cosine below 1, not {self.spread_max_cos}")
        if self.spread_iterations < 0 or self.spread_nearest < 0 or self.spread_block < 1:
            raise ValueError(
                "spread_iterations and spread_nearest must be at least 0 and spread_block at least 1, not "
                f"{self.spread_iterations}, {self.spread_nearest} and {self.spread_block}"
            )

    def start(
        self, net: Net, broadcast: Broadcast, private: None, faces: ClientFaces, generator: torch.Generator
    ) -> Local:
        return Local(self.trained_from(net, broadcast, faces))

    def objective(self, net: Net, trained: Trained, fixed: None, batch: Batch) -> Losses:
        features = net(trained.backbone, batch.images, batch_statistics=by_batch(self.normalisation, batch.images))
        loss, dead = positive_hinge(features, trained.class_embedding, self.target)
        return {"loss": loss, "dead_hinge": dead}

    def server_round(self, server: Server, received: Received) -> Server:
        after = with_revealed(server, received, self.momentum)
        known = after.known.nonzero().flatten()
        restless = torch.ones_like(after.known) if after.restless is None else after.restless
        spread, still_restless = self.spread(of_known(after), restless[known])
        if len(known) < len(after.known):
            spread = after.class_embeddings.index_copy(0, sent(known, spread.device), spread)
        return replace(after, class_embeddings=spread, restless=restless.index_copy(0, known, still_restless))

    def spread(self, w_CD: Tensor, restless_C: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The server's step on the class embeddings that it holds, and which of them it must look at again."""
        many = {"nearest": self.spread_nearest, "block": self.spread_block}
        if self.spread_step == "sound":
            return spread_out.by_row(w_CD, self.spread_max_cos, self.spread_iterations, restless_C=restless_C, **many)
        if self.spread_step == "paper":
            spread = spread_out.by_sum(w_CD, self.spread_max_cos, self.spread_lambda * self.spread_rate, **many)
        else:
            spread = spread_out.by_mean(w_CD, self.spread_max_cos, **many)
        return spread, torch.ones(len(w_CD), dtype=torch.bool)
