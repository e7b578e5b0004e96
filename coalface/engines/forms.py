"""Which form the stacked engine takes: a reason against each, in words for the report, or None where there is none."""

from __future__ import annotations

from operator import mul
from typing import Any

from coalface import tree
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Weights

PIXELS = 200_000  # of a client in a step: with more, it keeps a CPU busy by itself
UNEVEN = 3.0  # times the mean number of images: with more on one client, a CPU is busy with padding


def why_not(method: Method) -> str | None:
    """Why a method cannot be stacked, in words; None if it can."""
    if getattr(method, "normalisation", "frozen") != "frozen" or getattr(method, "batch_statistics", False):
        return "its batch-norm statistics come from each client's own batch, which padding would falsify"
    return None


def why_several_steps(method: Method, training: Training, max_images: int, max_norm: float) -> str | None:
    """Why one backward pass through common weights would not do, in words; None if it does."""
    if method.common is None:
        return "its clients start a round with models of their own"
    if training.optimiser != "sgd":
        return f"a step of {training.optimiser} is not linear in the gradient"
    images = min(max_images, training.images_per_round or max_images)
    if training.epochs > 1 or 0 < training.batch < images:
        return "a local round is more than one step"
    if max_norm:
        return "a norm bound needs each client's own update"
    return None


def why_on_cores(method: Method, images: list[int], clients: list[int], pixels: int) -> str | None:
    """Why one backward pass, which would do, does not pay on a CPU; None if it does.

    So many ``clients`` take so many ``images`` of ``pixels`` each.
    """
    kept: Any = method.types.private
    if kept is not None and Weights in tree.field_types(kept).values():
        return "each trains a network of its own too"
    if max(images) * pixels > PIXELS:
        return f"{max(images)} images a client keep a CPU busy"
    mean = sum(map(mul, images, clients)) / sum(clients)
    if max(images) > UNEVEN * mean:
        return f"padding {mean:.1f} images a client to {max(images)} does not pay on a CPU"
    return None
