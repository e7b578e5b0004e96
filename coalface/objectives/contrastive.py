"""Model-contrastive regularisation: near the global model's feature, away from one's own last one (FedFR Eq. 5)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def contrastive(features_BD: Tensor, global_BD: Tensor, previous_BD: Tensor, temperature: float) -> Tensor:
    """−log [e^{a/τ} / (e^{a/τ} + e^{b/τ})] with a = cos(f, f_glob), b = cos(f, f_prev), per image [B].

    It is softplus((b − a) / τ): log 2, without a gradient, where the two models agree.
    """
    towards = F.cosine_similarity(features_BD, global_BD, dim=1)
    away = F.cosine_similarity(features_BD, previous_BD, dim=1)
    return F.softplus((away - towards) / temperature)
