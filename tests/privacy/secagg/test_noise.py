"""What the server holds of one client is noise: uniform, and unlike the update. Without masks the same tests say so."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from coalface.privacy.secagg import client, masks
from coalface.privacy.secagg.fixed_point import FixedPoint, Words
from coalface.privacy.secagg.masks import Stream
from tests.privacy.secagg.noise import Floats, alike, uniformity
from tests.privacy.secagg.world import World

SIZE = 40_000


def updates(world: World) -> dict[int, Floats]:
    """Like changes of weights: small, and of a few sizes; encoded as the clients' vectors."""
    drawn = np.random.default_rng(3)
    fixed = FixedPoint(4.0, len(world.clients))
    found = {c: drawn.normal(0, 1e-3, SIZE) * drawn.choice([0.1, 1, 10], SIZE) for c in world.clients}
    world.vectors = {c: fixed.encode(values) for c, values in found.items()}
    return found


def test_masked_uploads_are_noise() -> None:
    world = World(6, size=SIZE)
    values = updates(world)
    world.until("mask")
    for number, words in world.uploads.items():
        assert uniformity(words) < 6
        assert all(alike(words, of) < 6 for of in values.values()), number
    gaps = world.uploads[0] - world.uploads[1]
    assert uniformity(gaps) < 6 and alike(gaps, values[0]) < 6


def test_a_partial_sum_is_noise_too() -> None:
    world = World(6, size=SIZE)
    values = updates(world)
    world.until("mask")
    five = np.sum([world.uploads[c] for c in range(5)], axis=0, dtype=np.uint32)
    assert uniformity(five) < 6 and alike(five, sum(values[c] for c in range(5))) < 6


@pytest.mark.parametrize("gone", [(), (5,)])
def test_a_choirs_part_is_noise_and_stays_it_where_a_member_is_missing(gone: tuple[int, ...]) -> None:
    """Even without the self masks, which the server is told of survivors, one voice, or two of three, are noise."""
    world = World(6, size=1, groups={0: (0, 1, 2), 1: (3, 4, 5)}, group_size=SIZE)
    drawn = np.random.default_rng(4)
    values = {c: drawn.normal(0, 0.05, SIZE) for c in world.clients}
    fixed = FixedPoint(4.0, 3)
    world.group_vectors = {c: fixed.encode(of) for c, of in values.items()}
    world.until("mask", {"mask": gone})
    for number, words in world.group_uploads.items():
        assert uniformity(words) < 6 and alike(words, values[number]) < 6
        masks.add_streams(words, [Stream(world.clients[number]._secrets["self"], "self in group", -1)])
        assert uniformity(words) < 6 and alike(words, values[number]) < 6
    whole = np.sum([world.group_uploads[c] for c in (0, 1, 2)], axis=0, dtype=np.uint32)
    assert alike(whole, values[0] + values[1] + values[2]) > 20
    rest = [c for c in (3, 4, 5) if c not in gone][:2]
    two = np.sum([world.group_uploads[c] for c in rest], axis=0, dtype=np.uint32)
    assert uniformity(two) < 6 and alike(two, values[rest[0]] + values[rest[1]]) < 6


def test_two_sessions_have_nothing_in_common() -> None:
    one, two = World(6, size=SIZE), World(6, size=SIZE)
    two.session = two.server.session = b"another session".ljust(32)
    for world in (one, two):
        updates(world)
        for c in world.clients.values():
            c.session = world.session
        if world is two:
            for c in world.clients.values():
                c._secrets = {name: secret[::-1] for name, secret in c._secrets.items()}
        world.until("mask")
    assert uniformity(one.uploads[0] - two.uploads[0]) < 6


@pytest.mark.parametrize("missing", ["all", "pair", "self"])
def test_with_masks_off_the_same_tests_fail(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pair masks the server needs only the self mask, which it is told, to see one client."""
    real = masks.add_streams

    def weakened(vector: Words, streams: Iterable[Stream]) -> None:
        real(vector, [stream for stream in streams if missing not in ("all", stream.purpose)])

    monkeypatch.setattr(client.masks, "add_streams", weakened)
    world = World(6, size=SIZE)
    values = updates(world)
    world.until("mask")
    words = world.uploads[0]
    if missing == "pair":  # what is left is the self mask: take it away, as the server can after the round
        real(words, [Stream(world.clients[0]._secrets["self"], "self", -1)])
    elif missing == "self":  # what is left cancels in the sum of all: no client's, but a void round's sum is open
        words = np.sum([*world.uploads.values()], axis=0, dtype=np.uint32)
        values[0] = sum(values.values())  # type: ignore[assignment]
    assert uniformity(words) > 20 and alike(words, values[0]) > 20
