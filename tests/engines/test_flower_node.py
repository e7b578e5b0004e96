"""The number under which a server last knew a node, over restarts and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.proto.fleet_pb2 import ActivateNodeResponse

from coalface.engines.flower_node import _Session


class Server:
    """Answers a hello with node 7, and notes who said goodbye."""

    def __init__(self) -> None:
        self.gone: list[int] = []

    def DeactivateNode(self, request: Any) -> None:  # noqa: N802  (Flower's name)
        self.gone.append(request.node_id)

    def ActivateNode(self, request: Any) -> ActivateNodeResponse:  # noqa: N802
        return ActivateNodeResponse(node_id=7)


@pytest.mark.parametrize(
    ("content", "gone"),
    [
        (None, []),
        (b"12", [12]),
        (b"18446744073709551615", [2**64 - 1]),  # the largest there is
        (b"18446744073709551616", []),
        (b"", []),
        (b"-1", []),
        (b"twelve", []),
        (b"\xff\x00", []),
    ],
)
def test_a_damaged_number_keeps_no_client_away(content: bytes | None, gone: list[int], tmp_path: Path) -> None:
    remembered, server = tmp_path / "state" / "node", Server()
    if content is not None:
        remembered.parent.mkdir()
        remembered.write_bytes(content)
    _Session(server, b"key", remembered)  # type: ignore[arg-type]
    assert server.gone == gone
    assert [file.name for file in remembered.parent.iterdir()] == ["node"] and remembered.read_bytes() == b"7"


def test_a_number_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").write_bytes(b"12")

    def killed(path: Path, data: bytes) -> None:
        path.write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr("coalface.store.write_durably", killed)
    with pytest.raises(KeyboardInterrupt):
        _Session(Server(), b"key", tmp_path / "node")  # type: ignore[arg-type]
    assert (tmp_path / "node").read_bytes() == b"12"
