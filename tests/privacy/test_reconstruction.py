"""Attacks 2, 4, 5 and 6 on recorded rounds of the small world."""

from __future__ import annotations

import pytest
import torch

from coalface import seeding
from coalface.data import synthetic
from coalface.local import Training
from coalface.privacy.audits.embedding_recovery import any_sum_tells, embedding_recovery
from coalface.privacy.audits.gradient_inversion import gradient_inversion, inverted, simulated, total_variation
from coalface.privacy.audits.judge import Judge, as_pixels, nearest_ssim, ssim
from coalface.privacy.audits.membership import image_membership, person_membership, within_people
from coalface.privacy.audits.recording import Case
from coalface.privacy.audits.result import counted
from coalface.privacy.audits.template_inversion import Decoder, template_inversion, trained_decoder
from coalface.privacy.audits.view import PLAIN, SECURE_SUM
from tests.privacy.conftest import Recorded, drawn


def test_recovery_reads_what_is_revealed_under_every_view(recorded_case: Recorded) -> None:
    case = recorded_case("fedface")
    for view in (PLAIN, SECURE_SUM):
        found = embedding_recovery(case, view, drawn())
        assert found is not None and found.details["median_cosine"] > 0.9
    assert embedding_recovery(recorded_case("feduv"), PLAIN, drawn()) is None


def test_a_choir_hides_its_voices_only_in_the_sum(recorded_case: Recorded) -> None:
    case = recorded_case("chorus", choir=8)
    plain, summed = (embedding_recovery(case, view, drawn()) for view in (PLAIN, SECURE_SUM))
    assert plain is not None and summed is not None
    assert plain.success == 1 and plain.details["median_cosine"] > 0.999
    assert summed.details["median_cosine"] < plain.details["median_cosine"]


def test_fedfv_is_solved_by_a_client_from_its_broadcasts(recorded_case: Recorded) -> None:
    case = recorded_case("fedfv", rounds=12, clients=24, cohort=16, equivalents=60)
    found = embedding_recovery(case, SECURE_SUM, drawn())
    assert found is not None and found.details["median_cosine"] > 0.9


@pytest.mark.parametrize(("name", "client"), [("random_targets", 0), ("fedavg/shared-head", 3)])
def test_a_simulated_client_sends_what_a_real_one_does(name: str, client: int, recorded_case: Recorded) -> None:
    """With the true photographs the attacker's simulation is the client's own round, two steps of it."""
    case = recorded_case(name)
    training = Training(rate=0.05, batch=1, images_per_round=2, flip=False)
    round_ = case.further(training)
    rows = torch.randperm(6, generator=_batches(case, round_.number, client))[:2]
    images = (case.clients[client].images[rows].float() - 127.5) / 128
    sent = simulated(case, client, round_.broadcasts[client], images, torch.zeros(32), None, 0.05)
    for leaf_name, leaf in round_.uploads[client].backbone.parameters.items():
        torch.testing.assert_close(0.05 * sent[leaf_name], leaf, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("name", ["random_targets", "random_targets/secret"])
def test_inversion_comes_nearer_to_the_photograph_than_to_strangers(name: str, recorded_case: Recorded) -> None:
    faces = synthetic.draw_faceset(0, 16, 6, 16, seed=3, conditions=synthetic.EASY)
    strangers = synthetic.draw_faceset(100, 40, 1, 16, seed=3, conditions=synthetic.EASY)
    case = recorded_case(name, rounds=1, faces=faces)
    training = Training(rate=0.05, batch=1, images_per_round=1, flip=False)
    round_ = case.further(training)
    photograph = case.clients[0].images[torch.randperm(6, generator=_batches(case, round_.number))[:1]]
    picture = as_pixels(inverted(case, round_, [(0, round_.uploads[0])], training, 200, drawn())[0])
    others = ssim(picture.expand(40, -1, -1, -1), strangers.images)
    assert float(ssim(picture, photograph)) > float(others.quantile(0.9))


@pytest.mark.parametrize("name", ["random_targets", "feduv/secret", "fedavg/shared-head", "fedaws", "chorus"])
def test_inversion_and_decoder_are_judged_and_shown(name: str, recorded_case: Recorded) -> None:
    case = recorded_case(name)
    judge = Judge(case.net, case.net.fresh(5))
    both = gradient_inversion(case, [PLAIN, SECURE_SUM], drawn(), judge, targets=2, iterations=4)
    assert [found.view for found in both] == ["plain", "secure sum"]
    for found in both:
        assert found.pictures is not None and found.pictures.shape == (2, 2, 3, 16, 16)
        assert found.chance == 0.05 and "pictures" not in found.as_dict()
    decoder = trained_decoder(case.net, case.last.backbone, case.public, epochs=1, seed=0)
    decoded = template_inversion(case, SECURE_SUM, drawn(), judge, decoder)
    assert decoded.details["people"] == 16 and decoded.pictures is not None


def test_a_method_that_sends_nothing_is_not_inverted(recorded_case: Recorded) -> None:
    """With one person a private head has one class, and the update is zero."""
    case = recorded_case("fedavg/private-head", scale=0.0)
    quiet = gradient_inversion(case, [PLAIN], drawn(), Judge(case.net, case.net.fresh(5)), iterations=4)
    assert quiet == []


@pytest.mark.parametrize(("size", "side"), [(16, 4), (32, 4), (112, 7), (96, 6)])
def test_the_decoder_draws_every_size(size: int, side: int) -> None:
    decoder = Decoder(8, size)
    assert decoder.side == side and decoder(torch.zeros(2, 8)).shape == (2, 3, size, size)


def test_membership_is_found_plain_and_needs_photographs_that_were_left_out(recorded_case: Recorded) -> None:
    case = recorded_case("random_targets")
    image, person = image_membership(case, PLAIN, drawn()), person_membership(case, PLAIN, drawn())
    assert image is not None and image.details["people"] == 16 * 4 and image.details["auc"] > 0.8
    assert person is not None and person.details["auc"] > 0.9
    everything = recorded_case("random_targets")
    everything = Case(**{**everything.__dict__, "training": Training(rate=0.05)})
    assert image_membership(everything, PLAIN, drawn()) is None


def test_one_picture_for_all_says_nothing_of_who_is_who(recorded_case: Recorded) -> None:
    """People's own photographs are nearest to them; one face for everybody is before others in half of all pairs."""
    case = recorded_case("random_targets", rounds=1)
    judge, people = Judge(case.net, case.net.fresh(5)), [case.clients[client].images for client in range(4)]
    assert judge.own_before_others(people, people) == 1.0
    assert judge.own_before_others([people[2]] * 4, people) == 0.5  # 3 + 2 + 1 + 0 of 12, in some order


def test_within_people_by_hand() -> None:
    """Of one person one of two trained photographs is above the other one, of the second person the only one: ½ and 1.

    The error of their mean ¾ is their standard deviation, √⅛, over √2: ¼.
    """
    found = within_people([torch.tensor([0.5]), torch.tensor([0.0])], [torch.tensor([0.9, 0.1]), torch.tensor([1.0])])
    assert found == pytest.approx({"same_person_auc": 0.75, "same_person_auc_error": 0.25})


def test_likeness_by_hand() -> None:
    """Equal images have SSIM 1; a mirror image counts; total variation of stripes one pixel wide is their height."""
    image = torch.randint(0, 255, (1, 3, 16, 16), generator=drawn(), dtype=torch.uint8)
    assert float(ssim(image, image)) == pytest.approx(1) and abs(float(ssim(image, 255 - image))) < 1
    others = torch.cat([255 - image, image.flip(-1)])
    assert nearest_ssim(image, others) == (pytest.approx(1), 0, 1)
    stripes = torch.tensor([0.0, 1.0]).repeat(8).expand(1, 3, 16, 16)
    assert float(total_variation(stripes)) == 1
    assert as_pixels(torch.tensor([-2.0, 0.0, 2.0])).tolist() == [0, 128, 255]


def _batches(case: Case, round_: int, client: int = 0) -> torch.Generator:
    return seeding.generator(case.seed, "batches", round_, client)


def test_what_any_sum_tells_by_hand() -> None:
    """At right angles a sum of 4 has cosine 1/2 to each; of people who are all alike it has 1."""
    assert any_sum_tells(torch.eye(8), 4, drawn()) == 0
    assert any_sum_tells(torch.ones(8, 4) / 2, 4, drawn()) == 1


def test_luck_measured_on_few_strangers_is_given_room() -> None:
    """5 % of 100 strangers has an interval up to 11 %: luck may explain 2 of 16, and does not explain 12."""
    few, many = (counted("x", "y", found, 16, 0.05, {}, strangers=100) for found in (2, 12))
    assert few.chance_high == pytest.approx(0.112, abs=1e-3)
    assert few.at_chance and not many.at_chance
