"""Flower's Fleet API in this process: TLS, signed nodes, and a ``Grid`` that the engine drives.

A stock SuperLink offers its control and runtime API on the same port as the Fleet API, and lets anybody who reaches it
register nodes and start runs. Here the Fleet API is all there is: whoever holds a key of ``clients.toml`` may ask for
its own messages and answer them, and nothing else answers at all. No app bundle is sent: clients run their own code.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI
from flwr.app import Error, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.proto.node_pb2 import NodeInfo
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.serverapp.grid import Grid
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from coalface.engines.flower_messages import SMALL, TOO_LARGE
from coalface.engines.flower_room import AnswerLimit, Room, inflated_size
from coalface.registry import Tls

LARGEST_REQUEST = 16 << 20  # bytes; Flower cuts messages into objects of 5 MiB
TASK_HEARTBEAT = 20.0  # seconds; Flower takes a server for dead after 60

log = logging.getLogger("coalface.server")


class Link(Grid):
    """A running Fleet API. Nodes are known by the public keys (PEM) it was given, in their order."""

    def __init__(self, host: str, port: int, tls: Tls, keys: Sequence[bytes]) -> None:
        objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), objects)
        self._state = factory.state()
        self._store = objects.store()
        self.nodes = [self._state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0) for key in keys]
        self._run_id = self._state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        task = self.run.primary_task_id
        assert task is not None  # every run has one
        self._task = task
        self._state.claim_task(self._task)
        self._state.activate_task(self._task)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = self._task, self._run_id, 1
        self._arriving: dict[str, Message] = {}  # replies whose objects are still on their way, by the call's id
        self._room = Room()
        self._allowed: dict[int, int] = {}
        self._stop = threading.Event()
        self._server = _server(_app(factory, self._room), host, port, tls)
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._server.run, self._beat)]

    def __enter__(self) -> Link:
        for thread in self._threads:
            thread.start()
        while not self._server.started:
            if not self._threads[0].is_alive():
                where = f"{self._server.config.host}:{self._server.config.port}"
                raise OSError(f"cannot listen on {where}: the address is in use or not this machine's")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._server.should_exit = True
        for thread in self._threads:
            thread.join(timeout=5)

    # --- Grid -----------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        return self._state.get_run_info(run_ids=[self._run_id])[0]

    def set_run(self, run: Run) -> None:
        raise NotImplementedError("a Link has one run, its own")

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError("use flwr.app.Message")

    def get_node_ids(self) -> Iterable[int]:
        return [node.node_id for node in self.get_nodes()]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Nodes that are connected."""
        return self._state.get_node_info(node_ids=self.nodes, statuses=["online"])

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Lay messages out for their nodes. Equal objects, the backbone above all, are held once for all of them."""
        ids = []
        with no_object_id_recompute():
            for message in messages:
                message.metadata.__dict__["_run_id"] = self._run_id  # Flower takes the one of the process's last link
                identity = message.object_id
                message.metadata.__dict__["_message_id"] = identity
                session = self._state.start_session(self._run_id)
                bare = remove_content_from_message(message)
                node = message.metadata.dst_node_id
                self._room.open(identity, bare, self._allowed.pop(node, SMALL))
                stored, missing = self._state.store_message_and_object_tree(bare, get_object_tree(message), session)
                if not stored:
                    self._room.close(identity)
                    raise RuntimeError(f"the message to node {node} was not taken")
                wanted = set(missing)
                for name, item in get_all_nested_objects(message).items():
                    if name in wanted:
                        self._state.store_object(self._run_id, session, name, item.deflate())
                ids.append(identity)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies that have arrived in full, and errors: the node is gone, the time is up, or too much came."""
        ids = set(message_ids)
        whole = []
        for identity, bare in self._room.too_large().items():
            if identity in ids:
                whole.append(Message(Error(TOO_LARGE, "too large"), reply_to=bare))
                self.forget([identity])
                ids.remove(identity)
        for reply in self._state.get_message_res(ids - self._arriving.keys(), self._run_id):
            self._arriving[reply.metadata.reply_to_message_id] = reply
        for identity in sorted(ids & self._arriving.keys()):
            reply = self._arriving[identity]
            inflated = reply if reply.has_error() else self._inflated(reply)
            if inflated is not None:
                whole.append(inflated)
                self.forget([identity])
        return whole

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError("the engine pushes and pulls")

    # --- beyond Grid ----------------------------------------------------------------------------------------------

    def allow(self, node: int, most: int) -> None:
        """How many bytes of ours the answer to the next message to this node may have; ``SMALL`` if nobody says so."""
        self._allowed[node] = most

    def forget(self, message_ids: Iterable[str]) -> None:
        """Remove calls and what was answered to them; an answer that comes later finds no call, and is turned away."""
        for identity in message_ids:
            announced = self._room.close(identity)
            reply = self._arriving.pop(identity, None)
            self._state.delete_messages({identity})
            for name in (identity, *announced, reply.metadata.message_id if reply is not None else ""):
                self._store.delete(name)

    def held(self) -> int:
        """Objects in store: nothing may stay behind after a round."""
        return len(self._store)

    def _inflated(self, reply: Message) -> Message | None:
        identity = reply.metadata.message_id
        call = self._room.find(reply.metadata.reply_to_message_id)
        if call is None or identity not in call.names:
            return None
        contents = {name: self._state.get_object(self._run_id, name) or b"" for name in call.names}
        if not all(contents.values()):
            return None
        try:
            if inflated_size(contents) > call.most + call.envelope:
                raise ValueError("it is larger than what came: pieces are in it more than once")
            whole = inflate_object_from_contents(identity, contents)
        except Exception:  # whatever a peer's bytes can make Flower raise
            log.warning("a reply from node %s could not be read", reply.metadata.src_node_id)
            whole = None
        if isinstance(whole, Message) and whole.has_content():
            reply.content = whole.content
        else:
            reply.content = RecordDict()  # not one of our messages: the engine will say so
        return reply

    def _beat(self) -> None:
        while not self._stop.wait(TASK_HEARTBEAT):
            self._state.acknowledge_task_heartbeat(self._task)


def _app(factory: LinkStateFactory, room: Room) -> FastAPI:
    app = FastAPI(
        openapi_url=None,
        middleware=[
            Middleware(SizeLimit),
            Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
            Middleware(AnswerLimit, room=room),
        ],
    )
    app.state.linkstate_factory = factory
    app.state.enable_supernode_auth = True
    app.include_router(fleet_router)
    return app


def _server(app: FastAPI, host: str, port: int, tls: Tls) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host,
        port,
        ssl_certfile=str(tls.certificate),
        ssl_keyfile=str(tls.key),
        log_config=None,
        access_log=False,
        lifespan="off",
    )
    config.load()
    assert config.ssl is not None  # a certificate was given
    config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    config.ssl.sslobject_class = Handshakes
    return uvicorn.Server(config)


class Handshakes(ssl.SSLObject):
    """asyncio is silent about failed handshakes; strangers should show in the log."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            log.warning("a connection was refused: %s", error.reason or "no TLS")
            raise


class SizeLimit:
    """Turn large bodies away before they are read, and so before anybody knows who sends them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = dict(scope.get("headers", ())).get(b"content-length", b"")
        if scope["type"] == "http" and not (length.isdigit() and int(length) <= LARGEST_REQUEST):
            log.warning("a request without a length, or with one over %d bytes, was refused", LARGEST_REQUEST)
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body"})
            return
        await self.app(scope, receive, send)
