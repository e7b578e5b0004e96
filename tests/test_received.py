"""Sums, by numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from coalface import wire
from coalface.received import Received
from coalface.wire import Count, Revealed, Summed, SummedInGroup, sends


@dataclass(frozen=True)
class Upload(wire.Upload):
    change: Summed[dict[str, Tensor]] = sends("change")
    template: Revealed[Tensor] = sends("template")
    images: Count = sends("images")


@dataclass(frozen=True)
class EqualUpload(wire.Upload):
    weight = None
    change: Summed[Tensor] = sends("change")


def upload(value: float, images: int) -> Upload:
    return Upload({"a": torch.tensor([value, 0.0])}, torch.tensor([value]), images)


def test_the_mean_is_weighted_by_images() -> None:
    received = Received(Upload)
    received.add(0, upload(1.0, images=1))
    received.add(1, upload(5.0, images=3))
    assert received.mean("change")["a"].tolist() == [4.0, 0.0]  # (1·1 + 5·3) / 4
    assert received.count("images") == 4
    assert received.clients == [0, 1]


def test_equal_weights() -> None:
    received = Received(EqualUpload)
    for client, value in enumerate([1.0, 2.0, 6.0]):
        received.add(client, EqualUpload(torch.tensor(value)))
    assert float(received.mean("change")) == 3.0


def test_revealed_fields_are_kept_by_client() -> None:
    received = Received(Upload)
    received.add(7, upload(1.0, images=1))
    assert {client: value.tolist() for client, value in received.revealed("template").items()} == {7: [1.0]}


def test_the_server_cannot_ask_for_one_clients_summed_field() -> None:
    received = Received(Upload)
    received.add(0, upload(1.0, images=1))
    with pytest.raises(PermissionError, match="change is summed: the server does not see one client's value"):
        received.revealed("change")
    with pytest.raises(PermissionError, match="template is REVEALED"):
        received.mean("template")
    with pytest.raises(KeyError, match="no field 'nothing'"):
        received.mean("nothing")


def test_one_client_gives_back_its_bits_whatever_its_weight() -> None:
    value = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-3
    for images in (1, 3, 7, 1_000_003):
        received = Received(Upload)
        received.add(0, Upload({"a": value}, torch.zeros(1), images))
        assert torch.equal(received.mean("change")["a"], value)


def test_the_order_of_clients_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    uploads = [Upload({"a": torch.randn(100, generator=generator)}, torch.zeros(1), n + 1) for n in range(50)]
    forwards, backwards = Received(Upload), Received(Upload)
    for client, item in enumerate(uploads):
        forwards.add(client, item)
    for client, item in reversed(list(enumerate(uploads))):
        backwards.add(client, item)
    assert torch.equal(forwards.mean("change")["a"], backwards.mean("change")["a"])


def test_no_upload_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no upload counted"):
        Received(Upload).mean("change")


@dataclass(frozen=True)
class ChoirUpload(wire.Upload):
    weight = None
    voice: SummedInGroup[Tensor] = sends("voice")


def test_only_whole_groups_are_heard() -> None:
    received = Received(ChoirUpload, group_of=lambda client: client // 3)
    for client in (0, 1, 2, 3, 5):  # client 4 of the second group is missing
        received.add(client, ChoirUpload(torch.tensor([float(client)])))
    sums = received.whole_groups("voice", size_of=lambda group: 3)
    assert {group: total.tolist() for group, total in sums.items()} == {0: [3.0]}  # 0 + 1 + 2
    with pytest.raises(PermissionError, match="summed in its group"):
        received.mean("voice")
    with pytest.raises(PermissionError, match="does not see one client's value"):
        received.revealed("voice")
