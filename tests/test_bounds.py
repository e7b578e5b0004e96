"""Terms that ask for more than a client gives are refused before anything is allocated or looped over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coalface.algorithms import METHODS
from coalface.config import ConfigError
from coalface.local import Training
from coalface.terms import PROTOCOL, SecureTerms, Terms

PLAIN = Terms(PROTOCOL, METHODS["fedavg/positive-only"](), "feduv_cnn", 8, 0, 32, Training(), 3, 3, 2, 2, 1)
DETECTOR = replace(PLAIN, method=METHODS["fedpad"](), model="fedgpad", embedding=1, width=64, size=256)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"embedding": 10**9}, "embedding is 1000000000, and a client takes part with 1 to 8192"),
        ({"embedding": 0}, "embedding is 0,"),
        ({"size": 100_000}, "size is 100000, and a client takes part with 1 to 1024"),
        ({"size": -1}, "size is -1,"),
        ({"width": 1025}, "width is 1025, and a client takes part with 0 to 1024"),
        ({"classes": 10_000_001}, "classes is 10000001, and a client takes part with 0 to 10000000"),
        ({"training": Training(epochs=10**12)}, "training.epochs is 1000000000000, and .* 1 to 1000$"),
        ({"training": Training(batch=10**30)}, "training.batch is 1000"),
        ({"training": Training(images_per_round=10**7)}, "training.images_per_round is 10000000,"),
        ({"secure": SecureTerms(min_cohort=10**12)}, "secure.min_cohort is 1000000000000,"),
        ({"secure": SecureTerms(16, most_images=10**9)}, "secure.most_images is 1000000000,"),
        ({"method": METHODS["fedfv"](equivalents=10**9)}, "method.equivalents is 1000000000, and .* 0 to 100000$"),
        # 2 million · 512 is over 1,000 million; so is 100,000 · 512 · 20, of chords in 20 parts
        ({"classes": 2_000_000, "embedding": 512}, "2000000 class embeddings of 512, .* are 1024000000 numbers"),
        ({"method": METHODS["chorus"](parts=20), "classes": 100_000, "embedding": 512}, "parts of 20, are 1024000000"),
    ],
)  # fmt: skip
def test_terms_out_of_bounds_are_refused_by_name_value_and_bound(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Terms.from_json(replace(PLAIN, **changes).to_json())


@pytest.mark.parametrize(
    "terms",
    [
        PLAIN,
        DETECTOR,
        replace(PLAIN, embedding=512, clients=1_000_000, classes=1_000_000),
        replace(PLAIN, training=Training(epochs=1000, batch=1_000_000), size=1024),
        *(replace(PLAIN, method=METHODS[name]()) for name in METHODS),
    ],
)
def test_terms_in_bounds_are_read(terms: Terms) -> None:
    assert Terms.from_json(terms.to_json()) == terms


def test_a_network_with_too_many_weights_is_not_made() -> None:
    """fc of iresnet18 takes 512 · (1024 / 16)² numbers to 1024: 2,147 million weights, in bounds each."""
    terms = Terms.from_json(replace(PLAIN, model="iresnet18", size=1024, embedding=1024).to_json())
    with pytest.raises(ConfigError, match=r"the weights of iresnet18.* are 21\d{8} numbers, and .* for 1000000000"):
        terms.net()
    assert replace(PLAIN, model="iresnet18", size=112, embedding=512).net().embedding == 512


def test_a_number_that_no_float_holds_is_terms_that_cannot_be_read() -> None:
    text = PLAIN.to_json().replace('"rate": 0.05', f'"rate": 1{"0" * 400}')
    with pytest.raises(ConfigError, match="terms that cannot be read"):
        Terms.from_json(text)
