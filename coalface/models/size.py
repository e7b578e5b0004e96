"""The size of an input image, and what strided layers leave of it."""

from __future__ import annotations

Size = int | tuple[int, int]  # one side of a square, or (height, width)


def height_width(size: Size) -> tuple[int, int]:
    """(height, width) of a size; raises ValueError unless both are positive."""
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"size is {size}, but an image has at least one row and one column")
    return height, width


def after_halvings(size: Size, times: int) -> tuple[int, int]:
    """(height, width) after `times` 3×3 convolutions of stride 2 and padding 1: each side is halved, rounding up."""
    height, width = height_width(size)
    return -(-height // 2**times), -(-width // 2**times)
