"""Every method through the secure sum: the same round, within the quantum, whoever drops out, or no round at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coalface import seeding, tree, wire
from coalface.algorithms import METHODS
from coalface.data.centres import centres
from coalface.engines.engine import Reply, Task
from coalface.engines.faults import Faults, Faulty
from coalface.federation import QuorumError, Rounds
from coalface.gathering import Gathered, Plain, Sums
from coalface.models.net import Net
from coalface.privacy.layout import UploadLayout
from coalface.privacy.secagg import masks, messages
from coalface.privacy.secagg.client import Client
from coalface.privacy.secagg.fixed_point import FixedPoint, Words
from coalface.privacy.secagg.rules import Rules
from coalface.privacy.secagg.server import Server
from coalface.privacy.secure_sum import SecureSums, Simulation
from coalface.privacy.settings import revealed
from tests.conftest import SmallRun, noise_population, noise_recordings, small_net, small_run
from tests.privacy.secagg.noise import alike, uniformity
from tests.privacy.secagg.world import entropy

CLIENTS, BOUND, MOST = 8, 64.0, 6
RULES = Rules(min_cohort=4, threshold=0.6)  # of eight, five must be left: three may drop out, four may not
ROUNDS = Rounds(rounds=1, quorum=0.5)
FEDERATED = [
    name for name in METHODS if not name.startswith(("centralised", "all"))
]  # one client has nobody to hide among
STEPS = ("advertise", "share", "train", "agree", "unmask")


def secure(step: str = "", gone: tuple[int, ...] = ()) -> SecureSums:
    absent = lambda at, client: at == step and client in gone  # noqa: E731
    return SecureSums(ROUNDS, RULES, BOUND, MOST, entropy(0), absent)


def gathered(run: SmallRun, sums: Sums, silent: tuple[int, ...] = ()) -> tuple[Gathered, dict[int, str], list[Reply]]:
    """One round by the sequential engine, with some clients silent when their uploads are due."""
    server = run.begin()
    method = run.method
    opened = method.open_round(server, [*range(CLIENTS)], seeding.generator(0, "round", 1))
    task = Task(method, run.net, run.training, 0, 1, 0, lambda client: method.broadcast(server, opened, client))
    gathering = sums.open(task, range(CLIENTS), lambda client: method.group(server, client), CLIENTS)
    outcomes, replies = {}, []
    for reply in run.engine.gather(task, range(CLIENTS)):
        heard = Reply(reply.client, trouble="dropped out") if reply.client in silent else reply
        outcomes[reply.client] = gathering.count_in(heard, method.expected(task.broadcast(reply.client)))
        replies.append(reply)
    result = gathering.close()
    return result, outcomes, [gathering.told(reply) for reply in replies]


def assert_same(method: Any, plain: Gathered, hidden: Gathered) -> None:
    one, two = plain.received, hidden.received
    assert one is not None and two is not None and one.clients == two.clients
    quantum = FixedPoint(BOUND, CLIENTS).quantum
    for row in wire.disclosure(method.types.upload):
        if row.seen is wire.Seen.SUMMED:
            # Each of n clients is off by half a quantum of its weight over the largest weight.
            slack = len(one.clients) * quantum * MOST / 2 / one.weight + 1e-8
            assert_close(one.mean(row.field), two.mean(row.field), slack)
        elif row.seen is wire.Seen.GROUPED:
            sums = [received.whole_groups(row.field, lambda group: 4) for received in (one, two)]
            assert sums[0].keys() == sums[1].keys()
            for group, total in sums[0].items():
                assert_close(total, sums[1][group], 4 * quantum / 2 + 1e-6)
        elif row.seen is wire.Seen.REVEALED:
            sent = [{c: tree.sha256({"x": v}) for c, v in r.revealed(row.field).items()} for r in (one, two)]
            assert sent[0] == sent[1]
        else:
            assert one.count(row.field) == two.count(row.field)
    assert hidden.losses == pytest.approx(plain.losses, abs=1e-3)


def assert_close(one: Any, two: Any, slack: float) -> None:
    for path, leaf in tree.leaves({"x": two}).items():
        torch.testing.assert_close(leaf, tree.leaves({"x": one})[path], rtol=1e-6, atol=slack)


@pytest.fixture
def run(name: str, tmp_path: Path) -> SmallRun:
    if METHODS[name].world == "faces":
        each = 1 if METHODS[name].one_identity else 2
        people = noise_population(CLIENTS, identities_each=each, images=4 // each)
        return small_run(name, small_net(name), people, tmp_path)
    people = centres([noise_recordings(seed) for seed in range(CLIENTS)])
    return small_run(name, small_net(name), people, tmp_path, rate=1e-4)  # a larger one drives statistics off bounds


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize(("step", "gone"), [("", ()), *((step, (1, 4, 6)) for step in STEPS)])
def test_the_secure_sum_is_the_plain_sum(run: SmallRun, step: str, gone: tuple[int, ...]) -> None:
    silent = gone if step in ("advertise", "share", "train") else ()
    plain, _, _ = gathered(run, Plain(ROUNDS), silent)
    hidden, outcomes, told = gathered(run, secure(step, gone), gone if step == "train" else ())
    assert_same(run.method, plain, hidden)
    assert [client for client, outcome in outcomes.items() if outcome != "counted"] == [*silent]
    assert all(reply.images == 0 and not reply.losses for reply in told)


@pytest.mark.parametrize("name", FEDERATED)
def test_one_or_two_dropouts(run: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every step, with the same uploads each time."""
    trained: list[Reply] = []
    once = run.engine.gather

    def again(task: Task, cohort: Any) -> list[Reply]:
        trained.extend(once(task, cohort) if not trained else ())
        return trained

    monkeypatch.setattr(run.engine, "gather", again)
    for gone in ((3,), (0, 7)):
        rest, _, _ = gathered(run, Plain(ROUNDS), gone)
        everybody, _, _ = gathered(run, Plain(ROUNDS))
        for step in STEPS:
            hidden, _, _ = gathered(run, secure(step, gone), gone if step == "train" else ())
            assert_same(run.method, rest if step in ("advertise", "share", "train") else everybody, hidden)


def test_every_round_has_keys_of_its_own_signed_by_the_same_nodes(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[bytes, messages.Advertisement]] = []
    take = Server.advertised
    monkeypatch.setattr(Server, "advertised", lambda s, m: (told.append((s.session, m)), take(s, m))[1])
    run = small_run("fedavg/private-head", net, noise_population(CLIENTS, identities_each=2, images=2), tmp_path)
    simulation = Simulation(ROUNDS, RULES, os.urandom, lambda step, client: False)
    run.sums = SecureSums(ROUNDS, RULES, BOUND, MOST, meet=simulation.meet)
    run.run(Rounds(rounds=3))
    assert len(told) == 3 * CLIENTS and len({session for session, _ in told}) == 3
    keys = [key for _, m in told for key in (m.share_key, m.mask_key, m.group_key)]
    assert len(set(keys)) == len(keys) and len({m.commitment for _, m in told}) == len(told)
    nodes = simulation._directory
    assert all(masks.is_signed(nodes[m.client], m.signed_text(session), m.signature) for session, m in told)
    first, last = told[0], told[-1]
    assert not masks.is_signed(nodes[first[1].client], first[1].signed_text(last[0]), first[1].signature)


@pytest.mark.parametrize("name", FEDERATED)
def test_one_dropout_too_many_and_the_round_is_void(run: SmallRun) -> None:
    for step in STEPS:
        hidden, _, _ = gathered(run, secure(step, (0, 1, 2, 3)), (0, 1, 2, 3) if step == "train" else ())
        assert hidden.received is None and not hidden.losses


def test_a_void_round_is_recorded_and_changes_nothing(net: Net, tmp_path: Path) -> None:
    run = small_run("fedavg/private-head", net, noise_population(CLIENTS, identities_each=2, images=2), tmp_path)
    run.sums = secure("unmask", (0, 1, 2, 3))
    with pytest.raises(RuntimeError, match="void 2 times"):
        run.run(Rounds(rounds=1, attempts=2))
    assert [row["void"] for row in run.stage.rounds()] == [True, True]
    assert not run.stage.private.clients()


@pytest.mark.parametrize(
    ("word", "together"),
    [(-7 * 4, 0), (-7 * 4 - 1, -1), (CLIENTS * MOST - 7 * 4 + 1, 49)],  # seven hold 4 images each; 8 × 6 are possible
)
def test_a_weight_that_cannot_be_makes_the_round_void(
    word: int, together: int, net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member puts another number where its images are; nobody can see whose it was."""
    honest = UploadLayout.vectors

    def vectors(layout: UploadLayout, upload: wire.Upload, losses: dict[str, float], client: int) -> Any:
        vector, grouped = honest(layout, upload, losses, client)
        if client == 0:
            vector[layout.values] = np.uint32(word & 0xFFFFFFFF)
        return vector, grouped

    monkeypatch.setattr(UploadLayout, "vectors", vectors)
    run = small_run("fedavg/private-head", net, noise_population(CLIENTS, identities_each=2, images=2), tmp_path)
    run.sums = secure()
    why = f"somebody spoilt the sum: 8 clients weigh 1 to 48 together, and not {together}"
    with pytest.raises(QuorumError, match=f"void 2 times: {why}"):
        run.run(Rounds(rounds=1, attempts=2))
    assert [(row["void"], row["why"].startswith(why)) for row in run.stage.rounds()] == [(True, True)] * 2
    assert not run.stage.private.clients()


@pytest.mark.parametrize("name", ["fedavg/shared-head", "fedfv", "chorus"])
def test_a_whole_run_is_the_plain_run_within_the_quantum(name: str, net: Net, tmp_path: Path) -> None:
    ends = []
    for folder, sums in (("plain", None), ("secure", secure())):
        run = small_run(name, net, noise_population(CLIENTS), tmp_path / folder)
        run.sums = sums
        ends.append(run.run(Rounds(rounds=3)))
    leaves = tree.leaves(ends[1])
    for path, leaf in tree.leaves(ends[0]).items():
        torch.testing.assert_close(leaves[path], leaf, rtol=0, atol=2e-6, msg=lambda m, p=path: f"{p}: {m}")


def test_faults_of_every_kind_leave_an_exact_sum_of_the_rest(net: Net, tmp_path: Path) -> None:
    ends, outcomes = [], []
    for folder, sums in (("plain", None), ("secure", secure())):
        run = small_run("fedface", net, noise_population(CLIENTS), tmp_path / folder)
        run.engine = Faulty(run.engine, Faults(dropout=0.1, late=0.1, damaged=0.1))  # type: ignore[assignment]
        run.sums = sums
        ends.append(run.run(Rounds(rounds=3, quorum=0.6)))
        outcomes.append([(row["client"], row["outcome"]) for row in run.stage.ledger()])
    assert outcomes[0] == outcomes[1]
    assert {outcome.split(":")[0] for _, outcome in outcomes[1]} > {"counted", "refused"}
    assert_close(ends[0].backbone, ends[1].backbone, 2e-6)  # type: ignore[attr-defined]


def test_a_secure_run_repeats_bit_for_bit_though_its_masks_do_not(net: Net, tmp_path: Path) -> None:
    hashes = set()
    for number in range(2):
        run = small_run("chorus", net, noise_population(CLIENTS), tmp_path / str(number))
        run.sums = SecureSums(ROUNDS, RULES, BOUND, MOST)  # the operating system's randomness
        hashes.add(tree.sha256(run.run(Rounds(rounds=2))))
    assert len(hashes) == 1


def test_what_does_not_fit_is_refused_and_the_round_goes_on(net: Net, tmp_path: Path) -> None:
    run = small_run("fedavg/positive-only", net, noise_population(CLIENTS), tmp_path)
    narrow = SecureSums(ROUNDS, RULES, 1e-9, MOST, entropy(0))
    _, outcomes, _ = gathered(run, narrow)
    assert all("raise privacy.value_bound" in outcome for outcome in outcomes.values())
    few = SecureSums(ROUNDS, RULES, BOUND, 3, entropy(0))
    _, outcomes, _ = gathered(run, few)
    assert set(outcomes.values()) == {"refused: 4 images, and privacy.most_images is 3"}


def test_the_ledger_has_the_bytes_that_travelled(net: Net, tmp_path: Path) -> None:
    run = small_run("fedface", net, noise_population(CLIENTS), tmp_path)
    _, _, told = gathered(run, secure())
    numbers = sum(leaf.numel() for leaf in tree.leaves(run.net.shapes).values())
    for reply in told:
        assert 4 * numbers < reply.bytes_up < 4 * numbers + 8000  # masks cost no bytes; keys, shares and signatures do


@pytest.mark.parametrize("name", FEDERATED)
def test_private_state_is_not_in_the_masked_bytes(run: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a group's sum included: in the open they are a client's own state."""
    sent: dict[int, bytes] = {}
    take = Server.masked
    monkeypatch.setattr(Server, "masked", lambda s, m: (sent.update({m.client: messages.encode(m)}), take(s, m))[1])
    kept = {}
    keep = run.engine.gather
    monkeypatch.setattr(
        run.engine, "gather", lambda task, cohort: (kept.setdefault(r.client, r) for r in keep(task, cohort))
    )
    gathered(run, secure())
    assert sent.keys() == kept.keys()
    quantum = FixedPoint(BOUND, 4).quantum  # of a choir
    for client, reply in kept.items():
        for leaf in tree.leaves(reply.private).values():
            canary = leaf.numpy().tobytes()[:16]
            encoded = np.rint(leaf.double().numpy() / quantum).astype(np.int64).astype(np.uint32).tobytes()[:16]
            assert len(canary) < 16 or (canary not in sent[client] and encoded not in sent[client])


@pytest.mark.parametrize("name", FEDERATED)
def test_what_the_server_holds_of_one_client_is_noise(run: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform, and unlike the update, which by itself is not."""
    bare: dict[int, Words] = {}
    sent: dict[int, Words] = {}
    mask, take = Client.mask, Server.masked
    monkeypatch.setattr(
        Client, "mask", lambda s, inbox, *of: (bare.update({s.me: np.concatenate(of)}), mask(s, inbox, *of))[1]
    )
    monkeypatch.setattr(
        Server,
        "masked",
        lambda s, m: (sent.update({m.client: np.concatenate([m.vector, m.group_vector])}), take(s, m))[1],
    )
    gathered(run, secure())
    assert bare.keys() == sent.keys() == {*range(CLIENTS)}
    open_, masked = (np.concatenate([words[client] for client in range(CLIENTS)]) for words in (bare, sent))
    update = open_.view(np.int32).astype(np.float64)
    assert uniformity(masked) < 6 and alike(masked, update) < 6
    assert uniformity(open_) > 20  # what the same test says with the masks off


def test_centralised_reveals_everything_and_says_so() -> None:
    assert revealed(METHODS["centralised"]()) == ["faces", "people"]
