"""Attacks 1 and 3: what the last layer tells of one client, what a sum still tells, and what noise hides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from coalface.models.net import Net, Weights
from coalface.privacy.audits.codeword import codeword_reading, separated
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.template_leak import template_leak
from coalface.privacy.audits.view import PLAIN, SECURE_SUM, with_noise
from tests.privacy.conftest import Recorded, drawn


@pytest.fixture
def layer(net: Net) -> LastLayer:
    return LastLayer(net, net.fresh(0))


def update(weight: torch.Tensor, bias: torch.Tensor) -> Weights:
    return Weights({"3.weight": weight, "3.bias": bias}, {})


def test_one_outer_product_gives_the_activation_back_with_its_length(layer: LastLayer) -> None:
    """ΔW = −δ hᵀ, Δb = −δ: h = ΔWᵀΔb / ‖Δb‖²."""
    error, entering = torch.randn(8, generator=drawn(1)), torch.rand(64, generator=drawn(2))
    found = layer.alone(update(-torch.outer(error, entering), -error), torch.zeros(8))
    torch.testing.assert_close(found, layer.embeddings(entering[None]))
    assert not bool(layer.alone(update(torch.zeros(8, 64), torch.zeros(8)), torch.zeros(8)).any())


def test_without_a_bias_the_sign_is_the_likelier_one(layer: LastLayer) -> None:
    error, entering = torch.randn(8, generator=drawn(1)), 10 * torch.rand(64, generator=drawn(2))
    typical = layer.embeddings(entering[None])[0]
    found = layer.alone(Weights({"3.weight": torch.outer(error, entering)}, {}), typical)[0]
    assert float(found @ typical) > 0


def test_activations_are_what_enters_the_layer(layer: LastLayer, net: Net) -> None:
    images = torch.randint(0, 255, (5, 3, 16, 16), generator=drawn(), dtype=torch.uint8)
    through = layer.embeddings(layer.activations(images))
    torch.testing.assert_close(through, F.normalize(net(net.fresh(0), images), dim=1))


def test_a_sum_is_solved_by_who_knows_the_errors(layer: LastLayer) -> None:
    errors, entering = torch.randn(4, 8, generator=drawn(1)), torch.rand(4, 64, generator=drawn(2))
    found = layer.solved(update(errors.T @ entering, errors.sum(dim=0)), 3 * errors)
    torch.testing.assert_close(found, layer.embeddings(entering), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["feduv", "random_targets", "fedavg/shared-head"])
def test_one_update_tells_the_template(name: str, recorded_case: Recorded) -> None:
    found = template_leak(recorded_case(name), PLAIN, drawn())
    assert found.success == 1 and found.details["median_cosine"] > 0.95


def test_a_row_of_a_shared_head_is_mostly_its_own_clients_in_the_sum_too(recorded_case: Recorded) -> None:
    """For most, what the other fifteen add is small beside what the row's client moves: the sum is its upload there."""
    case = recorded_case("fedavg/shared-head")
    seen = case.seen(SECURE_SUM, drawn())
    rows = {client: case.clients.first_class(client) for client in seen}
    alone = torch.stack([case.last.uploads[client].head[row] for client, row in rows.items()])
    summed = torch.stack([seen[client].upload.head[row] for client, row in rows.items()])
    assert float(F.cosine_similarity(alone, summed).median()) > 0.95


def test_the_sum_does_not_protect_targets_that_the_server_drew(recorded_case: Recorded) -> None:
    case = recorded_case("random_targets", kind="orthonormal")
    assert template_leak(case, SECURE_SUM, drawn()).details["median_cosine"] > 0.95
    noisy = template_leak(case, with_noise(1.0), drawn())
    assert noisy.success == 0 and noisy.at_chance


@pytest.mark.parametrize("name", ["feduv/secret", "random_targets/secret"])
def test_the_sum_hides_what_clients_drew_themselves(name: str, recorded_case: Recorded) -> None:
    case = recorded_case(name)
    assert template_leak(case, PLAIN, drawn()).details["median_cosine"] > 0.95
    assert template_leak(case, SECURE_SUM, drawn()).at_chance


def test_errors_are_told_apart_blindly(layer: LastLayer) -> None:
    """A sum over three people whose activations have few large values: no error is known, and each is found."""
    draw = drawn(3)
    entering = torch.rand(3, 64, generator=draw) * (torch.rand(3, 64, generator=draw) < 0.15)
    errors = F.normalize(torch.randn(3, 8, generator=draw), dim=1)
    whole = update(1e-3 * errors.T @ entering, 1e-3 * errors.sum(dim=0))
    found = layer.errors(whole, 3, draw)
    assert found.shape == (6, 8)
    assert float((found @ errors.T).abs().max(dim=0).values.min()) > 0.9
    guesses = layer.apart(whole, 3, draw)
    assert float((guesses @ layer.embeddings(entering).T).max(dim=0).values.min()) > 0.9
    alone = layer.errors(update(torch.outer(errors[0], entering[0]), errors[0]), 1, draw)
    torch.testing.assert_close(alone, errors[:1])
    nothing = update(torch.zeros(8, 64), torch.zeros(8))
    assert bool(layer.apart(nothing, 3, draw).isfinite().all())


def test_mixed_signs_are_told_apart() -> None:
    """511 rows, each a sum of 5 vectors with independent signs: signs and vectors come back, up to order and sign."""
    draw = drawn()
    signs = torch.randint(2, (5, 511), generator=draw).float() * 2 - 1
    vectors = F.normalize(torch.randn(5, 32, generator=draw), dim=1)
    read, voices = separated(1e-4 * signs.T @ vectors, 5, draw)
    agreement = (read @ signs.T / 511).abs()
    assert float(agreement.max(dim=0).values.min()) == 1
    assert float((voices @ vectors.T).abs().max(dim=0).values.min()) > 0.95


def test_codewords_are_read_plain_and_from_the_sum_and_not_through_noise(recorded_case: Recorded) -> None:
    case = recorded_case("feduv")
    plain, summed, noisy = (codeword_reading(case, view, drawn()) for view in (PLAIN, SECURE_SUM, with_noise(1.0)))
    assert plain is not None and summed is not None and noisy is not None
    assert plain.success == 1 and plain.details["bits_read"] > 0.99
    assert summed.details["bits_read"] > 0.95
    assert noisy.success == 0 and noisy.details["bits_read"] == pytest.approx(0.5, abs=0.07)
    assert codeword_reading(recorded_case("fedface"), PLAIN, drawn()) is None


def test_a_code_head_that_stands_still_tells_no_codeword(recorded_case: Recorded) -> None:
    """32 numbers of an error for 511 bits: more than half of them, and far from all; in a sum little more than luck."""
    case = recorded_case("feduv/secret")
    plain, summed = (codeword_reading(case, view, drawn()) for view in (PLAIN, SECURE_SUM))
    assert plain is not None and summed is not None
    assert plain.success == 0 and 0.55 < plain.details["bits_read"] < 0.75
    assert summed.success == 0 and summed.details["bits_read"] < summed.details["chance_bits_read"] + 0.05
