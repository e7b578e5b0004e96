"""Secure sums between machines: who drops out, what a client insists on, and what a server cannot make it do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import RecordDict

from coalface import tree
from coalface.algorithms.chorus import Chorus
from coalface.config import method_named
from coalface.engines.flower_client import STEPS, handler
from coalface.engines.flower_messages import TRAIN, Answer, Call, pack, unpack
from coalface.engines.flower_node import Handler
from coalface.federation import QuorumError, Rounds
from coalface.local import Training
from coalface.offer import DECLINED, Declined
from coalface.participant import Participant
from coalface.privacy.secagg.messages import Advertisement, Opening, Roster, Survivors, decode, encode
from coalface.privacy.secagg.node_keys import EcdsaKey
from coalface.privacy.secagg.rules import Refusal, Rules
from coalface.privacy.secure_sum import SecureSums
from coalface.privacy.settings import Privacy
from coalface.registry import Insisted, Limits
from coalface.secure_participant import SecureParticipant
from coalface.terms import PROTOCOL, SecureTerms, Terms
from coalface.verbs.keys import key_pair
from tests.conftest import SmallRun, noise_population, small_net
from tests.engines.flower_world import Deployed, Nodes, nodes

PEOPLE = noise_population(clients=6)
TRAINING = Training(rate=0.05, batch=2)
ROUNDS = Rounds(rounds=1, quorum=0.5, attempts=1)
RULES = Rules(min_cohort=4, threshold=0.6)  # of six, four must be left
SECURE = Privacy(secure_sum=True, min_cohort=4, threshold=0.6, value_bound=64.0, most_images=6)
METHOD = "fedavg/shared-head"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Four honest clients; the other two are started by each test, as it likes."""
    with nodes(tmp_path_factory.mktemp("six"), PEOPLE) as made:
        for name in made.names[:4]:
            made.start(name)
        yield made


def silent_at(participant: Participant, when: str) -> Handler:
    """A client that answers with garbage when it comes to one step: to the others it has dropped out."""
    honest = handler(participant)

    def answer(kind: str, content: RecordDict) -> RecordDict:
        reply = honest(kind, content)
        if STEPS.get(kind, "train") != when:
            return reply
        header, data = unpack(Answer, reply)
        return pack(header, data[:-1])

    return answer


@pytest.mark.parametrize(
    "step",
    ["train", "unmask", *(pytest.param(step, marks=pytest.mark.deploy) for step in ("advertise", "share", "agree"))],
)
def test_dropouts_at_any_step_leave_the_sum_of_the_rest(step: str, six: Nodes, tmp_path: Path) -> None:
    """Bit for bit the simulated sum with the same two away: before they sent a vector, or after."""
    gone = (4, 5)
    for client in gone:
        six.start(six.names[client], silent_at(Participant(six.client(six.names[client]), CPU), step))
    run = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path / "many", TRAINING, ROUNDS, SECURE)
    found = run.run(ROUNDS)
    for client in gone:
        six.stop(six.names[client])
    reference = SmallRun(method_named(METHOD)(), small_net(METHOD), PEOPLE, tmp_path / "one", TRAINING)
    absent = lambda at, client: at == ("share" if step == "train" else step) and client in gone  # noqa: E731
    reference.sums = SecureSums(ROUNDS, RULES, SECURE.value_bound, SECURE.most_images, absent=absent)
    assert tree.sha256(found) == tree.sha256(reference.run(ROUNDS))
    outcomes = [row["outcome"] for row in run.stage.ledger()]
    assert outcomes[:4] == ["counted"] * 4
    assert all((outcome == "counted") == (step in ("agree", "unmask")) for outcome in outcomes[4:]), outcomes
    assert six.link.held() == 0


def test_one_too_few_and_nothing_is_learnt(six: Nodes, tmp_path: Path) -> None:
    """Three of six are under the minimum of four: the round is void before anybody has trained."""
    six.stop("client3")
    six.start("client3", silent_at(Participant(six.client("client3"), CPU), "advertise"))
    run = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path, TRAINING, ROUNDS, SECURE)
    run.engine.patience = 0.5  # type: ignore[attr-defined]
    with pytest.raises(QuorumError):
        run.run(ROUNDS)
    six.stop("client3")
    six.start("client3")
    assert {row["outcome"] for row in run.stage.ledger()} == {"void: 3 clients advertised, and 4 must"}


@pytest.mark.parametrize(
    ("insisted", "privacy", "why"),
    [
        (Insisted(min_cohort=5, threshold=0.6), SECURE, "dropped out"),
        (Insisted(min_cohort=4, threshold=0.9), SECURE, "dropped out"),
        (Insisted(require=True, min_cohort=4, threshold=0.6), Privacy(), f"declined: {DECLINED['open']}"),
    ],
)
def test_a_client_stays_out_of_what_it_does_not_accept(
    insisted: Insisted, privacy: Privacy, why: str, six: Nodes, tmp_path: Path
) -> None:
    six.start("client4")
    six.start("client5", secure_sum=insisted)
    run = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path, TRAINING, ROUNDS, privacy)
    run.run(ROUNDS)
    six.stop("client4")
    six.stop("client5")
    assert [row["outcome"] for row in run.stage.ledger()] == ["counted"] * 5 + [why]


def test_a_long_update_is_left_out_by_its_own_client(six: Nodes, tmp_path: Path) -> None:
    """Nobody else can see it. All are too long here, so that the round is void."""
    six.start("client4")
    six.start("client5")
    tight = replace(ROUNDS, max_norm=1e-9)
    run = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path, TRAINING, tight, SECURE)
    with pytest.raises(QuorumError):
        run.run(tight)
    six.stop("client4")
    six.stop("client5")
    assert {row["outcome"] for row in run.stage.ledger()} == {f"declined: {DECLINED['norm']}"}


def test_masked_uploads_are_what_travels(six: Nodes, tmp_path: Path) -> None:
    """Two trainings on the same faces from the same weights: in the open the same bytes, under masks never."""
    sent: list[bytes] = []

    def recorded(participant: Participant) -> Callable[[str, RecordDict], RecordDict]:
        honest = handler(participant)

        def answer(kind: str, content: RecordDict) -> RecordDict:
            unpack(Call, content)
            reply = honest(kind, content)
            if kind == TRAIN:
                sent.append(unpack(Answer, reply)[1])
            return reply

        return answer

    six.start("client4")
    six.start("client5", recorded(Participant(six.client("client5"), CPU)))
    for number, privacy in enumerate((Privacy(), Privacy(), SECURE, SECURE)):
        Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path / str(number), TRAINING, ROUNDS, privacy).run(ROUNDS)
    six.stop("client4")
    six.stop("client5")
    one, two, three, four = sent
    assert one == two and len(three) == len(four)
    words = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in (three, four)]
    alike = float((words[0] == words[1]).double().mean())
    assert alike < 0.1  # of random bytes one in 256; the lengths and the counts' zeros are alike


# --- what a server cannot make a client do ----------------------------------------------------------------------------


def terms(client: int, **changes: object) -> Terms:
    secure = SecureTerms(4, 0.6, 64.0, 6, 0.0)
    made = Terms(PROTOCOL, method_named(METHOD)(), "tiny", 8, 0, 16, TRAINING, 6, 6, client, client, 1, secure=secure)
    return replace(made, **changes)  # type: ignore[arg-type]


def advertised(six: Nodes, folder: Path, count: int = 6) -> tuple[list[SecureParticipant], list[Advertisement]]:
    opening = encode(Opening(b"s" * 32, 6, (), ()))
    clients = [SecureParticipant(six.client(name)) for name in six.names[:count]]
    return clients, [decode(Advertisement, one.advertise(terms(i), folder, opening)) for i, one in enumerate(clients)]


def test_a_server_cannot_invent_participants(six: Nodes, tmp_path: Path) -> None:
    """Three real clients, and a fourth with keys of the server's own making: nobody shares anything with it."""
    clients, real = advertised(six, tmp_path, count=3)
    key_pair(tmp_path / "made.key")
    forger = EcdsaKey(tmp_path / "made.key")
    forged = replace(real[0], client=3, signature=b"")
    forged = replace(forged, signature=forger.sign(forged.signed_text(b"s" * 32)))
    with pytest.raises(Refusal, match="client 3 are not signed by a registered node"):
        clients[0].share(encode(Roster((*real, forged))))
    with pytest.raises(Refusal, match="asked to share"):  # the session is over for it
        clients[0].share(encode(Roster(tuple(real))))


def test_a_server_cannot_shrink_the_cohort(six: Nodes, tmp_path: Path) -> None:
    clients, real = advertised(six, tmp_path)
    with pytest.raises(Refusal, match="a cohort of 3 is under the minimum of 4"):
        clients[0].share(encode(Roster(tuple(real[:3]))))


def test_a_server_cannot_have_a_short_list_of_survivors_signed(six: Nodes, tmp_path: Path) -> None:
    clients, real = advertised(six, tmp_path)
    roster = encode(Roster(tuple(real)))
    clients[0].share(roster)
    with pytest.raises(Refusal, match="asked to agree"):  # nothing is unmasked before a vector was sent
        clients[0].agree(encode(Survivors((0, 1, 2, 3))))


def test_a_server_cannot_regroup_clients(six: Nodes, tmp_path: Path) -> None:
    """Sums of two choirs that differ in one member would differ by that member; a restart does not make it forget.

    Six clients in choirs of three: the first grouping has the rows 012 and 345; in the second, the middle column moves
    on by one and the last by two, which of two rows is back where it was.
    """

    def told(group: tuple[int, ...], groupings: int, folder: str = "") -> None:
        agreed = replace(terms(0), method=Chorus(choir=3, groupings=groupings))
        client = SecureParticipant(six.client("client0"))
        client.advertise(agreed, tmp_path / folder, encode(Opening(b"s" * 32, 6, group, (3, 3))))

    told((0, 1, 2), 1)
    told((0, 1, 2), 1)
    with pytest.raises(Refusal, match=r"\(0, 1, 3\) is none of this client's groups, which are \[\(0, 1, 2\)\]"):
        told((0, 1, 3), 1)
    with pytest.raises(Refusal, match=r"groups were \[\(0, 1, 2\)\] first, and now would be .*\(0, 2, 4\)"):
        told((0, 2, 4), 2)  # the server says that there are two groupings now
    for group in ((0, 1, 2), (0, 2, 4), (0, 1, 2)):  # another federation, in which there are
        told(group, 2, "another")
    with pytest.raises(Refusal, match="none of this client's groups"):
        told((0, 1, 5), 2, "another")


def test_choirs_in_two_groupings_sing_under_masks(six: Nodes, tmp_path: Path) -> None:
    """Three rounds: both groupings, and the first again. Bit for bit the simulated run."""
    six.start("client4")
    six.start("client5")
    method, rounds = Chorus(choir=3, groupings=2), replace(ROUNDS, rounds=3)
    run = Deployed(six, method, PEOPLE, tmp_path / "many", TRAINING, rounds, SECURE)
    found = run.run(rounds)
    six.stop("client4")
    six.stop("client5")
    assert {row["outcome"] for row in run.stage.ledger()} == {"counted"}
    reference = SmallRun(method, small_net("chorus"), PEOPLE, tmp_path / "one", TRAINING)
    reference.sums = SecureSums(rounds, RULES, SECURE.value_bound, SECURE.most_images)
    assert tree.sha256(found) == tree.sha256(reference.run(rounds))


def test_a_server_cannot_give_a_client_anothers_number(six: Nodes, tmp_path: Path) -> None:
    client = SecureParticipant(six.client("client0"))
    with pytest.raises(Refusal, match="not number 1"):
        client.advertise(terms(1), tmp_path, encode(Opening(b"s" * 32, 6, (), ())))


def test_the_steps_of_a_secure_sum_are_within_limits_too(six: Nodes, tmp_path: Path) -> None:
    """Some hundred bytes each: a server that asks for them again and again is paid from the same purse."""
    client = six.client("client0", state=str(tmp_path), limits=Limits(megabytes=0.001))
    participant, opening, sent = Participant(client, CPU), encode(Opening(b"s" * 32, 6, (), ())), 0
    with pytest.raises(Declined, match="limit"):
        for _ in range(100):
            sent += len(participant.take_step("advertise", terms(0).to_json(), "f", opening))
    assert 0 < sent <= 1000


def test_a_server_cannot_ask_for_less_than_the_client_insists_on(six: Nodes, tmp_path: Path) -> None:
    client = SecureParticipant(six.client("client0", secure_sum=Insisted()))
    with pytest.raises(Refusal, match="are less than 16 and 0.667"):
        client.advertise(terms(0), tmp_path, encode(Opening(b"s" * 32, 6, (), ())))
    with pytest.raises(ValueError, match="no members"):
        SecureParticipant(six.client("client0", members=""))
