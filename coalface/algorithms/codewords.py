"""Codewords of binary BCH codes: distinct people get codewords that differ in many places, without anyone comparing.

A code is its generator polynomial over GF(2); bit j of the integer is the coefficient of x^j. Encoding is systematic:
the message, then the remainder of message · x^(n − k) divided by the generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Code:
    """A binary (n, k) code; two codewords differ in at least ``distance`` places."""

    length: int  # n
    message: int  # k, bits
    distance: int
    generator: int

    def encode(self, message: int) -> int:
        """The codeword of a message of k bits, as an integer of n bits whose highest k are the message."""
        if not 0 <= message < 1 << self.message:
            raise ValueError(f"a message has {self.message} bits, and {message} does not fit")
        shifted = message << (self.length - self.message)
        return shifted | _remainder(shifted, self.generator)

    @property
    def max_cosine(self) -> float:
        """The highest cosine that two codewords of ±1 can have."""
        return 1 - 2 * self.distance / self.length


CODES = {
    127: Code(127, 64, 21, 0xA1AB815BC7EC8025),
    255: Code(255, 71, 59, 0x140A722A1A468D36D87A25364E685922A1E56FD1A478C1D),
    511: Code(
        511,
        67,
        175,
        0x1BD14F93F5736AFF6A9F8AA73A02856842B2EA071AD9BDC0D11DE9842FBDC0459C1024BFB0E5DFBD44B01D21DF55A5C18035AA69E3680621,
    ),
}


def codeword(code: Code, user: int, user_bits: int, generator: torch.Generator) -> Tensor:
    """v_u: the user's number, then secret random bits, encoded; float [n] of ±1, first bit first.

    With 0 user_bits (and user 0) the whole message is secret: two people's differ by luck, which is all but certain.
    """
    if not 0 <= user_bits <= code.message:
        raise ValueError(f"user_bits must be 0 to {code.message}, not {user_bits}")
    if not 0 <= user < 1 << user_bits:
        raise ValueError(f"user {user} does not fit into {user_bits} bits: raise user_bits")
    message = user
    for bit in torch.randint(2, (code.message - user_bits,), generator=generator).tolist():
        message = message << 1 | bit
    word = code.encode(message)
    bits = [word >> place & 1 for place in reversed(range(code.length))]
    return 2.0 * torch.tensor(bits) - 1.0


def _remainder(dividend: int, divisor: int) -> int:
    while (excess := dividend.bit_length() - divisor.bit_length()) >= 0:
        dividend ^= divisor << excess
    return dividend
