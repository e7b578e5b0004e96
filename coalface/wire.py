"""What travels, as types.

A method declares an ``Upload``. Every field of it says who can see it:

    Summed[...]         the server only ever sees the sum over the cohort
    SummedInGroup[...]  the server only ever sees the sum over a whole group of clients, and nothing of a partial one
    Revealed[...]       the server sees each client's own value, and every report says so
    Count               a plain number, seen per client

A sum hides one client's part only if the parts look alike. A field whose parts an attack tells apart inside the sum
says so, with the reason (``apart``): every table shows it, and ``privacy.require_secure_sum`` refuses it.

``Broadcast`` travels to clients. ``Private`` stays on its client, and has no encoding at all.

Bytes are safetensors: no pickle, no class names, no open dictionary. Whatever arrives is checked against the shapes
that the receiver itself expects, before anything is done with it; a wrong message raises ``Refused`` with its reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar, get_type_hints

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from coalface import tree

T = TypeVar("T")


class Seen(Enum):
    """Who sees a field of an upload."""

    SUMMED = "summed"
    GROUPED = "summed in its group"
    REVEALED = "REVEALED"
    COUNT = "count"


TOLD_APART = "TOLD APART"  # beside the word for a sum that hides nobody

Summed = Annotated[T, Seen.SUMMED]
SummedInGroup = Annotated[T, Seen.GROUPED]
Revealed = Annotated[T, Seen.REVEALED]
Count = Annotated[int, Seen.COUNT]


class Message:
    """Something that may travel. Subclasses are frozen dataclasses of tensors, dicts of tensors and counts."""


class Broadcast(Message):
    """What the server sends to a client at the start of a round."""


class Upload(Message):
    """What leaves a client. ``weight`` names the count that weighs its summed fields, or None for equal weights."""

    weight: ClassVar[str | None] = "images"


class Private:
    """What stays on a client. It can be stored there, and nowhere else: encoding and pickling are type errors."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{type(self).__qualname__} is Private: it never leaves its client")


Known = dict[str, tuple[Any, float]]  # field -> the last value that was found good, and its squared norm


NOT_FINITE = "is not finite"  # how the refusal of what training that diverges makes ends


class Refused(ValueError):
    """A message that is not what it must be; the text is the reason, fit for the ledger."""


def sends(what: str, apart: str = "") -> Any:
    """A field of a message, with the words that the disclosure table shows for it.

    ``apart`` says why one client's part of a summed field can be told from the sum over a cohort, if it can.
    """
    return dataclasses.field(metadata={"what": what, "apart": apart})


@dataclass(frozen=True)
class Disclosure:
    """One line of the disclosure table."""

    field: str
    seen: Seen
    what: str
    type: str
    apart: str = ""  # why a sum does not hide one client's part of it

    @property
    def who(self) -> str:
        """Who sees it, in the words of every table."""
        return f"{self.seen.value}, {TOLD_APART}" if self.apart else self.seen.value

    @property
    def words(self) -> str:
        """What it is, and why a sum does not hide it where that is so."""
        return f"{self.what}; {self.apart}" if self.apart else self.what


def disclosure(upload: type[Upload]) -> tuple[Disclosure, ...]:
    """What leaves a client under this upload type, field by field; a TypeError if the type does not say who sees it."""
    kind: Any = upload  # mypy takes the hash of an instance for that of the class
    return _disclosure(kind)


@lru_cache(maxsize=256)
def _disclosure(upload: Any) -> tuple[Disclosure, ...]:
    hints = get_type_hints(upload, include_extras=True)
    rows = []
    for field in dataclasses.fields(upload):
        hint = hints[field.name]
        seen = next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Seen)), None)
        if seen is None:
            raise TypeError(
                f"{upload.__qualname__}.{field.name} must be Summed, SummedInGroup, Revealed or Count, not {hint!r}"
            )
        inner = hint.__origin__
        if isinstance(inner, type) and issubclass(inner, Private):
            raise TypeError(f"{upload.__qualname__}.{field.name} is Private: it never leaves its client")
        apart = field.metadata.get("apart", "")
        if apart and seen is not Seen.SUMMED:
            raise TypeError(f"{upload.__qualname__}.{field.name} is {seen.value}: only a sum can be told apart")
        what, name = field.metadata.get("what", ""), getattr(inner, "__name__", str(inner))
        rows.append(Disclosure(field.name, seen, what, name, apart))
    return tuple(rows)


def described(message: type[Message]) -> list[dict[str, str]]:
    """The fields of a message with their words and types."""
    hints = get_type_hints(message)
    return [
        {
            "field": f.name,
            "what": f.metadata.get("what", ""),
            "type": getattr(hints[f.name], "__name__", str(hints[f.name])),
        }
        for f in dataclasses.fields(message)  # type: ignore[arg-type]  # subclasses are dataclasses
    ]


def encode(message: Message) -> bytes:
    """A message as bytes. Anything that is not a Message, Private above all, is a TypeError."""
    return safetensors.torch.save({name: leaf.detach().contiguous() for name, leaf in _leaves(message).items()})


def encode_fields(message: Message, fields: Collection[str]) -> bytes:
    """Some fields of a message as bytes: those that travel beside a masked sum."""
    chosen = _of_fields(_leaves(message), fields)
    return safetensors.torch.save({name: leaf.detach().contiguous() for name, leaf in chosen.items()})


def encoded_size(message: Message) -> int:
    """``len(encode(message))`` without encoding: it depends on names, shapes and dtypes only."""
    return _size(_signature(_leaves(message)))


def decode(data: bytes, expected: Message, *, max_norm: float | None = None) -> Any:
    """The message of ``expected``'s type and shapes in these bytes, or Refused with the reason."""
    message = tree.rebuild(type(expected), _loaded(data, tree.leaves(expected)))
    check(message, expected, max_norm=max_norm)
    return message


def decode_fields(data: bytes, expected: Message, fields: Collection[str]) -> Any:
    """``expected`` with these fields as the bytes have them, or Refused with the reason."""
    leaves = tree.leaves(expected)
    message = tree.rebuild(type(expected), leaves | _loaded(data, _of_fields(leaves, fields)))
    check(message, expected)
    return message


def check(
    message: Message,
    expected: Message,
    *,
    max_norm: float | None = None,
    known: Known | None = None,
    squares: Mapping[str, float] | None = None,
) -> None:
    """Refuse a message whose fields, shapes, dtypes, values, counts or norm are not as expected.

    ``known`` remembers the last good value of each field: engines that train clients together hand in one for many.
    ``squares`` are squared norms that an engine of this process has found already: a device is asked once for many.
    """
    if type(message) is not type(expected):
        raise Refused(f"a {type(message).__qualname__}, expected a {type(expected).__qualname__}")
    known = {} if known is None else known
    total = 0.0
    for field in dataclasses.fields(message):  # type: ignore[arg-type]  # subclasses are dataclasses
        value = getattr(message, field.name)
        if field.name not in known or known[field.name][0] is not value:
            known[field.name] = (
                value,
                _checked(field.name, value, getattr(expected, field.name), (squares or {}).get(field.name)),
            )
        total += known[field.name][1]
    for name, count in _counts(message):
        if count < 0:
            raise Refused(f"{name} is {count}, and a count cannot be negative")
    if max_norm is not None and total**0.5 > max_norm:
        raise Refused(f"norm {total**0.5:.3g} is over the bound {max_norm:.3g}")


def _checked(field: str, value: Any, expected: Any, squared: float | None) -> float:
    """The squared norm of a field that is as expected and finite."""
    if type(value) is type(expected) is int:
        return 0.0  # a count has no shape and no norm
    _forbid_private(value)
    flat = tree.leaves(value, field)
    _check_leaves(flat, tree.leaves(expected, field))
    total = _squared_norm(flat) if squared is None else squared
    if not total < float("inf"):
        bad = [name for name, leaf in flat.items() if leaf.is_floating_point() and not leaf.isfinite().all()]
        raise Refused(f"{bad[0] if bad else field} {NOT_FINITE}")
    return total


def _squared_norm(flat: dict[str, Tensor]) -> float:
    """Over all leaves, for one look at the device."""
    floats = [leaf.detach() for leaf in flat.values() if leaf.is_floating_point()]
    return float(torch.stack(torch._foreach_norm(floats, 2, dtype=torch.float64)).square().sum()) if floats else 0.0


def _loaded(data: bytes, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    size = _size(_signature(expected))
    if len(data) != size:
        raise Refused(f"{len(data)} bytes, expected {size}")
    try:
        flat = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise Refused(f"not a readable message ({type(error).__name__})") from error
    _check_leaves(flat, expected)
    return {name: flat[name] for name in expected}  # in the order in which they were sent: a file's is another


def _of_fields(leaves: dict[str, Tensor], fields: Collection[str]) -> dict[str, Tensor]:
    return {path: leaf for path, leaf in leaves.items() if path.split("/")[0] in fields}


def _signature(leaves: dict[str, Tensor]) -> tuple[tuple[str, tuple[int, ...], torch.dtype], ...]:
    return tuple((name, tuple(leaf.shape), leaf.dtype) for name, leaf in leaves.items())


def _leaves(message: Message) -> dict[str, Tensor]:
    if not isinstance(message, Message):
        raise TypeError(f"{type(message).__qualname__} is no message: only a Broadcast or an Upload can be encoded")
    _forbid_private(message)
    return tree.leaves(message)


def _forbid_private(node: object) -> None:
    if isinstance(node, Private):
        raise TypeError(f"{type(node).__qualname__} is Private: it never leaves its client")
    if isinstance(node, dict):
        children = list(node.values())
    elif dataclasses.is_dataclass(node):
        children = [getattr(node, field.name) for field in dataclasses.fields(node)]
    else:
        return
    for child in children:
        _forbid_private(child)


def _check_leaves(flat: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if flat.keys() != expected.keys():
        missing = expected.keys() - flat.keys()
        # The name of an extra field is the sender's text, and stays out of our ledger.
        raise Refused(f"field {min(missing)} is missing" if missing else "an extra field")
    for name, leaf in flat.items():
        if leaf.dtype != expected[name].dtype:
            raise Refused(f"{name} is {leaf.dtype}, expected {expected[name].dtype}")
        if leaf.shape != expected[name].shape:
            raise Refused(f"{name} has shape {list(leaf.shape)}, expected {list(expected[name].shape)}")


def _counts(message: Message) -> Iterator[tuple[str, int]]:
    if isinstance(message, Upload):
        for row in disclosure(type(message)):
            if row.seen is Seen.COUNT:
                yield row.field, int(getattr(message, row.field))


@lru_cache(maxsize=64)
def _size(signature: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]) -> int:
    return len(safetensors.torch.save({name: torch.zeros(shape, dtype=dtype) for name, shape, dtype in signature}))
