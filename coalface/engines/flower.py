"""Real machines: the round's broadcasts go out, and uploads come back, over a Flower ``Grid``.

An answer counts only if it comes from the node that was called and repeats the call's nonce, number, round and attempt.
What is in it is checked where every upload is checked: in the round, against the shapes that the method expects.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp.grid import Grid

from coalface import tree, wire
from coalface.engines.engine import Reply, Task
from coalface.engines.flower_messages import COLLECT, TOO_LARGE, TRAIN, Answer, Call, pack, unpack
from coalface.federation import Rounds
from coalface.offer import DECLINED

POLL = 0.05  # seconds between two looks for answers
STAND_BACK = 4  # times as long as a look took
FOR_EVER = 30 * 24 * 3600.0  # seconds; Flower wants a number

ERRORS = {ErrorCode.NODE_UNAVAILABLE: "gone", ErrorCode.MESSAGE_UNAVAILABLE: "late", TOO_LARGE: "refused: too large"}

log = logging.getLogger("coalface.server")


@dataclass(frozen=True)
class AtHome(wire.Private):
    """What the server keeps of a client's private state: that there is one, made in this round, at the client."""

    round: int


class Kept(Protocol):
    """Which of a client's versions counted (``private_store.PrivateStore`` of ``AtHome``)."""

    def versions(self, client: int) -> list[int]:
        """Rounds, rising."""


@dataclass(frozen=True)
class Question:
    """What all of a cohort are asked."""

    kind: str
    task: Task
    data: Callable[[int], bytes]
    most: Callable[[int], int]  # bytes of an answer


@dataclass
class Sent:
    """A call that is under way."""

    id: str
    nonce: str
    began: float
    bytes_down: int
    since: str  # since when the node has been there: another time means that it was restarted


class Flower:
    """Calls real clients. ``nodes[client]`` is the client's node, ``terms(client)`` what it is told beforehand."""

    name = "flower"

    def __init__(
        self,
        grid: Grid,
        nodes: Sequence[int],
        terms: Callable[[int], str],
        kept: Kept,
        federation: str,
        rules: Rounds,
        patience: float = 60.0,
        in_flight: int = 32,
    ) -> None:
        """``patience``: seconds to wait for absent clients; ``in_flight``: calls at a time, which bounds memory."""
        self.grid, self.nodes, self.terms, self.kept = grid, nodes, terms, kept
        self.federation, self.rules, self.patience, self.in_flight = federation, rules, patience, in_flight
        self.sealed: Callable[[int], bytes | None] = lambda client: b""  # of a secure sum; None: it is not called
        self.masked_bytes = 0  # of an upload under masks; 0: it travels as the method has it
        self._met = False

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        def most(client: int) -> int:
            return self.masked_bytes or wire.encoded_size(task.method.expected(task.broadcast(client)))

        return self.ask(TRAIN, task, cohort, lambda client: wire.encode(_on_cpu(task.broadcast(client))), most)

    def collect(self, task: Task, clients: Sequence[int], most: int) -> Iterator[Reply]:
        """What leaves once, before the first round, under a method that collects; so many bytes of each at most."""
        return self.ask(COLLECT, task, clients, lambda client: b"", lambda client: most)

    def ask(
        self,
        kind: str,
        task: Task,
        cohort: Sequence[int],
        data: Callable[[int], bytes],
        most: Callable[[int], int],
    ) -> Iterator[Reply]:
        """Call each of them with its own bytes, and yield what comes back, in their order.

        Of a client's answer ``most`` bytes are taken, where the grid can look before it stores.
        """
        question = Question(kind, task, data, most)
        self._wait_for(cohort)
        calls: dict[int, Sent] = {}
        replies: dict[int, Reply] = {}
        to_call = iter(cohort)
        try:
            for client in cohort:
                while client not in replies:
                    for another in islice(to_call, self.in_flight - len(calls) - len(replies)):
                        self._call(question, another, calls, replies)
                    self._look(question, calls, replies)
                yield replies.pop(client)
        finally:
            self.forget([call.id for call in calls.values()])

    def _wait_for(self, cohort: Sequence[int]) -> None:
        """Until everybody is there at the very first, later until a quorum is; for as long as patience lasts."""
        needed = self.rules.needed(len(cohort)) if self._met else len(cohort)
        ends = time.monotonic() + self.patience
        while len(self._present().keys() & {self.nodes[client] for client in cohort}) < needed:
            if time.monotonic() > ends:
                log.warning("fewer than %d of the %d clients that are called are there", needed, len(cohort))
                break
            time.sleep(POLL)
        self._met = True

    def _present(self) -> dict[int, str]:
        """Nodes that are connected, and since when."""
        return {node.node_id: node.last_activated_at for node in self.grid.get_nodes()}

    def _call(self, question: Question, client: int, calls: dict[int, Sent], replies: dict[int, Reply]) -> None:
        task = question.task
        since = self._present().get(self.nodes[client])
        sealed = self.sealed(client) if question.kind == TRAIN else b""
        if since is None or sealed is None:
            replies[client] = Reply(client, trouble="absent" if since is None else "dropped out")
            return
        data = question.data(client)
        nonce = secrets.token_hex(16)
        call = Call(
            self.terms(client),
            self.federation,
            task.round,
            task.attempt,
            client,
            nonce,
            [made for made in self.kept.versions(client) if made < task.round],
            sealed,
        )
        lives = self.rules.deadline or FOR_EVER
        allow = getattr(self.grid, "allow", None)  # Flower's own grid stores whatever comes
        if allow is not None:
            allow(self.nodes[client], question.most(client))
        message = Message(pack(call, data), self.nodes[client], question.kind, ttl=lives, group_id=str(task.round))
        (identity,) = self.grid.push_messages([message])
        began = calls[client].began if client in calls else time.monotonic()
        calls[client] = Sent(identity, nonce, began, len(data), since)

    def _look(self, question: Question, calls: dict[int, Sent], replies: dict[int, Reply]) -> None:
        """Take what has arrived, give up what is late, and call those again that were restarted.

        Where nothing is new it waits, longer than it looked: the Fleet API has other threads of this process.
        """
        began, known = time.monotonic(), len(replies)
        by_id = {call.id: client for client, call in calls.items()}
        for message in self.grid.pull_messages(by_id) if by_id else ():
            client = by_id[message.metadata.reply_to_message_id]
            replies[client] = self._reply(question, client, calls.pop(client), message)
        present = self._present()
        for client, call in list(calls.items()):
            since = present.get(self.nodes[client], call.since)
            if self.rules.deadline and time.monotonic() - call.began > self.rules.deadline:
                self.forget([calls.pop(client).id])
                seconds = time.monotonic() - call.began
                replies[client] = Reply(client, trouble="late", seconds=seconds, bytes_down=call.bytes_down)
            elif since != call.since:
                log.info("client %d was restarted; it is called again", client)
                self.forget([call.id])
                self._call(question, client, calls, replies)
        if len(replies) == known:
            time.sleep(max(POLL, STAND_BACK * (time.monotonic() - began)))

    def _reply(self, question: Question, client: int, call: Sent, message: Message) -> Reply:
        """What an answer comes to. Words of its sender do not enter a ledger."""
        task = question.task
        seconds = time.monotonic() - call.began
        if message.has_error():
            trouble = ERRORS.get(message.error.code, "failed")
            return Reply(client, trouble=trouble, seconds=seconds, bytes_down=call.bytes_down)
        try:
            if message.metadata.src_node_id != self.nodes[client]:
                raise wire.Refused("it comes from another node")
            answer, data = unpack(Answer, message.content)
            _check(answer, client, task, self.federation, call.nonce)
        except wire.Refused as reason:
            return Reply(client, trouble=f"refused: {reason}", seconds=seconds, bytes_down=call.bytes_down)
        if answer.declined:
            why = DECLINED.get(answer.declined, "it does not say why")
            return Reply(client, trouble=f"declined: {why}", seconds=seconds, bytes_down=call.bytes_down)
        keeps = AtHome(task.round) if task.method.types.private is not None else None
        images = answer.images if question.kind == COLLECT else 0  # a client does not say how many images it trained on
        return Reply(client, data, keeps, "", images, seconds, call.bytes_down, len(data))

    def forget(self, calls: Sequence[str]) -> None:
        """Where the grid can take back what it was given, it does."""
        forget = getattr(self.grid, "forget", None)
        if forget is not None:
            forget(calls)


def _check(answer: Answer, client: int, task: Task, federation: str, nonce: str) -> None:
    if answer.federation != federation:
        raise wire.Refused("it is for another federation")
    if (answer.round, answer.attempt) != (task.round, task.attempt):
        raise wire.Refused("it is for another round")
    if answer.client != client:
        raise wire.Refused("it is in another client's name")
    if answer.nonce != nonce:
        raise wire.Refused("it answers another call")


def _on_cpu(message: Any) -> Any:
    return tree.transform(lambda leaf: leaf.cpu(), message)
