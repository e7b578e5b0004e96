from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface.algorithms import matching
from coalface.algorithms.fedma import LAYERS, FedMA
from coalface.algorithms.matching import match
from coalface.federation import Rounds
from coalface.models.net import Net, Weights
from coalface.received import Received
from tests.conftest import small_net, small_population, small_run
from tests.models.test_channels import lived_in, shuffled

IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def matched_pass(net: Net, centres: list[Weights]) -> Weights:
    """One pass over all layers in which nobody trains: what centres hold is only reordered and averaged."""
    method, people = FedMA(same_start=True), small_population("fedma")
    server = method.begin(net, net.fresh(9), people, torch.Generator())
    later: list[Any] = [None] * len(centres)
    for _ in LAYERS:
        received = Received(method.types.upload)
        for client, weights in enumerate(centres):
            broadcast = method.broadcast(server, None, client)
            if broadcast.layer == 0:
                broadcast = replace(broadcast, detector=weights)  # each centre begins with its own
            local = method.start(net, broadcast, later[client], people[0], torch.Generator())
            received.add(client, method.upload(broadcast, local.trained, people[0]))
            later[client] = method.keep(local.trained)
        server = method.server_round(server, received)
    assert server.passes == 1 and server.layer == 0
    return method.embedder(server)


def test_matching_finds_the_order_back() -> None:
    rows = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    first, second = match([rows, rows[order]], passes=5)
    assert first.tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(rows[order][second], rows)


def test_three_clients_by_hand() -> None:
    """Two channels, (2, 0) and (0, 1). The second client has them swapped; the third leans to the first's order."""
    one = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    two = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    three = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    assert [order.tolist() for order in match([one, two, three], passes=5)] == [[0, 1], [1, 0], [0, 1]]


def test_one_client_keeps_its_order() -> None:
    assert [order.tolist() for order in match([torch.rand(4, 2)], passes=5)] == [[0, 1, 2, 3]]


def test_identical_centres_come_back_as_they_are() -> None:
    net = small_net("fedma")
    weights = lived_in(net, 0)
    found = matched_pass(net, [weights, weights, weights])
    for name, leaf in weights.parameters.items():
        torch.testing.assert_close(found.parameters[name], leaf, rtol=0, atol=1e-6)


def test_shuffled_centres_are_averaged_as_if_they_were_not() -> None:
    """Nearly the same network three times, twice with its channels shuffled: the plain mean would say nonsense."""
    net = Net("resnet18", outputs=1, width=4)
    weights = lived_in(net, 0)
    centres = [weights, shuffled(weights, 1), shuffled(weights, 2)]
    torch.testing.assert_close(net(matched_pass(net, centres), IMAGES), net(weights, IMAGES), rtol=1e-4, atol=1e-4)


def test_layers_that_are_over_move_no_weight(tmp_path: Path) -> None:
    run = small_run("fedma", small_net("fedma"), small_population("fedma"), tmp_path)
    first: Any = run.run(Rounds(rounds=4), stop_after=1)
    last: Any = run.run(Rounds(rounds=4))
    assert (first.layer, last.layer) == (1, 4)
    for name in LAYERS[0].parameters:
        assert torch.equal(first.matched.parameters[name], last.matched.parameters[name])
    for name in LAYERS[0].statistics:  # they follow what the mean of the layers gives out
        assert not torch.equal(first.matched.statistics[name], last.matched.statistics[name])


def test_a_centre_that_missed_a_round_goes_on_from_the_server(tmp_path: Path) -> None:
    run = small_run("fedma", small_net("fedma"), small_population("fedma"), tmp_path)
    server: Any = run.run(Rounds(rounds=3, cohort=2))
    took_part = set(server.orders)
    assert len(took_part) == 2
    for client in range(5):
        assert run.method.broadcast(server, None, client).continues == (str(client) in took_part)


def test_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match="set model=resnet18"):
        net = Net("tiny", embedding=1, size=16)
        FedMA().begin(net, net.fresh(0), small_population("fedma"), torch.Generator())


def test_without_scipy_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        matching.match([torch.rand(2, 2), torch.rand(2, 2)], passes=1)


def test_without_matching_channels_are_averaged_as_they_lie() -> None:
    """A centre whose channels are shuffled is found back by matching, and spoils the mean without it."""
    net = Net("resnet18", outputs=1, width=2)
    method, people = FedMA(matching_passes=0), small_population("fedma")
    server = method.begin(net, net.fresh(0), people, torch.Generator())
    received = Received(method.types.upload)
    first = LAYERS[0].of(net.fresh(1))
    swapped = first.map(lambda leaf: leaf.flip(0))
    for client, weights in enumerate((first, swapped)):
        received.add(client, method.types.upload(weights))
    name = LAYERS[0].parameters[0]
    expected = (first.parameters[name] + swapped.parameters[name]) / 2
    assert torch.equal(method.server_round(server, received).matched.parameters[name], expected)
