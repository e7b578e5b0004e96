"""The protocol: exact whoever drops out and when, void when too few are left, and deaf to a server that lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coalface.privacy.secagg import masks, shamir
from coalface.privacy.secagg.client import Client
from coalface.privacy.secagg.masks import Stream
from coalface.privacy.secagg.messages import Advertisement, Agreements, Inbox, Roster, Survivors, Unmasking
from coalface.privacy.secagg.rules import Refusal, Rules, TooFew
from coalface.privacy.secagg.server import Server, Tampered
from tests.privacy.secagg.world import STEPS, World

# Six clients and a threshold of two thirds: four must be left, so that two may drop out and three may not.


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("gone", [(), (0,), (2, 5)])
def test_the_sum_is_exact_whoever_drops_out(step: str, gone: tuple[int, ...]) -> None:
    world = World()
    total = world.total({step: gone})
    counted = set(range(6)) - (set(gone) if STEPS.index(step) <= STEPS.index("mask") else set())
    assert set(total.clients) == counted
    assert np.array_equal(total.vector, world.plain(counted))


def test_dropouts_at_several_steps_of_one_round() -> None:
    world = World(12, Rules(min_cohort=3, threshold=0.6))
    total = world.total({"advertise": [0], "share": [1], "mask": [4], "unmask": [7]})
    assert set(total.clients) == {2, 3, 5, 6, 7, 8, 9, 10, 11}
    assert np.array_equal(total.vector, world.plain(total.clients))


@pytest.mark.parametrize("step", STEPS[1:])
def test_one_dropout_too_many_and_nothing_is_learnt(step: str) -> None:
    world = World()
    with pytest.raises((TooFew, Refusal)):
        world.total({step: (1, 3, 4)})
    secrets = [world.plain(range(6)), world.plain((0, 2, 5)), *world.vectors.values()]
    assert not any(np.array_equal(world.server._sum, secret) for secret in secrets)
    # Not even with everything that it was told: three shares of four are a secret's worth of nothing.
    shares = {m.client: m.self_shares[0] for m in world.server._unmasking.values() if 0 in m.self_shares}
    assert len(shares) < 4


def test_with_too_few_at_the_first_step_no_one_shares_a_secret() -> None:
    world = World(rules=Rules(min_cohort=5))
    with pytest.raises(TooFew, match="4 clients advertised, and 5 must"):
        world.total({"advertise": (0, 1)})


def test_a_large_cohort_masks_with_some_and_is_exact_too() -> None:
    rules = Rules(min_cohort=3)
    world = World(60, rules, size=5)
    total = world.total({"share": [3], "mask": [10, 20], "unmask": [30]})
    assert world.server._layout.degree < 59
    assert np.array_equal(total.vector, world.plain(set(range(60)) - {3, 10, 20}))


# --- groups ---------------------------------------------------------------------------------------------------------

CHOIRS = {0: (0, 1, 2), 1: (3, 4, 5), 2: (6, 7, 8)}


def test_a_whole_groups_sum_is_exact_and_a_partial_one_does_not_exist() -> None:
    world = World(9, groups=CHOIRS)
    total = world.total({"share": [0], "mask": [4]})
    assert total.groups.keys() == {2}
    assert np.array_equal(total.groups[2], np.sum([world.group_vectors[c] for c in (6, 7, 8)], axis=0, dtype=np.uint32))


@pytest.mark.parametrize("step", ["share", "mask"])
def test_a_partial_choir_stays_masked_though_the_server_tries_everything_it_has(step: str) -> None:
    """It restores every secret that it is given, and tries all that they unlock: self masks, and pair masks."""
    world = World(9, groups=CHOIRS)
    world.until("unmask", {step: [4]})
    server = world.server
    server.total()
    told = {u.client: u for u in server._unmasking.values()}
    needed = server._layout.holders_needed
    heard = server._group_sums[1].copy()
    for member in (3, 5):
        seed = shamir.join({c: u.self_shares[member] for c, u in told.items() if member in u.self_shares}, needed)
        masks.add_streams(heard, [Stream(seed, "self in group", -1)])
    secret = np.sum([world.group_vectors[c] for c in (3, 5)], axis=0, dtype=np.uint32)
    assert not np.array_equal(heard, secret)
    if step == "mask":  # the one who dropped out gave away its mask key: it is not the key of the choir
        gone = shamir.join({c: u.key_shares[4] for c, u in told.items() if 4 in u.key_shares}, needed)
        assert masks.public_of(gone) == server._roster[4].mask_key != server._roster[4].group_key
        for member in (3, 5):
            for key in (server._roster[member].group_key, server._roster[member].mask_key):
                seed = masks.agreed(gone, key, world.session, "pair group")
                for sign in (1, -1):
                    tried = heard.copy()
                    masks.add_streams(tried, [Stream(seed, "pair", sign)])
                    assert not np.array_equal(tried, secret)
    assert all(world.clients[c]._secrets["group"] not in str(told).encode() for c in (3, 4, 5))


def test_a_choir_that_is_too_small_is_refused() -> None:
    with pytest.raises(Refusal, match="a group of 2 would give its members away"):
        World(9, groups={0: (0, 1)})


# --- a server that lies ---------------------------------------------------------------------------------------------


def world_with_roster() -> tuple[World, Roster]:
    world = World()
    world.until("advertise")
    return world, world.server.roster()


def test_a_participant_that_the_server_invents_is_refused() -> None:
    world, roster = world_with_roster()
    invented = replace(roster.advertisements[0], client=99)
    with pytest.raises(Refusal, match="client 99 are not signed by a registered node"):
        world.clients[1].share(Roster((*roster.advertisements, invented)))


@pytest.mark.parametrize("field", ["share_key", "mask_key", "group_key", "commitment"])
def test_keys_that_the_server_changes_are_refused(field: str) -> None:
    world, roster = world_with_roster()
    mine = masks.public_of(bytes(range(32)))
    forged = Roster((replace(roster.advertisements[0], **{field: mine}), *roster.advertisements[1:]))
    with pytest.raises(Refusal, match="client 0 are not signed"):
        world.clients[1].share(forged)


def test_an_advertisement_of_an_earlier_session_is_refused() -> None:
    world, roster = world_with_roster()
    later = Client(1, world.node_keys[1], world.directory, world.rules, b"another session".ljust(32))
    later.advertise()
    with pytest.raises(Refusal, match="not signed by a registered node"):
        later.share(roster)


def test_what_is_signed_in_one_session_fits_no_other() -> None:
    """A server chooses sessions: a longer one could hold the very keys that it wants to hand out in a shorter one."""
    world, roster = world_with_roster()
    real, mine = roster.advertisements[2], masks.public_of(bytes(range(32)))
    longer = world.session + (2).to_bytes(8, "big") + 3 * mine
    rest = (2).to_bytes(8, "big") + b"".join(real.parts)
    forged = Advertisement(2, mine, mine, mine, rest, b"")
    assert forged.signed_text(world.session) != real.signed_text(longer)
    with pytest.raises(Refusal, match="a session of 136 bytes, not 32"):
        Client(2, world.node_keys[2], world.directory, world.rules, longer)
    with pytest.raises(Refusal, match="keys of client 2 are not of 32 bytes"):
        world.clients[1].share(Roster((*roster.advertisements[:2], forged, *roster.advertisements[3:])))


@pytest.mark.parametrize("field", ["share_key", "mask_key", "group_key", "commitment"])
@pytest.mark.parametrize("bad", [bytes(32), b"short"])
def test_keys_that_nobody_can_use_cost_their_owner_the_place(field: str, bad: bytes) -> None:
    """A key of low order makes everybody else refuse the roster: one client would void every round."""
    world, roster = world_with_roster()
    server = Server(world.session, world.rules, 4)
    message = replace(roster.advertisements[0], **{field: bad})
    if field == "commitment" and len(bad) == 32:  # it may be any number
        server.advertised(message)
        return
    with pytest.raises(Refusal, match="client 0 sent keys that nobody can use"):
        server.advertised(message)


def test_a_step_that_failed_ends_the_session() -> None:
    world, roster = world_with_roster()
    with pytest.raises(Refusal, match="under the minimum"):
        world.clients[1].share(Roster(roster.advertisements[:1]))
    with pytest.raises(Refusal, match="asked to mask, and can only do nothing"):
        world.clients[1].mask(Inbox((), {}), *[np.zeros(0, np.uint32)] * 2)


def test_a_roster_that_is_short_or_without_me_or_with_doubles_is_refused() -> None:
    for change, says in (
        (lambda ads: ads[:2], "a cohort of 2 is under the minimum of 3"),
        (lambda ads: ads[:1] + ads[2:], "does not have the keys of client 1"),
        (lambda ads: (*ads, ads[0]), "client 0 is on the roster twice"),
    ):
        world, roster = world_with_roster()
        with pytest.raises(Refusal, match=says):
            world.clients[1].share(Roster(change(roster.advertisements)))


def test_a_share_that_was_tampered_with_is_refused() -> None:
    world = World()
    world.until("share")
    inbox = world.server.inbox(1)
    bad = bytearray(inbox.sealed[0])
    bad[5] ^= 1
    with pytest.raises(Refusal, match="a share was tampered with"):
        world.clients[1].mask(replace(inbox, sealed={**inbox.sealed, 0: bytes(bad)}), *[np.zeros(0, np.uint32)] * 2)


def test_a_share_for_somebody_else_is_refused() -> None:
    world = World()
    world.until("share")
    inbox = world.server.inbox(1)
    crossed = replace(inbox, sealed={**inbox.sealed, 0: world.server.inbox(2).sealed[0]})
    with pytest.raises(Refusal, match="a share was tampered with"):
        world.clients[1].mask(crossed, *[np.zeros(0, np.uint32)] * 2)


@pytest.mark.parametrize(
    ("survivors", "says"),
    [
        ((0, 1, 2), "3 clients survived, and 4 must"),
        ((0, 2, 3, 4), "client 1 is not on the list"),
        ((0, 1, 2, 77), "strangers or doubles"),
        ((0, 1, 2, 2), "strangers or doubles"),
    ],
)
def test_a_client_signs_no_list_that_would_expose_it(survivors: tuple[int, ...], says: str) -> None:
    world = World()
    world.until("mask")
    with pytest.raises(Refusal, match=says):
        world.clients[1].agree(Survivors(survivors))


def test_two_lists_of_survivors_do_not_both_get_unmasked() -> None:
    """The server shows some clients one list and some another, to collect both kinds of share about client 0."""
    world = World()
    world.until("mask")
    with_0, without_0 = Survivors((0, 1, 2, 3, 4, 5)), Survivors((1, 2, 3, 4, 5))
    signed = {c: world.clients[c].agree(with_0 if c < 3 else without_0).signature for c in range(6)}
    for client in range(6):
        with pytest.raises(Refusal, match="3 clients signed this list of survivors, and 4 must"):
            world.clients[client].unmask(Agreements(signed))


def test_forged_signatures_do_not_count() -> None:
    world = World()
    world.until("mask")
    one = world.clients[1].agree(world.server.survivors()).signature
    with pytest.raises(Refusal, match="1 clients signed"):
        world.clients[1].unmask(Agreements(dict.fromkeys(range(6), one)))


def test_nothing_is_unmasked_twice_or_before_its_turn() -> None:
    world = World()
    world.until("mask")
    with pytest.raises(Refusal, match="asked to unmask, and can only do agree"):
        world.clients[0].unmask(Agreements({}))
    world = World()
    world.until("unmask")
    with pytest.raises(Refusal, match="can only do nothing"):
        world.clients[0].unmask(world.server.agreements())


def test_both_kinds_of_share_of_one_client_never_leave() -> None:
    world = World()
    world.until("unmask", {"mask": [4]})
    for message in world.server._unmasking.values():
        assert message.self_shares.keys() == {0, 1, 2, 3, 5} and message.key_shares.keys() == {4}


# --- clients that lie -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "about", "says"), [("self_shares", 0, "self mask"), ("key_shares", 4, "mask key")])
def test_wrong_shares_void_the_round(field: str, about: int, says: str) -> None:
    world = World()
    world.until("agree", {"mask": [4]})
    agreements = world.server.agreements()
    for client in (0, 1, 2, 3, 5):
        message = world.clients[client].unmask(agreements)
        if client == 0:
            wrong = {**getattr(message, field), about: bytes(shamir.SHARE_BYTES)}
            message = replace(message, **{field: wrong})
        world.server.unmasked(message)
    with pytest.raises(Tampered, match=says):
        world.server.total()


def test_a_server_takes_each_message_once() -> None:
    world = World()
    world.until("unmask")
    for again in (world.server.unmasked, world.server.agreed):
        with pytest.raises(Refusal, match="sent the same step twice"):
            again(Unmasking(0, {}, {}))  # type: ignore[arg-type]
