"""What a server does with strangers, and with members that send garbage, are slow, gone or unwilling."""

from __future__ import annotations

import dataclasses
import logging
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

pytest.importorskip("flwr")

import httpx
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from coalface import wire
from coalface.allocator import give_memory_back
from coalface.config import ConfigError, method_named, to_json
from coalface.data.public_file import write_public
from coalface.engines import flower_link
from coalface.engines.flower_messages import SMALL, TRAIN, Answer, Call, pack, unpack
from coalface.engines.flower_node import NotAdmitted, attend
from coalface.federation import Rounds
from coalface.local import Training
from coalface.offer import DECLINED, Declined
from coalface.participant import Participant
from coalface.registry import Limits, Tls
from coalface.store import own_secret
from coalface.terms import PROTOCOL, NoiseTerms, SecureTerms, Terms
from coalface.verbs.extra import log_to
from coalface.verbs.keys import certify, key_pair
from tests.conftest import noise_population
from tests.engines.flower_world import Deployed, Nodes, nodes, tampered

TRAINING = Training(rate=0.05, batch=2)
RULES = Rounds(rounds=1, quorum=0.5)
PEOPLE = noise_population(clients=3)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two honest clients; the third is started by each test, as it likes."""
    with nodes(tmp_path_factory.mktemp("three"), PEOPLE) as made:
        made.start("client0")
        made.start("client1")
        yield made


def outcomes(clients: Nodes, folder: Path, rules: Rounds = RULES, method: str = "fedavg/positive-only") -> list[str]:
    """What one round comes to, client by client; and afterwards nothing is left in the link's store."""
    run = Deployed(clients, method_named(method)(), PEOPLE, folder, TRAINING, rules)
    run.run(rules)
    assert clients.link.held() == 0
    return [row["outcome"] for row in run.stage.ledger()]


def changed_leaves(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Answer, bytes], Any]:
    def changed(header: Answer, data: bytes) -> Any:
        flat = safetensors.torch.load(data)
        floats = {name: change(leaf) if leaf.is_floating_point() else leaf for name, leaf in flat.items()}
        return header, safetensors.torch.save(floats)

    return changed


GARBAGE: dict[str, tuple[Callable[[Answer, bytes], Any], str]] = {
    "random bytes": (lambda header, data: (header, b"\x07" * len(data)), "refused: not a readable message"),
    "other length": (lambda header, data: (header, data[:-1]), "bytes, expected"),
    "not a number": (changed_leaves(lambda leaf: leaf * torch.nan), "is not finite"),
    "other shapes": (changed_leaves(lambda leaf: leaf.flatten()), "refused: "),
    "hundredfold": (changed_leaves(lambda leaf: leaf * 100), "is over the bound 1"),
    "an old round": (lambda h, d: (dataclasses.replace(h, round=0), d), "refused: it is for another round"),
    "an old try": (lambda h, d: (dataclasses.replace(h, attempt=7), d), "refused: it is for another round"),
    "another's name": (lambda h, d: (dataclasses.replace(h, client=0), d), "refused: it is in another client's name"),
    "replayed": (lambda h, d: (dataclasses.replace(h, nonce="0" * 32), d), "refused: it answers another call"),
    "elsewhere": (lambda h, d: (dataclasses.replace(h, federation="x"), d), "refused: it is for another federation"),
    "other records": (lambda h, d: RecordDict({"m": MetricRecord({"x": 1.0})}), "refused: not one of our messages"),
    "nothing": (lambda h, d: RecordDict(), "refused: not one of our messages"),
    "own reason": (lambda h, d: (dataclasses.replace(h, declined="<b>!"), b""), "declined: it does not say why"),
}


def test_garbage_from_a_registered_client_is_refused_by_reason(three: Nodes, tmp_path: Path) -> None:
    """One round for each kind of garbage; the other two clients count in all of them."""
    participant = Participant(three.client("client2"), CPU)
    kinds = list(GARBAGE.values())
    three.start("client2", tampered(participant, lambda header, data: kinds[header.round - 1][0](header, data)))
    rules = Rounds(rounds=len(GARBAGE), quorum=0.5, max_norm=1.0)
    found = outcomes(three, tmp_path, rules)
    three.stop("client2")
    for (name, (_, says)), (zero, one, two) in zip(GARBAGE.items(), zip(*[iter(found)] * 3, strict=True), strict=True):
        assert (zero, one) == ("counted", "counted") and says in two, f"{name}: {two}"


def test_strangers_are_refused_and_logged(three: Nodes, tmp_path: Path) -> None:
    stop = threading.Event()
    client = three.client("client2")
    key_pair(tmp_path / "stranger.key")
    certify(tmp_path / "other", "localhost", days=1)
    with pytest.raises(NotAdmitted, match="does not know this key"):
        attend(
            client.server, Path(client.ca), tmp_path / "stranger.key", tmp_path / "node", lambda *_: RecordDict(), stop
        )
    with pytest.raises(NotAdmitted, match="does not show a certificate"):
        attend(
            client.server,
            tmp_path / "other" / "ca.crt",
            Path(client.key),
            tmp_path / "node",
            lambda *_: RecordDict(),
            stop,
        )
    with socket.create_connection(("localhost", three.port)) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        assert b"200" not in plain.recv(1000)
    with httpx.Client(
        base_url=f"https://localhost:{three.port}", verify=ssl.create_default_context(cafile=client.ca)
    ) as anybody:
        for path in ("/v1/control/register-node", "/v1/control/start-run", "/v1/runtime/push-messages", "/docs"):
            assert anybody.post(path, content=b"").status_code in (404, 415, 422), path
        keyless = anybody.post(
            "/v1/fleet/pull-messages", headers={"content-type": "application/x-protobuf"}, content=b""
        )
        assert keyless.status_code >= 400
        large = anybody.post("/v1/fleet/push-object", content=b"x" * (flower_link.LARGEST_REQUEST + 1))
        assert large.status_code == 413
    time.sleep(0.2)
    log = three.log()
    assert "a connection was refused" in log and "Attempted to register SuperNode" in log and "over" in log
    three.start("client2")
    assert outcomes(three, tmp_path / "after") == ["counted"] * 3  # and nothing was lost by it
    three.stop("client2")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # so uvicorn says it
def test_an_address_in_use_is_named(three: Nodes) -> None:
    ours = TaskIdentity.task_id, TaskIdentity.run_id  # the process's, which the next link makes its own
    try:
        with pytest.raises(OSError, match=f"cannot listen on localhost:{three.port}"):
            flower_link.Link("localhost", three.port, Tls.of(three.folder / "server"), []).__enter__()
    finally:
        TaskIdentity.task_id, TaskIdentity.run_id = ours


def test_a_slow_client_is_late_and_its_upload_is_not_mixed_into_a_later_round(three: Nodes, tmp_path: Path) -> None:
    honest = Participant(three.client("client2"), CPU)
    seen: list[int] = []

    def slowly(header: Answer, data: bytes) -> Any:
        seen.append(header.round)
        time.sleep(4.0 if header.round == 1 else 0.0)
        return header, data

    three.start("client2", tampered(honest, slowly))
    rules = Rounds(rounds=3, quorum=0.5, deadline=3.0)
    run = Deployed(three, method_named("fedavg/positive-only")(), PEOPLE, tmp_path, TRAINING, rules)
    run.run(rules)
    three.stop("client2")
    rows = {(row["round"], row["client"]): row for row in run.stage.ledger()}
    assert rows[1, 2]["outcome"] == "late" and rows[1, 2]["seconds"] >= 3.0
    assert {outcome["outcome"] for (_, client), outcome in rows.items() if client != 2} == {"counted"}
    assert rows[3, 2]["outcome"] == "counted" and seen[0] == 1
    # Its state of round 1 never counted: round 2 or 3 began without it.
    assert 1 not in run.stage.private.versions(2)


def test_absent_clients_are_not_waited_for_beyond_patience(three: Nodes, tmp_path: Path) -> None:
    run = Deployed(three, method_named("fedavg/positive-only")(), PEOPLE, tmp_path, TRAINING, RULES)
    run.engine.patience = 0.5  # type: ignore[attr-defined]
    run.run(RULES)
    assert [row["outcome"] for row in run.stage.ledger()] == ["counted", "counted", "absent"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"accept": ("fedavg/positive-only 0123456789abcdef",)}, "method"),  # agreed to other words than these
        ({"accept": ("chorus 0123456789abcdef",)}, "method"),
        ({"limits": Limits(megabytes=0.001)}, "limit"),
        ({"data": "/nowhere"}, "photographs"),
    ],
)
def test_an_unwilling_client_declines_and_the_round_goes_on(
    changes: dict[str, Any], why: str, three: Nodes, tmp_path: Path
) -> None:
    three.start("client2", **changes, state=str(tmp_path / "state"))
    found = outcomes(three, tmp_path / "run")
    three.stop("client2")
    assert found == ["counted", "counted", f"declined: {DECLINED[why]}"]


# --- a participant by itself ------------------------------------------------------------------------------------------


def terms(**changes: Any) -> str:
    made = Terms(PROTOCOL, method_named("fedavg/positive-only")(), "tiny", 8, 0, 16, TRAINING, 3, 3, 2, 2, 1)
    return dataclasses.replace(made, **changes).to_json()


def test_nothing_is_read_or_trained_before_consent(three: Nodes, tmp_path: Path) -> None:
    client = three.client("client2", accept=(), data="/nowhere", state=str(tmp_path))
    with pytest.raises(Declined, match="method"):
        Participant(client, CPU).train(terms(), "f", 1, [], b"")
    with pytest.raises(Declined, match="method"):
        Participant(client, CPU).collect(terms(method=method_named("centralised")()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "terms"),
        ("{", "terms"),
        ('{"protocol": 1}', "protocol"),
        (f'{{"protocol": {PROTOCOL}, "method": {{"name": "os.system"}}}}', "terms"),
        (terms(noise={"noise": 1.0}), "terms"),  # noise without a clip
        (terms(noise=NoiseTerms(1.0, 1.0, 1.0, 1.0, in_shares=True)), "terms"),  # it would leave bare: no masks
        (terms(client=3), "terms"),
        (terms(classes=2), "terms"),
        (terms(model="resnet99"), "terms"),
        (terms(embedding=10**9), "terms"),
        (terms(training=dataclasses.replace(TRAINING, epochs=10**12)), "terms"),
    ],
)
def test_terms_are_checked(text: str, why: str, three: Nodes, tmp_path: Path) -> None:
    participant = Participant(three.client("client2", state=str(tmp_path)), CPU)
    with pytest.raises(Declined, match=why):
        participant.train(text, "f", 1, [], b"")


def test_another_number_of_people_than_was_agreed_is_told(three: Nodes, tmp_path: Path) -> None:
    participant = Participant(three.client("client2", state=str(tmp_path)), CPU)
    with pytest.raises(Declined, match="identities"):
        participant.collect(terms(method=method_named("centralised")(), identities=2, classes=4))


@pytest.mark.parametrize("quiet", [False, True])
def test_a_broken_photograph_is_named_on_the_terminal_alone(
    quiet: bool,
    three: Nodes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its folder is called after a person, and a log is kept, copied and sent to those who help."""
    for name in ("coalface.client", "coalface.client.terminal", "flwr"):  # as they were, for the tests after this one
        logger = logging.getLogger(name)
        for what in ("handlers", "level", "propagate"):
            monkeypatch.setattr(logger, what, getattr(logger, what))
    (tmp_path / "data" / "somebody").mkdir(parents=True)
    (tmp_path / "data" / "somebody" / "broken.jpg").write_bytes(b"broken")
    participant = Participant(three.client("client2", data=str(tmp_path / "data"), state=str(tmp_path)), CPU)
    log_to("coalface.client", tmp_path / "client.log", quiet)
    with pytest.raises(Declined, match="photographs"):
        participant.collect(terms(method=method_named("centralised")()))
    logged = (tmp_path / "client.log").read_text()
    assert "data of client.toml cannot be used" in logged and "somebody" not in logged and "broken" not in logged
    assert ("somebody/broken.jpg" in capsys.readouterr().err) is not quiet


def test_a_broadcast_that_is_not_the_methods_is_refused(three: Nodes, tmp_path: Path) -> None:
    participant = Participant(three.client("client2", state=str(tmp_path)), CPU)
    with pytest.raises(Declined, match="broadcast"):
        participant.train(terms(), "f", 1, [], b"\x00" * 100)
    with pytest.raises(Declined, match="terms"):
        participant.train(terms(), "../../etc", 1, [], b"")
    with pytest.raises(Declined, match="terms"):
        participant.train(terms(), "f" * 1000, 1, [], b"")  # no disk has a folder of this name


def test_what_a_server_writes_does_not_fill_a_log(
    three: Nodes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    participant = Participant(three.client("client2", state=str(tmp_path)), CPU)
    with pytest.raises(Declined, match="terms"):
        participant.train(terms(model="m" * 100_000), "f", 1, [], b"")
    assert "the terms are refused" in caplog.text and len(caplog.text) < 1000


def test_another_public_set_than_the_federations_is_told(three: Nodes, tmp_path: Path) -> None:
    offered = terms(method=method_named("fedfr")(), public="0" * 64)
    given = tmp_path / "public.safetensors"
    write_public(given, PEOPLE.public)
    another = given.read_bytes()
    given.unlink()
    unlabelled = safetensors.torch.save({"faces/images": torch.zeros(1, 3, 16, 16, dtype=torch.uint8)})
    for content in (None, another, unlabelled, b""):  # None: there is no file
        if content is not None:
            given.write_bytes(content)
        participant = Participant(three.client("client2", state=str(tmp_path), public=str(given)), CPU)
        with pytest.raises(Declined, match="public"):
            participant.train(offered, "f", 1, [], b"")


def test_limits_last_over_a_restart(three: Nodes, tmp_path: Path) -> None:
    client = three.client("client2", state=str(tmp_path), limits=Limits(rounds=2))
    for round_ in (1, 2):
        participant = Participant(client, CPU)
        broadcast = wire.encode(participant._offer(terms()).broadcast)
        participant.train(terms(), "f", round_, [], broadcast)
    with pytest.raises(Declined, match="limit"):
        Participant(client, CPU).train(terms(), "f", 3, [], broadcast)
    with pytest.raises(Declined, match="limit"):  # a server cannot begin again to get more
        Participant(client, CPU).train(terms(), "g", 1, [], broadcast)


def test_rounds_that_a_server_spoils_are_spent(three: Nodes, tmp_path: Path) -> None:
    """It asks for masks without keys: the client trains, and then declines. Its owner allowed two rounds."""
    client = three.client("client2", state=str(tmp_path), limits=Limits(rounds=2))
    spoiled = terms(secure=SecureTerms(4, 0.6, 64.0, 6))
    participant, why = Participant(client, CPU), []
    broadcast = wire.encode(participant._offer(spoiled).broadcast)
    for round_ in range(1, 5):
        with pytest.raises(Declined) as declined:
            participant.train(spoiled, "f", round_, [], broadcast)
        why.append(str(declined.value))
    assert why == ["secure", "secure", "limit", "limit"]
    with pytest.raises(Declined, match="limit"):  # told before the broadcast is looked at
        participant.train(terms(), "f", 5, [], b"")


def test_a_collection_is_within_limits_too(three: Nodes, tmp_path: Path) -> None:
    """Four images of 3 · 16 · 16 bytes, and some for the message: 3 kB leave each time."""
    asked = terms(method=method_named("centralised")())
    client = three.client("client2", state=str(tmp_path), limits=Limits(megabytes=0.008))
    images, data = Participant(client, CPU).collect(asked)
    assert images == 4 and 3072 < len(data) < 4000
    Participant(client, CPU).collect(asked)
    with pytest.raises(Declined, match="limit"):
        Participant(client, CPU).collect(asked)
    with pytest.raises(Declined, match="limit"):  # over all methods together
        Participant(client, CPU).train(terms(), "f", 1, [], b"")
    once = three.client("client2", state=str(tmp_path / "once"), limits=Limits(rounds=1))
    Participant(once, CPU).collect(asked)
    with pytest.raises(Declined, match="limit"):
        Participant(once, CPU).collect(asked)


def test_private_state_of_a_round_that_did_not_count_is_not_used(three: Nodes, tmp_path: Path) -> None:
    client = three.client("client2", state=str(tmp_path))
    uploads = []
    for counted in ([], [1], []):  # round 2: after a round 1 that counted, and after one that did not
        participant = Participant(client, CPU)
        broadcast = wire.encode(participant._offer(terms()).broadcast)
        participant.train(terms(), "f", 1, [], broadcast)
        uploads.append(participant.train(terms(), "f", 2, counted, broadcast))
    assert uploads[0] == uploads[2] != uploads[1]


def test_clients_draw_their_own_numbers(three: Nodes, tmp_path: Path) -> None:
    """Without a pinned seed: different secrets, which survive a restart, and which only their owner can read."""
    one, two = tmp_path / "one" / "secret", tmp_path / "two" / "secret"
    assert own_secret(one) == own_secret(one) != own_secret(two)
    assert len(own_secret(one)) == 32 and one.stat().st_mode & 0o077 == 0
    drawing = Participant(three.client("client2", state=str(tmp_path / "one"), seed=-1), CPU)
    again = Participant(three.client("client2", state=str(tmp_path / "one"), seed=-1), CPU)
    assert drawing.seed("f") == again.seed("f") != drawing.seed("g")
    assert drawing.seed("f").bit_length() > 200
    assert Participant(three.client("client2"), CPU).seed("f") == 0  # pinned


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 10, SMALL + 1])
def test_messages_survive(size: int) -> None:
    call = Call("{}", "f", 1, 0, 2, "n", [1, 2])
    assert unpack(Call, pack(call, b"x" * size)) == (call, b"x" * size)


@pytest.mark.parametrize(
    "change",
    [
        {"round": "1"}, {"round": True}, {"round": 1.0}, {"counted": ["1"]}, {"counted": 1}, {"x": 1}, {"nonce": b""},
    ],
)  # fmt: skip
def test_headers_are_exact(change: dict[str, Any]) -> None:
    content = pack(Call("{}", "f", 1, 0, 2, "n", [1, 2]), b"x")
    header = content["header"]
    assert isinstance(header, ConfigRecord)
    try:
        header.update(change)
    except (TypeError, ValueError):
        return  # Flower itself has no such value
    with pytest.raises(wire.Refused):
        unpack(Call, content)


def test_terms_travel_as_plain_values() -> None:
    made = Terms.from_json(terms())
    assert made.to_json() == terms() and to_json(made)["method"]["name"] == "fedavg/positive-only"
    with pytest.raises(ConfigError):
        Terms.from_json(terms(first_class=1))


@pytest.mark.deploy
def test_messages_of_a_large_model_go_there_and_back(tmp_path: Path) -> None:
    """257 MB, an iresnet100's weights, whole and unchanged; afterwards the server holds nothing of them.

    Memory is bounded: if messages stayed, the fifth and the sixth would raise the peak by two. It is weighed in a
    process of its own, since the threads of earlier tests leave holes in this one's; and holes remain.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        peaks = alone.submit(peaks_of_echoes, tmp_path / "three").result()
    # Server and client are both in that process. In units of the message: a handful at a time, and no more for more.
    assert max(peaks) < 12 and peaks[5] < peaks[3] + 1.5, peaks


def peaks_of_echoes(folder: Path) -> list[float]:
    """The peak memory after each of six clients has sent a large message back, in units of the message."""
    give_memory_back()  # as `serve` and `join` do
    weights = torch.randint(256, (257_000_000,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    data = weights.numpy().tobytes()
    before, peaks = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []

    def echo(kind: str, content: RecordDict) -> RecordDict:
        call, received = unpack(Call, content)
        return pack(Answer(call.federation, call.round, call.attempt, call.client, call.nonce, "", 0), received)

    with nodes(folder, noise_population(clients=6)) as made:
        for number, name in enumerate(made.names):
            made.start(name, echo)
            while len(list(made.link.get_nodes())) <= number:
                time.sleep(0.1)
            message = Message(pack(Call("", "f", 1, 0, 0, "n", []), data), made.link.nodes[number], TRAIN, ttl=600.0)
            made.link.allow(made.link.nodes[number], len(data))
            (identity,) = made.link.push_messages([message])
            del message
            while not (replies := list(made.link.pull_messages([identity]))):
                time.sleep(0.1)
            assert unpack(Answer, replies[0].content)[1] == data
            del replies
            assert made.link.held() == 0
            peaks.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(data))
    return peaks
