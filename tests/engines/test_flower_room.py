"""What a node may lay down in the server's memory: its own answer, once, and no more than was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.servicer.fleet.fleet_handlers import push_messages

from coalface.config import method_named
from coalface.engines.flower_messages import Answer, Call, pack, unpack
from coalface.engines.flower_room import ENVELOPE, TRIES, Room, inflated_size
from coalface.federation import Rounds
from coalface.local import Training
from tests.conftest import noise_population
from tests.engines.flower_world import Deployed, nodes

NODE, OTHER = 7, 8
MOST = 1024  # bytes that an answer may have, and ENVELOPE + 1 for Flower's words
CALL, ANSWER = Call("{}", "f", 1, 0, 0, "n", []), Answer("f", 1, 0, 0, "n", "", 0)


def call() -> Message:
    message = Message(pack(CALL, b""), NODE, "train", ttl=600)
    message.metadata.__dict__["_message_id"] = "a call"
    return message


def announced(answer: RecordDict, node: int = NODE) -> tuple[PushMessagesRequest, dict[str, bytes]]:
    """How a node announces an answer, and the objects of it."""
    reply = Message(answer, reply_to=call())
    with no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = {name: item.deflate() for name, item in get_all_nested_objects(reply).items()}
        bare, tree = message_to_proto(reply), get_object_tree(reply)
    return PushMessagesRequest(node=Node(node_id=node), messages_list=[bare], message_object_trees=[tree]), objects


def pushed(name: str, content: bytes, node: int = NODE) -> PushObjectRequest:
    return PushObjectRequest(node=Node(node_id=node), object_id=name, object_content=content)


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower makes messages for the run of its process only."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def room() -> Room:
    made = Room()
    made.open("a call", call(), MOST)
    return made


def test_an_answer_as_large_as_expected_has_room(room: Room) -> None:
    request, objects = announced(pack(ANSWER, b"x" * MOST))
    assert room.announces(request)
    assert all(room.brings(pushed(name, content)) for name, content in objects.items())
    assert not room.too_large()
    assert room.announces(request)  # once more, as its acknowledgement was lost


def test_objects_are_taken_up_to_what_was_expected_all_together(room: Room) -> None:
    request, objects = announced(pack(ANSWER, b""))
    first, second, *_ = objects
    assert room.announces(request)
    assert room.brings(pushed(first, bytes(60_000)))
    assert room.brings(pushed(first, bytes(60_000)))  # again: it is stored once
    assert room.brings(pushed(second, bytes(6_561)))  # 60,000 + 6,561 = 1,024 + 65,536 + 1
    assert not room.too_large()
    assert not room.brings(pushed(second, bytes(6_562)))
    assert [*room.too_large()] == ["a call"]
    assert not room.brings(pushed(first, b"x"))  # and nothing more of this answer


def test_what_was_not_announced_is_not_taken(room: Room) -> None:
    request, objects = announced(pack(ANSWER, b""))
    name = next(iter(objects))
    assert not room.brings(pushed(name, b"x"))
    assert room.announces(request)
    assert not room.brings(pushed(name, b"x", node=OTHER))
    assert not room.brings(pushed("0" * 64, b"x"))
    assert room.brings(pushed(name, b"x"))


def test_an_open_call_of_ones_own_is_answered_once(room: Room) -> None:
    assert not room.announces(announced(pack(ANSWER, b""), node=OTHER)[0])
    assert not room.announces(PushMessagesRequest(node=Node(node_id=NODE)))
    request, _ = announced(pack(ANSWER, b""))
    assert room.announces(request)
    assert not room.announces(announced(pack(ANSWER, b"another"))[0])
    names = room.close("a call")
    assert names[0] == request.messages_list[0].metadata.message_id and len(names) > 1
    assert not room.announces(request)


def test_an_answer_is_announced_a_few_times_at_most(room: Room) -> None:
    """Flower keeps a session of every announcement."""
    request, _ = announced(pack(ANSWER, b""))
    assert [room.announces(request) for _ in range(TRIES + 1)] == [True] * TRIES + [False]


def test_objects_below_those_that_are_there_already_go_too(tmp_path: Path) -> None:
    """Flower never removes what a node announces below a piece of the call itself, as nothing refers to it."""
    with nodes(tmp_path / "one", noise_population(clients=1)) as one:
        link, node = one.link, one.link.nodes[0]
        link._state.activate_node(node, 1000)
        before = link.held()
        asked = Message(pack(CALL, b"a broadcast"), node, "train", ttl=600)
        (identity,) = link.push_messages([asked])
        piece = next(iter(get_all_nested_objects(asked)))
        reply = Message(pack(ANSWER, b""), reply_to=asked)
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree, bare = get_object_tree(reply), message_to_proto(remove_content_from_message(reply))
        junk = get_all_nested_objects(RecordDict({"data": ArrayRecord({"wire": Array("uint8", (4,), "x", b"junk")})}))
        below = tree.children.add(object_id=piece)
        for name in junk:
            below.children.add(object_id=name)
        request = PushMessagesRequest(node=Node(node_id=node), messages_list=[bare], message_object_trees=[tree])
        assert link._room.announces(request)
        push_messages(request, link._state)
        assert link.held() > before
        link.forget([identity])
        assert link.held() == before


def test_a_long_list_of_objects_is_too_much(room: Room) -> None:
    """A name is 64 digits, so that a thousand of them are more than the envelope of 65,537 bytes."""
    request, _ = announced(pack(ANSWER, b""))
    for number in range(1000):
        request.message_object_trees[0].children.add(object_id=f"{number:064d}")
    assert request.ByteSize() > ENVELOPE + 1
    assert not room.announces(request)
    assert [*room.too_large()] == ["a call"]


def test_a_piece_that_is_named_often_counts_often() -> None:
    """Five million zeros and again as many are one object of Flower's, and ten million numbers when put together."""
    zeros = Array("uint8", (10 << 20,), "coalface.wire", bytes(10 << 20))
    objects = get_all_nested_objects(RecordDict({"data": ArrayRecord({"wire": zeros})}))
    contents = {name: item.deflate() for name, item in objects.items()}
    assert sum(map(len, contents.values())) < 6 << 20
    assert 10 << 20 < inflated_size(contents) < 11 << 20


def test_a_flood_is_refused_and_what_came_of_it_is_gone(tmp_path: Path) -> None:
    """A member answers a call for a few kilobytes with 32 MiB: two others count, and no more than it may is stored."""
    people, rules = noise_population(clients=3), Rounds(rounds=1, quorum=0.5, deadline=30.0)

    def flood(kind: str, content: RecordDict) -> RecordDict:
        asked, _ = unpack(Call, content)
        answer = Answer(asked.federation, asked.round, asked.attempt, asked.client, asked.nonce, "", 0)
        return pack(answer, bytes(range(256)) * (32 << 12))

    with nodes(tmp_path / "three", people) as three:
        stored: list[int] = []
        put = three.link._store.put

        def weighed(name: str, content: bytes) -> None:
            stored.append(len(content))
            put(name, content)

        three.link._store.put = weighed  # type: ignore[method-assign]
        three.start("client0")
        three.start("client1")
        three.start("client2", flood)
        method = method_named("fedavg/positive-only")()
        run = Deployed(three, method, people, tmp_path / "run", Training(rate=0.05, batch=2), rules)
        run.run(rules)
        found = [row["outcome"] for row in run.stage.ledger()]
        assert found == ["counted", "counted", "refused: too large"]
        assert three.link.held() == 0
        assert sum(stored) < 1 << 20
        assert "bytes that were expected" in three.log()
