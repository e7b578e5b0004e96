"""How much an answer may bring: a node can lay down in the server's memory what its own call asked for, and no more.

Flower stores whatever a registered node announces and pushes. Here an answer is announced once, for an open call of the
same node; an object is taken if it was announced there, and while all of them together are no larger than expected.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, Message
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

TRIES = 20  # at announcing an answer: Flower keeps something of each
ENVELOPE = 1 << 16  # bytes; Flower's words around ours: a header, and the names of the pieces

log = logging.getLogger("coalface.server")


@dataclass
class Open:
    """A call that is not answered yet, and what has come to it. ``bare`` is the call without its content."""

    bare: Message
    most: int  # bytes of ours that an answer may have
    names: tuple[str, ...] = ()  # of the answer's objects, as announced, the whole one last
    sizes: dict[str, int] = field(default_factory=dict)
    too_large: bool = False
    announced: int = 0  # times

    @property
    def envelope(self) -> int:
        """Flower cuts into pieces of 5 MiB, and says some hundred bytes about each."""
        return ENVELOPE + (self.most >> 10)


class Room:
    """All open calls, by their ids. The link's threads and the engine's use it."""

    def __init__(self) -> None:
        self._calls: dict[str, Open] = {}
        self._lock = threading.Lock()

    def open(self, identity: str, bare: Message, most: int) -> None:
        """A call goes out; its answer may have so many bytes of ours."""
        with self._lock:
            self._calls[identity] = Open(bare, most)

    def close(self, identity: str) -> tuple[str, ...]:
        """It was answered, or nobody waits for it any more: the names of all that was announced, the whole one first.

        An answer may have been announced with objects below some that Flower holds already; it never removes these.
        """
        with self._lock:
            call = self._calls.pop(identity, None)
        return call.names[::-1] if call else ()

    def find(self, identity: str) -> Open | None:
        """An open call."""
        with self._lock:
            return self._calls.get(identity)

    def too_large(self) -> dict[str, Message]:
        """Calls to which too much came, without their content."""
        with self._lock:
            return {identity: call.bare for identity, call in self._calls.items() if call.too_large}

    def announces(self, asked: PushMessagesRequest) -> bool:
        """Whether a node may lay down the objects of this answer."""
        if len(asked.messages_list) != 1 or len(asked.message_object_trees) != 1:
            return False
        said = asked.messages_list[0].metadata
        with self._lock:
            call = self._calls.get(said.reply_to_message_id)
            if call is None or call.bare.metadata.dst_node_id != asked.node.node_id:
                return False  # nobody waits for it, or for it from another node
            call.announced += 1
            if call.announced > TRIES or asked.ByteSize() > call.envelope:
                return self._refuse(call)
            names = tuple(tree.object_id for tree in iterate_object_tree(asked.message_object_trees[0]))
            if names[-1] != said.message_id or len(names) != len({*names}):
                return False
            if call.names not in ((), names):
                return False  # it has been announced: another answer would be one more
            call.names = names
            return not call.too_large

    def brings(self, asked: PushObjectRequest) -> bool:
        """Whether an object is part of what its node has announced, and there is room for it."""
        with self._lock:
            for call in self._calls.values():
                if call.bare.metadata.dst_node_id == asked.node.node_id and asked.object_id in call.names:
                    # A second try with a name counts by the larger of both: Flower keeps the one that fits the name.
                    before = call.sizes.get(asked.object_id, 0)
                    call.sizes[asked.object_id] = max(before, len(asked.object_content))
                    if sum(call.sizes.values()) > call.most + call.envelope:
                        return self._refuse(call)
                    return not call.too_large
        return False

    def _refuse(self, call: Open) -> bool:
        if not call.too_large:
            node = call.bare.metadata.dst_node_id
            log.warning("node %s answers with more than the %d bytes that were expected", node, call.most)
        call.too_large = True
        return False


def inflated_size(contents: dict[str, bytes]) -> int:
    """Bytes of all arrays when they are put together: an array may name one piece many times."""
    total = 0
    for content in contents.values():
        kind, pieces, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            sizes = [len(contents[piece]) for piece in pieces]
            total += sum(sizes[number] for number in json.loads(get_object_body(content, Array))["arraychunk_ids"])
    return total


class AnswerLimit:
    """After authentication: drop what ``Room`` has no room for, and tell its sender that nothing was stored."""

    def __init__(self, app: ASGIApp, room: Room) -> None:
        self.app, self.room = app, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: dict[str, Any] = scope.get("state", {})
        asked = state.get("protobuf_request")
        if isinstance(asked, PushMessagesRequest) and not await run_in_threadpool(self.room.announces, asked):
            state["protobuf_response"] = PushMessagesResponse()
        elif isinstance(asked, PushObjectRequest) and not await run_in_threadpool(self.room.brings, asked):
            state["protobuf_response"] = PushObjectResponse(stored=False)
        else:
            await self.app(scope, receive, send)
            return
        await Response()(scope, receive, send)
