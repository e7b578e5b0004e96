"""Softmax over cosines with an additive margin (CosFace; Wang et al. 2018). Scale 1 and margin 0 give FedFV's Eq. 2."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def margin_softmax(features_BD: Tensor, proxies_KD: Tensor, labels_B: Tensor, scale: float, margin: float) -> Tensor:
    """−log softmax of scale·(cos θ_y − margin) against scale·cos θ_j, per image [B]; both sides are normalised here."""
    cosines = F.normalize(features_BD, dim=1) @ F.normalize(proxies_KD, dim=1).T
    if margin:
        cosines = cosines - margin * F.one_hot(labels_B, proxies_KD.shape[0])
    return F.cross_entropy(scale * cosines, labels_B, reduction="none")
