"""One binary classifier per identity, with margins (SphereFace2, Wen et al. 2021; FedFR Eq. 6)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def one_vs_all(
    features_BD: Tensor,
    classifiers_KD: Tensor,
    bias_K: Tensor,
    labels_B: Tensor,
    *,
    scale: float,
    margin: float,
    balance: float,
    power: float,
) -> Tensor:
    """Binary cross-entropy of "is it identity k?", summed over the K classifiers, per image [B].

    (λ/s) softplus(−[s(g(cos θ_y) − m) + b_y]) + ((1 − λ)/s) Σ_{j≠y} softplus(s(g(cos θ_j) + m) + b_j). A label of K or
    more is nobody of these K: all K are then negatives.
    """
    cosines = F.normalize(features_BD, dim=1) @ F.normalize(classifiers_KD, dim=1).T
    wide = spread_cosine(cosines, power)
    mine = labels_B[:, None] == torch.arange(len(classifiers_KD), device=labels_B.device)  # [B, K]
    positive = balance / scale * F.softplus(-(scale * (wide - margin) + bias_K))
    negative = (1 - balance) / scale * F.softplus(scale * (wide + margin) + bias_K)
    return torch.where(mine, positive, negative).sum(dim=1)


def spread_cosine(cosines: Tensor, power: float) -> Tensor:
    """g(z) = 2((z + 1)/2)^t − 1: cosines, which crowd around 0, over more of [−1, 1]."""
    return 2 * ((cosines + 1) / 2).clamp(min=0) ** power - 1
