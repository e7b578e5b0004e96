"""Views: what the server sees of a round, and no more."""

from __future__ import annotations

import pytest
import torch

from coalface import tree
from coalface.privacy.audits.view import PLAIN, SECURE_SUM, View, with_noise
from tests.privacy.conftest import Recorded, drawn


def test_plain_shows_every_upload_as_it_was_sent(recorded_case: Recorded) -> None:
    case = recorded_case("fedface")
    seen = case.seen(PLAIN, drawn())
    assert all(mine.upload is case.last.uploads[client] and mine.together == 1 for client, mine in seen.items())


def test_the_secure_sum_shows_the_mean_and_what_is_revealed(recorded_case: Recorded) -> None:
    case = recorded_case("fedface")
    uploads = case.last.uploads
    seen = case.seen(SECURE_SUM, drawn())
    layers = torch.stack([upload.backbone.parameters["3.weight"].double() for upload in uploads.values()])
    for client, mine in seen.items():
        torch.testing.assert_close(mine.upload.backbone.parameters["3.weight"].double(), layers.mean(dim=0))
        assert torch.equal(mine.upload.class_embedding, uploads[client].class_embedding)  # no sum protects it
        assert mine.upload.images == 16 * 6 and mine.together == 16


def test_a_choir_is_seen_as_its_sum(recorded_case: Recorded) -> None:
    case = recorded_case("chorus")
    chord = sum(case.last.uploads[client].chord for client in range(4))
    seen = case.seen(SECURE_SUM, drawn())
    assert all(torch.allclose(seen[client].upload.chord, chord) for client in range(4))
    assert not torch.allclose(seen[4].upload.chord, chord)


def test_of_a_partial_choir_nothing_is_seen(recorded_case: Recorded) -> None:
    case = recorded_case("chorus", clients=20, cohort=20)
    del case.last.uploads[0]
    seen = case.seen(SECURE_SUM, drawn())
    assert not bool(seen[1].upload.chord.any()) and bool(seen[4].upload.chord.any())


def test_noise_has_the_stated_size(recorded_case: Recorded) -> None:
    """The mean of 16 parts, each clipped to the median norm C, with noise of 8 C / 16 on every number."""
    case = recorded_case("random_targets")
    norms = []
    for upload in case.last.uploads.values():
        norms.append(float(sum(leaf.square().sum() for leaf in tree.leaves(upload.backbone).values())) ** 0.5)
    clip = float(torch.tensor(norms).median())
    plain = case.seen(SECURE_SUM, drawn())[0].upload.backbone.parameters["3.weight"]
    noisy = case.seen(with_noise(8.0), drawn())[0].upload.backbone.parameters["3.weight"]
    assert float((noisy - plain).std()) == pytest.approx(8 * clip / 16, rel=0.05)


def test_small_cohorts_and_noise_without_a_sum_are_refused(recorded_case: Recorded) -> None:
    case = recorded_case("fedface", clients=15)
    with pytest.raises(ValueError, match="a secure sum of 15 clients: raise rounds.cohort to 16"):
        case.seen(SECURE_SUM, drawn())
    with pytest.raises(ValueError, match="noise"):
        View("odd", summed=False, noise=1.0)
