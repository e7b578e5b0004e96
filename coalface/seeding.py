"""Every random number is a function of (run seed, round, client, purpose).

So nothing about randomness has to be saved: a resumed run, another engine or a real machine draws the same numbers.
Generators live on the CPU, so that a GPU run makes the same choices as a CPU run.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

SECRET_BITS = 64  # a longer seed is a machine's secret, of 256 bits, and a generator needs all of them
WORDS, AT = 624, 24  # of the state of torch's Mersenne twister, and where they begin in its bytes


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose; different purposes are independent for all practical ends."""
    return int.from_bytes(hashlib.blake2b(_text(seed, *purpose), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose, for example ``generator(seed, "batches", round, client)``.

    torch takes 32 bits of a seed, which anybody can try out. From a secret the generator's whole state is made.
    """
    made = torch.Generator().manual_seed(derive(seed, *purpose))
    if seed.bit_length() > SECRET_BITS:
        state = made.get_state()
        words = state.numpy()[AT : AT + 8 * WORDS].view("<u8")  # of 32 bits, in 8 bytes each
        words[:] = np.frombuffer(hashlib.shake_256(_text(seed, *purpose)).digest(4 * WORDS), "<u4")
        made.set_state(state)
    return made


def _text(seed: int, *purpose: str | int) -> bytes:
    return "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)]).encode()
