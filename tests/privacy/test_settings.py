"""What these settings cannot protect is refused by name, and the privacy page lists it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coalface.algorithms import METHODS
from coalface.config import method_named
from coalface.privacy.settings import DP, Privacy

CENTRAL = Privacy(dp=DP(noise=4.0, clip=0.5, delta=1e-3))
DISTRIBUTED = Privacy(True, True, min_cohort=3, dp=DP(noise=1.0, where="distributed", delta=1e-3))


@pytest.mark.parametrize(
    ("privacy", "name", "says"),
    [
        (Privacy(require_secure_sum=True), "chorus", "the sums would be open"),
        (Privacy(True, True, min_cohort=3), "fedfv", "refuses fedfv: it reveals class_embedding"),
        (Privacy(True, True, min_cohort=3), "centralised", "refuses centralised: it reveals faces"),
        (Privacy(True, True, min_cohort=3), "fedavg/shared-head", "refuses fedavg/shared-head: a sum does not hide a "
         "client's part of head, as a row is moved by its own client"),
        (Privacy(True, True, min_cohort=3), "random_targets", "part of backbone, as a client's part points along"),
        (Privacy(True, True, min_cohort=3, dp=DP(noise=1.0)), "feduv", "part of code_head, .* privacy.dp.noise=1 or"),
        (replace(DISTRIBUTED, dp=replace(DISTRIBUTED.dp, noise=0.5)), "feduv", "client's part of code_head"),
        (Privacy(secure_sum=True), "chorus", "a cohort of 8 is under privacy.min_cohort=16"),
        (CENTRAL, "fedaws", "no ε holds for fedaws: it reveals class_embedding"),
        (CENTRAL, "local_only", "local_only sums nothing"),
        (CENTRAL, "chorus", "chorus sums in groups too: set privacy.dp.group_noise; or privacy.dp.summed_only=true"),
        (Privacy(dp=DP(noise=1.0, group_noise=1.0)), "fedavg/shared-head", "sums nothing in groups"),
        (Privacy(dp=DP(noise=1.0, delta=0.5)), "fedavg/shared-head", "set it below 0.12"),
    ],
)  # fmt: skip
def test_what_cannot_be_protected_is_refused_by_name(privacy: Privacy, name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        privacy.check(method_named(name)(), name, cohort=8, clients=8)


def test_the_page_lists_what_is_refused() -> None:
    """docs/privacy.md has a table of it; everything else is taken."""
    text = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
    rows = text.split("| refused | because |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    refused = set()
    for name in METHODS:
        try:
            Privacy(True, True, min_cohort=3).check(method_named(name)(), name, cohort=8, clients=8)
        except ValueError:
            refused.add(name)
    assert {name for row in rows for name in re.findall(r"`([\w/-]+)`", row.split("|")[1])} == refused
    assert {"random_targets/secret", "feduv/secret", "fedavg/private-head", "chorus"}.isdisjoint(refused)


def test_noise_of_the_clients_hides_what_a_sum_does_not() -> None:
    """One clip of it; the server's own noise comes after the server has seen the sum."""
    DISTRIBUTED.check(method_named("feduv")(), "feduv", cohort=8, clients=8)


def test_averaged_statistics_have_no_bound() -> None:
    method = method_named("fedavg/shared-head")(normalisation="average")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="set method.normalisation=frozen"):
        CENTRAL.check(method, "fedavg/shared-head", 8, 8)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Privacy(dp=DP(noise=1.0, where="distributed")), "needs secure_sum=true"),
        (lambda: DP(budget=1.0), "needs noise"),
        (lambda: DP(noise=1.0, clip=0.0), "above 0"),
        (lambda: DP(noise=1.0, budget=1.0, summed_only=True), "no ε"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
