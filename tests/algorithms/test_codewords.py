"""BCH codes: what the constants promise, checked with nothing but their definition."""

from __future__ import annotations

import pytest
import torch

from coalface.algorithms.codewords import CODES, Code, codeword

PRIMITIVE = {127: 0b10001001, 255: 0b100011101, 511: 0b1000010001}  # x⁷+x³+1, x⁸+x⁴+x³+x²+1, x⁹+x⁴+1
every_code = pytest.mark.parametrize("code", CODES.values(), ids=lambda code: str(code.length))


def remainder(a: int, b: int) -> int:
    while a.bit_length() >= b.bit_length():
        a ^= b << (a.bit_length() - b.bit_length())
    return a


def powers_of_alpha(length: int) -> list[int]:
    """α⁰ … α^(n−1) in GF(2)[x] modulo the primitive polynomial; α = x."""
    found = [1]
    for _ in range(length - 1):
        found.append(remainder(found[-1] << 1, PRIMITIVE[length]))
    return found


@every_code
def test_the_field_has_a_primitive_element(code: Code) -> None:
    assert len(set(powers_of_alpha(code.length))) == code.length


@every_code
def test_the_generator_makes_a_cyclic_code_of_that_size(code: Code) -> None:
    assert code.generator.bit_length() - 1 == code.length - code.message
    assert remainder(1 << code.length | 1, code.generator) == 0  # it divides xⁿ − 1


@every_code
def test_enough_consecutive_powers_are_roots_for_the_distance(code: Code) -> None:
    """The BCH bound: δ − 1 consecutive roots give a distance of at least δ."""
    alpha = powers_of_alpha(code.length)
    for power in range(1, code.distance):
        value = 0
        for place in range(code.generator.bit_length()):
            if code.generator >> place & 1:
                value ^= alpha[power * place % code.length]
        assert value == 0, power


@every_code
def test_codewords_are_multiples_of_the_generator_and_show_their_message(code: Code) -> None:
    for message in (1, 2, 12345, (1 << code.message) - 1):
        word = code.encode(message)
        assert remainder(word, code.generator) == 0
        assert word >> (code.length - code.message) == message


@every_code
def test_users_get_distinct_codewords_at_least_the_distance_apart(code: Code) -> None:
    words = torch.stack([codeword(code, user, 32, torch.Generator().manual_seed(user)) for user in range(300)])
    assert set(words.flatten().tolist()) == {-1.0, 1.0}
    gram = words @ words.T
    differing = (code.length - gram) / 2
    differing.fill_diagonal_(code.length)
    assert float(differing.min()) >= code.distance
    assert float(gram.fill_diagonal_(-code.length).max()) / code.length <= code.max_cosine


def test_the_cosine_bounds_of_the_paper() -> None:
    assert [round(code.max_cosine, 2) for code in CODES.values()] == [0.67, 0.54, 0.32]


def test_the_secret_changes_the_codeword_but_never_the_user() -> None:
    code = CODES[127]
    one, same, other = (codeword(code, 5, 32, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert one[:32].tolist() == other[:32].tolist() == [-1.0] * 29 + [1.0, -1.0, 1.0]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="raise user_bits"):
        codeword(CODES[127], 16, 4, torch.Generator())
    with pytest.raises(ValueError, match="64 bits"):
        CODES[127].encode(1 << 64)


@every_code
def test_galois_says_the_same(code: Code) -> None:
    galois = pytest.importorskip("galois", reason="galois is not installed: it is only a second opinion")
    bch = galois.BCH(code.length, code.message)
    assert int(bch.generator_poly) == code.generator and bch.d == code.distance
    message = 0x123456789ABCDEF
    bits = [message >> place & 1 for place in reversed(range(code.message))]
    word = code.encode(message)
    assert list(map(int, bch.encode(bits))) == [word >> place & 1 for place in reversed(range(code.length))]
