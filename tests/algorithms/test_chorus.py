"""Chorus: who sings with whom, and what of it the server can solve."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coalface.algorithms.chorus import Chorus, Fixed, Private, Server, Trained
from coalface.data.public import Public
from coalface.federation import Rounds
from coalface.models.net import Net, Weights
from coalface.privacy.audits import recovery, simulate
from tests.conftest import noise_population, small_run


def standing(method: Chorus, clients: int) -> Server:
    choirs = method.groupings * (clients // method.choir)
    return Server(Weights({}, {}), torch.zeros(choirs, 1, 4), torch.zeros(choirs), clients)


def test_columns_move_on_by_their_number() -> None:
    """Twelve clients in four rows of three: 0 1 2 / 3 4 5 / 6 7 8 / 9 10 11."""
    method = Chorus(choir=3, groupings=2)
    server = standing(method, 12)
    assert sorted(method.members(server, 0)) == [0, 1, 2]
    assert sorted(method.members(server, 4)) == [0, 8, 10]  # row 0, one row back, two rows back


@pytest.mark.parametrize(("clients", "choir", "groupings"), [(12, 3, 2), (83, 8, 4), (50, 4, 3), (7, 3, 1)])
def test_everybody_sings_once_in_every_grouping(clients: int, choir: int, groupings: int) -> None:
    method = Chorus(choir=choir, groupings=groupings)
    server, rows = standing(method, clients), clients // choir
    for grouping in range(groupings):
        found = [method.members(server, grouping * rows + row) for row in range(rows)]
        assert sorted(client for members in found for client in members) == list(range(clients))
        assert all(
            method.choir_of(server, c, grouping) == grouping * rows + row for row in range(rows) for c in found[row]
        )
        assert min(map(len, found)) == choir
        for client in range(clients):  # what a client works out for itself is what the server does
            own = next(sorted(members) for members in found if client in members)
            assert list(method.groups(client, clients)[grouping]) == own


def test_no_two_sing_together_twice() -> None:
    method = Chorus(choir=4, groupings=3)
    server = standing(method, 60)  # 15 rows, more than 3 · 4
    together = torch.zeros(60, 60)
    for choir in range(45):
        members = torch.tensor(method.members(server, choir))
        together[members[:, None], members] += 1
    assert together.fill_diagonal_(0).max() == 1


def test_groupings_take_turns_and_a_cohort_is_of_one_of_them() -> None:
    method = Chorus(choir=3, groupings=2)
    server = Server(Weights({}, {}), torch.zeros(8, 1, 4), torch.zeros(8), 12, grouping=1)
    called = method.cohort(server, 12, 6, torch.Generator().manual_seed(0))
    choirs = {method.group(server, client) for client in called}
    assert len(called) == 6 and len(choirs) == 2 and min(choirs) >= 4


@pytest.mark.parametrize(("choir", "groupings"), [(4, 2), (8, 4)])
def test_the_server_solves_a_share_of_r_over_k(choir: int, groupings: int) -> None:
    """Orthogonal voices: the best linear guess has a squared cosine of R / k on average, so nobody is recovered."""
    voices = torch.eye(160)
    sung = simulate.groupings(Chorus(choir=choir, groupings=groupings), voices, torch.Generator().manual_seed(0))
    found = recovery.from_groupings(sung.members, sung.sums, voices, torch.Generator().manual_seed(0), "chorus")
    assert found.details["median_cosine"] == pytest.approx((groupings / choir) ** 0.5, abs=0.04)
    assert found.success == 0


@pytest.mark.parametrize(("choir", "groupings", "least", "most"), [(8, 4, 0.4, 0.6), (4, 3, 0.6, 0.76)])
def test_no_voice_follows_from_all_sums_together(choir: int, groupings: int, least: float, most: float) -> None:
    """Whatever the number of clients, those left over included: fewer equations than people, and of nobody's voice
    does more than a part lie in their span; 1 would be a voice that is solved."""
    method = Chorus(choir=choir, groupings=groupings)
    for clients in (*range(2 * choir, 4 * choir), 10 * choir + 3):
        sums = sorted({group for client in range(clients) for group in method.groups(client, clients)})
        who = torch.zeros(len(sums), clients, dtype=torch.float64)
        for row, members in enumerate(sums):
            who[row, list(members)] = 1
        _, values, right = torch.linalg.svd(who, full_matrices=False)
        rank = int((values > 1e-9).sum())
        assert rank <= groupings * (clients // choir) - (groupings - 1) < clients
        assert right[:rank].square().sum(dim=0).max() < most
    assert right[:rank].square().sum(dim=0).max() > least  # it is not that nothing is told


def test_as_many_groupings_as_members_would_be_solved() -> None:
    """The control, and why chorus refuses it: with R = k the same attack has everybody."""
    with pytest.raises(ValueError, match="groupings must be from 1 to 3"):
        Chorus(choir=4, groupings=4)
    method = Chorus(choir=4, groupings=3)
    object.__setattr__(method, "groupings", 4)
    voices = torch.eye(160)
    sung = simulate.groupings(method, voices, torch.Generator().manual_seed(0))
    found = recovery.from_groupings(sung.members, sung.sums, voices, torch.Generator().manual_seed(0), "chorus")
    assert found.success > 0.95


def test_mixtures_take_one_grouping() -> None:
    """Two spans of four that share one voice meet in it: the one direction that lies in both."""
    voices = torch.linalg.qr(torch.randn(16, 7, generator=torch.Generator().manual_seed(0)))[0].T  # 0 is in both
    one, other = voices[:4], voices[[0, 4, 5, 6]]
    lies_in_both = torch.linalg.eigh(one.T @ one + other.T @ other)
    assert lies_in_both.eigenvalues[-2:].tolist() == pytest.approx([1, 2], abs=1e-5)
    assert abs(lies_in_both.eigenvectors[:, -1] @ voices[0]) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="mixtures take one grouping"):
        Chorus(choir=8, groupings=2, parts=16)


def test_noise_is_in_the_sums_with_the_length_that_was_asked_for() -> None:
    """Four members with noise of length 1, at right angles to each other: their sum has length 2."""
    voices = simulate.embeddings(40, 2048, torch.Generator().manual_seed(0))
    loud, quiet = (
        simulate.groupings(Chorus(choir=4, noise=noise), voices, torch.Generator().manual_seed(1)).sums
        for noise in (1.0, 0.0)
    )
    assert (loud - quiet).norm(dim=1).mean() == pytest.approx(2.0, abs=0.05)


def test_noise_is_drawn_once_and_kept(net: Net, tmp_path: Path) -> None:
    kept = []
    for rounds in (1, 3):
        run = small_run("chorus", net, noise_population(8), tmp_path)
        run.method = Chorus(choir=4, groupings=2, noise=1.0)
        run.run(Rounds(rounds=rounds))
        state = run.stage.private.load(0, 1 << 62)
        assert isinstance(state, Private)
        kept.append(state.noise)
    assert kept[0].norm() > 0.3 and torch.equal(*kept)


def test_enrolment_calls_choirs_that_are_silent_and_trains_nobody() -> None:
    method = Chorus(choir=4, enrol_first=True)
    server = standing(method, 16)
    server.heard[[0, 2]] = 1
    generator = torch.Generator().manual_seed(0)
    assert method.cohort(server, 16, 16, generator) == [4, 5, 6, 7, 12, 13, 14, 15]  # the second and the fourth choir
    images, voice = torch.eye(8)[:2], torch.eye(8)[0]
    chords = torch.eye(8)[:4, None]
    trained = Trained(Weights({}, {}), voice, torch.zeros(8), torch.ones(1))
    for heard, trains in ((server.heard, False), (torch.ones(4), True)):
        fixed = Fixed(chords, heard, torch.tensor([0.0, 0, 0, 1]), anchors=chords[:0, 0])
        assert bool(method.among_choirs(images, trained, fixed)["loss"].any()) is trains


def test_anchors_are_negatives_beside_the_chords() -> None:
    """An image on its own voice, with one other choir and two anchors at right angles: e⁴ among e⁴ + 3."""
    method, basis = Chorus(choir=4, scale=4.0, anchors=2), torch.eye(8)
    trained = Trained(Weights({}, {}), basis[0], torch.zeros(8), torch.ones(1))
    fixed = Fixed(basis[:2, None], torch.ones(2), own=torch.tensor([1.0, 0]), anchors=basis[4:6])
    loss = method.among_choirs(basis[:1], trained, fixed)["loss"]
    assert loss.item() == pytest.approx(math.log((math.exp(4) + 3) / math.exp(4)), rel=1e-5)


def test_anchors_are_public_people_and_drawn_anew_for_each_round(net: Net) -> None:
    start, clients = net.fresh(0), noise_population(8)  # three public people
    method, luck = Chorus(choir=4, anchors=2), torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match="anchors=2 are public people, and there are none: set data.public"):
        method.check(replace(clients, public=Public()))
    with pytest.raises(ValueError, match="anchors=4 are public people, and there are 3"):
        replace(method, anchors=4).check(clients)
    head = 3 * torch.eye(net.embedding)[:3]
    server = method.begin(net, start, replace(clients, public=replace(clients.public, head=head)), luck)
    assert server.anchors is not None and torch.equal(server.anchors, head / 3)  # directions
    rounds = [method.open_round(server, [0], luck).anchors.argmax(dim=1).tolist() for _ in range(8)]
    assert all(len(set(drawn)) == 2 for drawn in rounds) and len({tuple(drawn) for drawn in rounds}) > 1
    unnamed = method.begin(net, start, clients, luck)  # weights from a file come without a classifier
    assert unnamed.anchors is not None and unnamed.anchors.norm(dim=1).tolist() == pytest.approx([1] * 3)
    assert Chorus(choir=4).begin(net, start, clients, luck).anchors is None


def test_a_client_knows_how_many_anchors_it_will_be_sent(net: Net) -> None:
    """Without a public face, it works out a broadcast of the right shapes: what differs is refused."""
    method, luck = Chorus(choir=4, anchors=2), torch.Generator().manual_seed(0)
    server = method.begin(net, net.fresh(0), replace(noise_population(8), public=Public()), luck)
    shown = method.broadcast(server, method.open_round(server, [0], luck), 0)
    assert shown.anchors.shape == (2, net.embedding)


def test_so_many_chords_are_sent_of_choirs_that_have_sung(net: Net) -> None:
    """Four choirs of four, of which 0, 2 and 3 have sung; two chords a round."""
    method, luck = Chorus(choir=4, chords=2), torch.Generator().manual_seed(0)
    server = replace(standing(method, 16), chords=torch.eye(4)[:, None], heard=torch.tensor([1.0, 0, 1, 1]))
    sings, faces, seen = Private(torch.zeros(4), torch.zeros(4)), noise_population(8)[0], set()
    for _ in range(20):
        opened = method.open_round(server, [0], luck)
        sent = opened.chords[:, 0].argmax(dim=1).tolist()
        seen.add(tuple(sorted(sent)))
        assert opened.heard.tolist() == [1, 1]
        for client in (0, 5, 9):
            choir, broadcast = client // 4, method.broadcast(server, opened, client)
            own = method.start(net, broadcast, sings, faces, luck).fixed.own.tolist()
            assert own == [float(sent_one == choir) for sent_one in sent]
    assert seen == {(0, 2), (0, 3), (2, 3)}
    untouched = luck.get_state()
    for enough in (0, 4, 9):
        assert replace(method, chords=enough).open_round(server, [0], luck).chords is server.chords
    assert torch.equal(luck.get_state(), untouched)
    with pytest.raises(ValueError, match="chords .* not 0.0, 0 and -1"):
        Chorus(chords=-1)


def test_nobody_trains_by_some_chords_until_all_have_sung() -> None:
    method, luck = Chorus(choir=4, chords=2, enrol_first=True), torch.Generator().manual_seed(0)
    server = standing(method, 16)
    for sung, waits in (([1.0, 1, 1, 0], True), ([1.0, 1, 1, 1], False)):
        opened = method.open_round(replace(server, heard=torch.tensor(sung)), [0], luck)
        assert (float(opened.heard.min()) == 0) is waits


def test_chords_that_were_heard_are_watched() -> None:
    method = Chorus(choir=4)
    chords = torch.eye(4)[[0, 0, 1, 2]][:, None]
    server = Server(Weights({}, {}), chords, torch.tensor([1.0, 1, 1, 0]), 16)
    # Two chords alike, the third at right angles: one pair of three at cosine 1; σ² of 2 and 1, so 9 / 5.
    expected = {"chord_mean_cosine": 1 / 3, "chord_max_cosine": 1.0, "chord_rank": 9 / 5}
    assert method.monitors(server) == pytest.approx(expected)
    assert method.monitors(standing(method, 16)) == {}
