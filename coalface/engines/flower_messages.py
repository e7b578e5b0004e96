"""What a Flower message of ours holds: a header of plain fields, and the bytes of ``wire``.

Nothing else is read from one. A header with a missing, extra or mistyped field raises ``Refused``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from coalface.wire import Refused

H = TypeVar("H")
SMALL = 1 << 20  # bytes
TOO_LARGE = 1001  # an error of ours beside Flower's: more came than was asked for
TRAIN = "train"  # Flower's kind of message for a round; everything else is a "query"
COLLECT = "query.collect"
ADVERTISE, SHARE, AGREE, UNMASK = "query.advertise", "query.share", "query.agree", "query.unmask"  # a secure sum's


@dataclass(frozen=True)
class Call:
    """What the server says around a broadcast."""

    terms: str  # JSON of ``coalface.terms.Terms``
    federation: str  # drawn when the federation began
    round: int
    attempt: int
    client: int  # whom it is for
    nonce: str  # fresh for every call; an answer must repeat it
    counted: list[int]  # rounds of this client that counted and whose private state may be asked for again
    sealed: bytes = b""  # where sums are secure: the shares that others sealed for this client


@dataclass(frozen=True)
class Answer:
    """What a client says around an upload: which call it answers, and, if it declines, why."""

    federation: str
    round: int
    attempt: int
    client: int
    nonce: str
    declined: str  # a key of ``participant.DECLINED``; empty if there is an upload
    images: int  # of a collection: how many there are in it; 0 otherwise


def pack(header: Call | Answer, data: bytes) -> RecordDict:
    """A message's content. Flower fetches each record on its own, so that a few bytes go with the header."""
    fields = dataclasses.asdict(header)
    if len(data) <= SMALL:
        return RecordDict({"header": ConfigRecord({**fields, "data": data})})
    array = Array("uint8", (len(data),), "coalface.wire", data)  # Flower cuts it into pieces
    return RecordDict({"header": ConfigRecord(fields), "data": ArrayRecord({"wire": array})})


def unpack(kind: type[H], content: RecordDict) -> tuple[H, bytes]:
    """Header and bytes of a message's content; Refused if it is anything else."""
    record = content.get("header")
    if not isinstance(record, ConfigRecord) or content.keys() - {"header", "data"}:
        raise Refused("not one of our messages")
    header: dict[str, Any] = dict(record)
    data = header.pop("data", None)
    if data is None:
        apart = content.get("data")
        data = apart["wire"].data if isinstance(apart, ArrayRecord) and list(apart) == ["wire"] else None
    if type(data) is not bytes:
        raise Refused("data that is not ours")
    hints: dict[str, Any] = get_type_hints(kind)
    if header.keys() != hints.keys():
        raise Refused("a header of other fields")
    for name, hint in hints.items():
        value = header[name]
        if hint == list[int]:
            fine = type(value) is list and all(type(item) is int for item in value)
        else:
            fine = type(value) is hint
        if not fine:
            raise Refused(f"{name} of the header is a {type(value).__name__}")
    return kind(**header), data
