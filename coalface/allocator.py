"""What the C library does with freed memory, where it can be told (glibc)."""

from __future__ import annotations

import ctypes
import sys

# Of mallopt
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE_BLOCK = 256 << 10  # bytes
NEVER = (1 << 31) - 1


def keep_freed_memory() -> None:
    """Blocks stay with the process when they are free: for training, which asks for the same ones in every step.

    Otherwise each activation of a few megabytes is fetched from the system page by page, again and again.
    """
    _tell((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, NEVER))


def give_memory_back() -> None:
    """Large blocks go back to the system when they are free: for a server that runs for weeks.

    Otherwise messages of megabytes, handled by many threads, leave holes, and the process seems to grow.
    """
    _tell((M_MMAP_THRESHOLD, LARGE_BLOCK), (M_TRIM_THRESHOLD, LARGE_BLOCK), (M_ARENA_MAX, 2))


def _tell(*settings: tuple[int, int]) -> None:
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "mallopt"):
        for name, value in settings:
            library.mallopt(name, value)
