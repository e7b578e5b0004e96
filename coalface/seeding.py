"""Every random number is a function of (run seed, round, client, purpose).

So nothing about randomness has to be saved: a resumed run, another engine or a real machine draws the same numbers.
Generators live on the CPU, so that a GPU run makes the same choices as a CPU run.
"""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose; different purposes are independent for all practical ends."""
    text = "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose, for example ``generator(seed, "batches", round, client)``."""
    return torch.Generator().manual_seed(derive(seed, *purpose))
