"""The squared hinge that pulls one person's features to their class embedding (FedAwS; FedFace Eq. 7)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def positive_hinge(features_BD: Tensor, embedding_D: Tensor, target: float) -> tuple[Tensor, Tensor]:
    """max(0, target − cos)² for each image [B], and 1 where the hinge is dead (cos ≥ target), else 0."""
    cosines = F.normalize(features_BD, dim=1) @ F.normalize(embedding_D, dim=0)
    gap = F.relu(target - cosines)
    return gap.square(), (gap == 0).to(gap.dtype)
