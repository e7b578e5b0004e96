"""A Flower node in one living process: fetch a call, answer it, again.

A stock SuperNode downloads the server's program and starts it anew for every message. This one runs the coalface that
its owner installed, and nothing that anybody sends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node as ProtoNode
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from coalface.store import write_atomically

Handler = Callable[[str, RecordDict], RecordDict]  # message type and content → the answer's content

POLL = 0.05  # seconds between two looks for a message, just after one …
IDLE = 2.0  # … and at most, when there was none for long: a look costs the server some milliseconds
SLOWER = 1.25
STAND_BACK = 5.0  # waits are so many times as long as a look takes, at least: a busy server is asked less often
HEARTBEAT = 20.0  # seconds; the server takes a client for dead after two without a sign of life
LONGEST_WAIT = 10.0  # seconds between two tries to reach a server that does not answer

log = logging.getLogger("coalface.client")


class NotAdmitted(RuntimeError):
    """The server does not take this node, or is not the server that it should be; waiting will not help."""


def attend(server: str, ca: Path, key: Path, remembered: Path, handle: Handler, stop: threading.Event) -> None:
    """Answer calls until ``stop``. ``remembered`` is a file for the number under which the server last knew this node.

    A server that cannot be reached is waited for. NotAdmitted says why it makes no sense to wait.
    """
    try:
        private = load_ssh_private_key(key.read_bytes(), None)
    except ValueError as error:
        raise NotAdmitted(f"{key} is not a private key as ssh-keygen writes it: {error}") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise NotAdmitted(f"{key} is not an elliptic-curve key; make one with `coalface keys`")
    interceptors: list[ProtobufClientInterceptor] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, private.public_key()),
    ]
    wait = POLL
    with FleetHttpClient.from_server_address(server, False, ca.read_bytes(), interceptors) as client:
        while not stop.is_set():
            try:
                session = _Session(client, public_key_to_bytes(private.public_key()), remembered)
                wait = POLL
                session.attend(handle, stop)
            except httpx.HTTPStatusError as error:
                log.info("the server answered with status %d; saying hello again", error.response.status_code)
            except httpx.TransportError as error:
                if "certificate verify failed" in str(error).lower().replace("_", " "):
                    raise NotAdmitted(f"{server} does not show a certificate of {ca}: {error}") from error
                if wait == POLL:
                    log.info("the server cannot be reached (%s); trying again", type(error).__name__)
            stop.wait(wait)
            wait = min(LONGEST_WAIT, 2 * wait)


class _Session:
    """From hello to goodbye."""

    def __init__(self, client: FleetHttpClient, public_key: bytes, remembered: Path) -> None:
        self._client = client
        before = _number_in(remembered)
        if before is not None:  # a process that was killed said no goodbye, and the server takes no second hello
            self._goodbye(before)
        hello = ActivateNodeRequest(public_key=public_key, heartbeat_interval=HEARTBEAT)
        try:
            self.node = ProtoNode(node_id=client.ActivateNode(hello).node_id)
        except httpx.HTTPStatusError as error:
            if error.response.is_server_error:
                raise
            raise NotAdmitted(
                "the server does not know this key: its owner must put the public key into clients.toml "
                f"(status {error.response.status_code})"
            ) from error
        remembered.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(remembered, str(self.node.node_id).encode())
        log.info("the server knows this node")

    def attend(self, handle: Handler, stop: threading.Event) -> None:
        ended = threading.Event()
        threading.Thread(target=self._beat, args=(ended,), daemon=True).start()
        wait = POLL
        try:
            while not stop.is_set():
                began = time.monotonic()
                if self._answer(handle):
                    wait = POLL
                    continue
                took = time.monotonic() - began
                stop.wait(max(wait, min(IDLE, STAND_BACK * took)))
                wait = min(IDLE, SLOWER * wait)
        finally:
            ended.set()
        self._goodbye(self.node.node_id)

    def _answer(self, handle: Handler) -> bool:
        """Answer a call, if there is one. Nothing of it stays in memory: a model may be large, and a wait long."""
        fetched = self._fetch()
        if fetched is None:
            return False
        self._send(Message(handle(fetched.metadata.message_type, fetched.content), reply_to=fetched))
        return True

    def _fetch(self) -> Message | None:
        pulled = self._client.PullMessages(PullMessagesRequest(node=self.node))
        if not pulled.messages_list:
            return None
        bare = message_from_proto(pulled.messages_list[0])
        run, identity = bare.metadata.run_id, bare.metadata.message_id
        names = [tree.object_id for tree in iterate_object_tree(pulled.message_object_trees[0])]
        try:
            whole = inflate_object_from_contents(identity, pull_objects(names, partial(self._pull, run)))
        except httpx.HTTPError:
            raise
        except Exception as error:  # whatever Flower makes of it; or the server took its call back meanwhile
            log.warning("a message was passed over: it could not be read (%s)", type(error).__name__)
            return None
        if not isinstance(whole, Message) or not whole.has_content():
            log.warning("a message without content was passed over")
            return None
        whole.metadata.__dict__["_message_id"] = identity
        request = ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=identity)
        self._client.ConfirmMessageReceived(request)
        return whole

    def _pull(self, run: int, name: str) -> bytes:
        found = self._client.PullObject(PullObjectRequest(node=self.node, run_id=run, object_id=name))
        if not found.object_available:
            raise ObjectPullError(name, "it is not there")
        return found.object_content

    def _send(self, reply: Message) -> None:
        run = reply.metadata.run_id
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree: ObjectTree = get_object_tree(reply)
            objects = get_all_nested_objects(reply)
            bare = message_to_proto(remove_content_from_message(reply))
            request = PushMessagesRequest(node=self.node, messages_list=[bare], message_object_trees=[tree])
            wanted = self._client.PushMessages(request)
            push = partial(self._push, run, wanted.session_id)
            push_objects(objects, push, object_ids_to_push=set(wanted.objects_to_push))

    def _push(self, run: int, session: str, name: str, content: bytes) -> None:
        request = PushObjectRequest(
            node=self.node, run_id=run, object_id=name, object_content=content, session_id=session
        )
        self._client.PushObject(request)

    def _beat(self, ended: threading.Event) -> None:
        beat = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT)
        while not ended.wait(HEARTBEAT / 4):
            try:
                self._client.SendNodeHeartbeat(beat)
            except httpx.HTTPError:
                continue  # the loop that fetches messages will meet the same trouble, and deals with it

    def _goodbye(self, node: int) -> None:
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))
        except httpx.HTTPError:
            log.debug("no goodbye: the server does not know this node, or is not there")


def _number_in(file: Path) -> int | None:
    """A node's number; None if there is no such file, or something else is in it, which must not keep a client away."""
    if not file.exists():
        return None
    try:
        number = int(file.read_text())
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        log.warning("%s holds no node's number: it is passed over, and written anew", file)
        return None
    return number
