"""Shares, fixed point, layout and bytes, by numbers that can be checked by hand."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalface.privacy.secagg import messages, rules, shamir
from coalface.privacy.secagg.fixed_point import BLOCK, FixedPoint, OutOfRange
from coalface.privacy.secagg.masks import CHUNK, Stream, add_streams
from coalface.privacy.secagg.rules import Layout, Refusal, Rules, degree
from tests.privacy.secagg.world import World, entropy


def test_the_field_is_a_field() -> None:
    """Fermat: in a field of p elements every a has a^(p−1) = 1; no smaller number above 2^256 passes."""
    fermat = [2**256 + offset for offset in range(1, 298, 2) if pow(3, 2**256 + offset - 1, 2**256 + offset) == 1]
    assert fermat == [shamir.PRIME]
    assert all(pow(base, shamir.PRIME - 1, shamir.PRIME) == 1 for base in (2, 5, 7, 11, 13))


def test_a_line_through_two_shares() -> None:
    """Threshold 2 is a straight line: with shares 10 at 1 and 13 at 2, the secret at 0 is 7."""
    shares = {0: (10).to_bytes(33, "big"), 1: (13).to_bytes(33, "big")}
    assert shamir.join(shares, 2) == (7).to_bytes(32, "big")


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.randoms(use_true_random=False))
def test_any_threshold_of_shares_restores_and_fewer_do_not(secret: bytes, threshold: int, luck: object) -> None:
    shares = shamir.split(secret, range(6), threshold, entropy(1))
    chosen = luck.sample(range(6), threshold)  # type: ignore[attr-defined]
    assert shamir.join({holder: shares[holder] for holder in chosen}, threshold) == secret
    if threshold > 1:
        with pytest.raises(ValueError, match="shares of"):
            shamir.join({holder: shares[holder] for holder in chosen[1:]}, threshold)


def test_fewer_shares_fit_every_secret_equally() -> None:
    """One share of a line: whatever the secret is said to be, there is a line through it."""
    shares = shamir.split(bytes(31) + b"\x07", [0, 1], 2, entropy(0))
    for claimed in (0, 1, 2**255):
        slope = (int.from_bytes(shares[0], "big") - claimed) % shamir.PRIME
        assert (claimed + slope) % shamir.PRIME == int.from_bytes(shares[0], "big")


def test_the_quantum_is_stated_and_the_sum_is_within_half_of_it_each() -> None:
    fixed = FixedPoint(bound=4.0, clients=100)
    assert fixed.quantum == 2.0**-22  # 400 / 2^31 = 2^-22.4, rounded up to a power of two
    values = np.random.default_rng(0).uniform(-4, 4, (100, 1000))
    total = np.sum([fixed.encode(row) for row in values], axis=0, dtype=np.uint32)
    assert np.abs(fixed.decode(total) - values.sum(axis=0)).max() <= 100 * fixed.quantum / 2


def test_the_extremes_do_not_wrap() -> None:
    fixed = FixedPoint(bound=3.0, clients=1000, spare=50.0)
    for sign in (1, -1):
        one = fixed.encode(np.array([sign * 3.0])).astype(np.uint64) * 1000
        assert fixed.decode(one.astype(np.uint32))[0] == pytest.approx(sign * 3000, abs=1000 * fixed.quantum)
        assert 3050 / fixed.quantum < 2**31


@pytest.mark.parametrize("bad", [4.0001, -5.0, np.inf, np.nan])
def test_out_of_range_raises(bad: float) -> None:
    with pytest.raises(OutOfRange, match="outside ±4"):
        FixedPoint(4.0, 10).encode(np.array([0.0, bad]))


def test_streams_cancel_and_do_not_repeat() -> None:
    for size in (0, 1, CHUNK // 4, CHUNK // 4 + 3):
        vector = np.arange(size, dtype=np.uint32)
        add_streams(vector, [Stream(b"s" * 32, "a")])
        again = np.arange(size, dtype=np.uint32)
        add_streams(again, [Stream(b"s" * 32, "b")])
        assert size == 0 or not np.array_equal(vector, again)
        add_streams(vector, [Stream(b"s" * 32, "a", -1)])
        assert np.array_equal(vector, np.arange(size, dtype=np.uint32))


def test_a_stream_is_one_stream_across_chunks() -> None:
    long = np.zeros(CHUNK // 2, np.uint32)
    add_streams(long, [Stream(b"s" * 32, "a")])
    assert len(np.unique(long)) > 0.99 * len(long)  # each chunk goes on where the last one stopped


def test_streams_together_are_streams_one_after_another() -> None:
    streams = [Stream(b"s" * 32, "a"), Stream(b"t" * 32, "a", -1), Stream(b"s" * 32, "b")]
    together, alone = np.arange(CHUNK, dtype=np.uint32), np.arange(CHUNK, dtype=np.uint32)
    add_streams(together, streams)
    for stream in streams:
        add_streams(alone, [stream])
    assert np.array_equal(together, alone)


def test_blocks_and_a_factor_change_no_word() -> None:
    values = np.random.default_rng(0).normal(size=2 * BLOCK + 5).astype(np.float32).clip(-4, 4)
    fixed, out = FixedPoint(4.0, 10), np.zeros(2 * BLOCK + 5, np.uint32)
    by_hand = np.rint(values.astype(np.float64) * 0.3 / fixed.quantum).astype(np.int32).view(np.uint32)
    fixed.encode(values, 0.3, out)
    assert np.array_equal(out, by_hand) and np.array_equal(out, fixed.encode(values, 0.3))
    values[-1] = 14.0
    with pytest.raises(OutOfRange, match="a value of 4.2 is outside"):
        fixed.encode(values, 0.3)


# --- who masks with whom --------------------------------------------------------------------------------------------


def test_small_cohorts_are_complete_and_large_ones_are_not() -> None:
    assert degree(20, 0.1, 0.1, 16) == 19
    assert degree(100, 0.1, 0.1, 16) == 32
    assert 40 < degree(1000, 0.1, 0.1, 16) < 100
    assert degree(10_000, 0.1, 0.1, 16) < 110


def test_neighbours_are_mutual_and_all_alike() -> None:
    layout = Rules().layout(range(300), b"keys")
    for client in range(300):
        around = layout.neighbours(client)
        assert len(around) == layout.degree and client not in around
        assert all(client in layout.neighbours(other) for other in around)


def test_another_set_of_keys_is_another_circle() -> None:
    one, two = (Rules().layout(range(300), digest) for digest in (b"keys", b"other keys"))
    assert one.neighbours(0) != two.neighbours(0)


def test_the_majority_of_holders_is_a_crowd() -> None:
    for clients in (100, 1000):
        layout: Layout = Rules(min_cohort=16).layout(range(clients), b"keys")
        assert 2 * layout.holders_needed > layout.degree + 1 and layout.holders_needed >= 16


def test_tails_are_hypergeometric() -> None:
    # 2 or 3 red of 3 drawn from 4 red and 6 white: (6·6 + 4) / 120.
    assert rules._tail(10, 4, 3, 2) == pytest.approx(40 / comb(10, 3))
    assert rules._run(10, 4, 2) == pytest.approx(4 / 10 * 3 / 9)
    assert rules._run(10, 1, 2) == 0.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"threshold": 0.5}, "above 0.5"), ({"min_cohort": 2}, "a sum of 2"), ({"corrupt": 0.5}, "shares under 0.4")],
)
def test_rules_that_protect_nobody_are_refused(settings: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Rules(**settings)  # type: ignore[arg-type]


# --- bytes ----------------------------------------------------------------------------------------------------------


def travelled() -> list[object]:
    world = World(4)
    world.until("unmask", {"mask": [3]})
    server = world.server
    return [
        server.roster(), server.inbox(0), server.survivors(), server.agreements(), server._unmasking[0],
        messages.Shares(0, server._sealed[0]), messages.Agreement(2, b"x"), server._roster[1],
    ]  # fmt: skip


def test_every_message_survives_bytes_and_knows_its_size() -> None:
    for message in travelled():
        data = messages.encode(message)
        assert len(data) == messages.encoded_size(message)
        assert messages.decode(type(message), data) == message
    masked = messages.Masked(3, np.arange(5, dtype=np.uint32), np.zeros(0, np.uint32))
    back = messages.decode(messages.Masked, messages.encode(masked))
    assert back.client == 3 and back.vector.tolist() == [0, 1, 2, 3, 4] and len(back.group_vector) == 0


def test_bytes_that_are_cut_or_lie_are_refused() -> None:
    for message in travelled():
        data = messages.encode(message)
        for wrong in (data[:-1], data + b"\0", b""):
            with pytest.raises(Refusal, match="bytes"):
                messages.decode(type(message), wrong)
    with pytest.raises(Refusal, match="18446744073709551615 entries are announced in 8 bytes"):
        messages.decode(messages.Survivors, b"\xff" * 8 + bytes(8))
