"""Rows on the unit sphere, where a dot product is the cosine score."""

from __future__ import annotations

import torch
from torch import Tensor


class NoDirection(ValueError):
    """Rows of which there is no cosine: they are zero, or not finite. Of a network's, that its training went wrong."""


def unit_rows(rows: Tensor) -> Tensor:
    """Rows [n, d] at length 1, float32 or float64; a zero or non-finite row raises with its number."""
    if rows.ndim != 2:
        raise ValueError(f"rows must be [n, d], got {list(rows.shape)}")
    rows = rows.detach()
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    good = (length > 0) & (length < torch.inf)
    if not bool(good.all()):
        bad = ~good.squeeze(1)
        place = int(bad.nonzero()[0])
        raise NoDirection(
            f"row {place} has length {float(length[place])} ({int(bad.sum())} of {len(rows)} such): "
            "a cosine needs finite, non-zero rows"
        )
    return rows / length
