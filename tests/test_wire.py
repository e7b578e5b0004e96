"""What may travel, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coalface import wire
from coalface.wire import Count, Refused, Revealed, Summed, sends


@dataclass(frozen=True)
class Upload(wire.Upload):
    change: Summed[dict[str, Tensor]] = sends("change of the weights")
    template: Revealed[Tensor] = sends("a face template")
    images: Count = sends("number of images")


@dataclass(frozen=True)
class Secret(wire.Private):
    key: Tensor


def upload(images: int = 3) -> Upload:
    return Upload({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(())}, torch.tensor([1.0, 2.0]), images)


def test_round_trip_is_exact() -> None:
    sent = upload()
    got = wire.decode(wire.encode(sent), upload(images=0))
    assert isinstance(got, Upload)
    assert torch.equal(got.change["a"], sent.change["a"]) and torch.equal(got.change["b"], sent.change["b"])
    assert torch.equal(got.template, sent.template)
    assert got.images == 3


def test_size_is_known_without_encoding() -> None:
    # 6 + 1 + 2 floats of 4 bytes and one count of 8 bytes make 44 bytes of content; the rest is the header.
    assert wire.encoded_size(upload()) == len(wire.encode(upload())) > 44


def test_private_has_no_encoding() -> None:
    secret = Secret(torch.ones(3))
    with pytest.raises(TypeError, match="no message"):
        wire.encode(secret)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Secret is Private: it never leaves its client"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="Secret is Private"):
        wire.encode(replace(upload(), template=secret))  # type: ignore[arg-type]


def test_private_cannot_be_declared_as_a_field() -> None:
    @dataclass(frozen=True)
    class Leaky(wire.Upload):
        secret: Revealed[Secret] = sends("oops")

    with pytest.raises(TypeError, match="secret is Private"):
        wire.disclosure(Leaky)


def test_a_field_must_say_who_sees_it() -> None:
    @dataclass(frozen=True)
    class Vague(wire.Upload):
        something: Tensor = sends("who sees this?")

    with pytest.raises(TypeError, match="something must be Summed, SummedInGroup, Revealed or Count"):
        wire.disclosure(Vague)


def test_disclosure_comes_from_the_types() -> None:
    rows = [(row.field, row.seen.value, row.what) for row in wire.disclosure(Upload)]
    assert rows == [
        ("change", "summed", "change of the weights"),
        ("template", "REVEALED", "a face template"),
        ("images", "count", "number of images"),
    ]


def test_a_sum_that_hides_nobody_says_so() -> None:
    @dataclass(frozen=True)
    class Rows(wire.Upload):
        head: Summed[Tensor] = sends("a row for everybody", apart="a row is moved by its own client")

    (row,) = wire.disclosure(Rows)
    assert row.seen is wire.Seen.SUMMED  # the server still has nothing but the sum
    assert (row.who, row.words) == ("summed, TOLD APART", "a row for everybody; a row is moved by its own client")

    @dataclass(frozen=True)
    class Muddled(wire.Upload):
        template: Revealed[Tensor] = sends("a face template", apart="anyway")

    with pytest.raises(TypeError, match="template is REVEALED: only a sum can be told apart"):
        wire.disclosure(Muddled)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (replace(upload(), change={"a": torch.zeros(2, 3)}), "field change/b is missing"),
        (replace(upload(), change={**upload().change, "c": torch.zeros(1)}), "an extra field"),
        (replace(upload(), template=torch.zeros(3)), r"template has shape \[3\], expected \[2\]"),
        (replace(upload(), template=torch.zeros(2, dtype=torch.float64)), "template is torch.float64"),
        (replace(upload(), template=torch.tensor([1.0, float("nan")])), "template is not finite"),
        (replace(upload(), template=torch.tensor([1.0, float("-inf")])), "template is not finite"),
        (replace(upload(), images=-1), "images is -1"),
    ],
)
def test_wrong_uploads_are_refused_with_their_reason(wrong: Upload, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        wire.check(wrong, upload())
    if reason.startswith(("field", "an extra", "template has", "template is torch")):
        reason = "bytes, expected"  # another length gives it away before it is even read
    with pytest.raises(Refused, match=reason):
        wire.decode(wire.encode(wrong), upload())


def test_norm_bound() -> None:
    # 0+1+4+9+16+25 (a) + 1 (b) + 1+4 (template) = 61
    wire.check(upload(), upload(), max_norm=61**0.5 + 1e-6)
    with pytest.raises(Refused, match=r"norm 7\.81 is over the bound 7\.8"):
        wire.check(upload(), upload(), max_norm=7.8)


GOOD = wire.encode(upload())


@given(st.binary(max_size=2 * len(GOOD)))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        wire.decode(data, upload())


@given(st.binary(min_size=len(GOOD), max_size=len(GOOD)))
def test_random_bytes_of_the_right_length_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        wire.decode(data, upload())


@given(st.integers(0, len(GOOD) - 1))
def test_truncated_bytes_are_refused(length: int) -> None:
    with pytest.raises(Refused, match="bytes, expected"):
        wire.decode(GOOD[:length], upload())


@given(st.binary(min_size=1, max_size=64))
def test_overlong_bytes_are_refused(tail: bytes) -> None:
    with pytest.raises(Refused, match="bytes, expected"):
        wire.decode(GOOD + tail, upload())


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_stays_an_upload_of_the_right_shape(at: int, flip: int) -> None:
    data = bytearray(GOOD)
    data[at] ^= flip
    try:
        got = wire.decode(bytes(data), upload())
    except Refused:
        return
    wire.check(got, upload())


def test_a_huge_header_is_refused_without_allocating() -> None:
    data = (2**40).to_bytes(8, "little") + GOOD[8:]
    with pytest.raises(Refused, match="not a readable message"):
        wire.decode(data, upload())
