"""A linear or affine map after a network: where a client's, or a code's, own feature space begins."""

from __future__ import annotations

import torch
from torch import Tensor


def mapped(features: Tensor, head: Tensor) -> Tensor:
    """Features [n, d] through a linear head [c, d], or an affine one [c, d + 1] with the offset in its last column."""
    width = features.shape[1]
    if head.shape[1] == width:
        return features @ head.T
    if head.shape[1] != width + 1:
        raise ValueError(f"a head for features of width {width} is [c, {width}] or [c, {width + 1}], not {head.shape}")
    return features @ head[:, :-1].T + head[:, -1]


def affine_identity(width: int, like: Tensor) -> Tensor:
    """The affine map that changes nothing, [d, d + 1]."""
    return torch.eye(width, width + 1, dtype=like.dtype, device=like.device)
