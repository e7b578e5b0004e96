"""FedFace: FedAwS from a backbone that already knows faces; class embeddings start as mean features.
Aggarwal, Zhou, Jain 2021.  docs/algorithms/fedface.md maps equations to lines.

keeps   images
sends   change of the backbone   summed
        class embedding          REVEALED to the server: it is a face template
"""

from __future__ import annotations

from dataclasses import dataclass

from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.revealed_embedding import Init


@dataclass(frozen=True)
class FedFace(FedAwS):
    """FedAwS whose clients start their class embedding at the mean feature of their images (Eq. 6)."""

    init: Init = "mean_feature"
