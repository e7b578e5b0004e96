"""How much a server's terms may ask of a client: more than a federation needs, and nothing that never ends.

A client makes room and loops by these numbers, so they are checked before anything else is done with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coalface.config import ConfigError

MOST_CLASSES = 10_000_000  # the shapes of a broadcast may grow with them
MOST_EMBEDDING = 8_192
MOST_WIDTH = 1_024  # channels of a detector's first layer
MOST_PIXELS = 1_024  # of an image's side
MOST_EPOCHS = 1_000  # in one round
MOST_IMAGES = 1_000_000  # of a step, of a round, of a client
MOST_OF_A_METHOD = 100_000  # each whole number among a method's settings: mixtures, people, bits
MOST_NUMBERS = 1_000_000_000  # in a network's weights, and in everybody's class embeddings: 4 GB each

BOUNDS = {
    "embedding": (1, MOST_EMBEDDING),
    "width": (0, MOST_WIDTH),
    "size": (1, MOST_PIXELS),
    "training.epochs": (1, MOST_EPOCHS),
    "training.batch": (0, MOST_IMAGES),
    "training.images_per_round": (0, MOST_IMAGES),
    "secure.most_images": (0, MOST_IMAGES),
}
OF_A_METHOD = (0, MOST_OF_A_METHOD)
OTHERS = (0, MOST_CLASSES)  # they count clients and identities


def check_bounds(terms: dict[str, Any]) -> None:
    """Every whole number of terms, which are plain values here; a ConfigError names the one that is out of bounds."""
    for name, value in _whole_numbers(terms):
        least, most = BOUNDS.get(name, OF_A_METHOD if name.startswith("method.") else OTHERS)
        if not least <= value <= most:
            raise ConfigError(f"{name} is {value}, and a client takes part with {least} to {most}")
    classes, embedding, parts = terms["classes"], terms["embedding"], terms["method"].get("parts") or 1
    check_numbers(f"{classes} class embeddings of {embedding}, in parts of {parts},", classes * embedding * parts)


def check_numbers(what: str, numbers: int) -> None:
    """Each for itself may be in bounds, and their product is what takes memory."""
    if numbers > MOST_NUMBERS:
        raise ConfigError(f"{what} are {numbers} numbers, and a client makes room for {MOST_NUMBERS}")


def _whole_numbers(values: dict[str, Any], at: str = "") -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _whole_numbers(value, f"{at}{name}.")
        elif isinstance(value, int):
            yield f"{at}{name}", value
