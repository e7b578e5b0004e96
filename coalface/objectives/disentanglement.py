"""Two kinds of features of one image: together they should hold all of it, and each something that the other lacks."""

from __future__ import annotations

from torch import Tensor


def difference(invariant: Tensor, specific: Tensor) -> Tensor:
    """How much the two subspaces overlap, one number for the batch: the mean of (Z_Iᵀ Z_S)² over its d × d entries.

    Rows are normalised first, and no gradient goes through their lengths. It is 0 where no feature of one kind is ever
    active together with a feature of the other.
    """
    one, other = (rows / (rows.detach().norm(dim=1, keepdim=True) + 1e-6) for rows in (invariant, specific))
    overlap: Tensor = one.T @ other
    return overlap.square().mean()


def reconstruction_error(decoded: Tensor, image: Tensor) -> Tensor:
    """Mean square error [b] over channels and pixels."""
    return (decoded - image).square().mean(dim=(1, 2, 3))
