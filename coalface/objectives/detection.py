"""What a detector of presentation attacks is trained by, per image."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def live_cross_entropy(logits: Tensor, live: Tensor) -> Tensor:
    """−log of the probability given to the truth [b]: sigmoid(logit) for live (1), the rest for an attack (0)."""
    return F.binary_cross_entropy_with_logits(logits, live.to(logits.dtype), reduction="none")


def depth_error(depth: Tensor, truth: Tensor) -> Tensor:
    """Mean square error [b] of depth maps [b, h, w] against uint8 ones, of which 255 counts as 1."""
    return (depth - truth.to(depth.dtype) / 255).square().mean(dim=(1, 2))
