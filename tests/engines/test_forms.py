"""Which engine and which of its forms runs a method, and the words for why."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coalface.algorithms import METHODS
from coalface.config import method_named
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.engines.forms import why_not, why_several_steps
from coalface.engines.sequential import Sequential
from coalface.engines.stacked import Stacked
from coalface.local import Training
from coalface.method import Method
from coalface.stages import Stages

FACES = [name for name, kind in METHODS.items() if kind.world == "faces"]
ONE_STEP, STEPS = Training(), Training(batch=2, epochs=2)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("fedavg/private-head", {"normalisation": "local"}), ("local_only", {"batch_statistics": True})],
)
def test_what_cannot_be_stacked_is_refused_in_words(name: str, settings: dict[str, Any]) -> None:
    refusal = why_not(method_named(name)(**settings))
    assert refusal is not None and "each client's own batch" in refusal


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_faces_can_be_stacked_as_it_comes(name: str) -> None:
    """Those of recordings train batch norm, by each centre's own batches."""
    assert (why_not(method_named(name)()) is None) == (name in FACES)


@pytest.mark.parametrize(
    ("name", "training", "max_norm", "reason"),
    [
        ("local_only", Training(), 0.0, "models of their own"),
        ("fedavg/private-head", Training(batch=2), 0.0, "more than one step"),
        ("fedavg/private-head", Training(epochs=2), 0.0, "more than one step"),
        ("fedavg/private-head", Training(optimiser="adam"), 0.0, "adam is not linear"),
        ("fedavg/private-head", Training(), 1.0, "each client's own update"),
    ],
)
def test_what_one_backward_pass_cannot_do_is_said_in_words(
    name: str, training: Training, max_norm: float, reason: str
) -> None:
    refusal = why_several_steps(method_named(name)(), training, max_images=4, max_norm=max_norm)
    assert refusal is not None and reason in refusal


def test_one_plain_step_is_one_backward_pass() -> None:
    method = method_named("fedavg/private-head")()
    assert why_several_steps(method, Training(), 4, 0.0) is None
    assert why_several_steps(method, Training(batch=4, momentum=0.9), 4, 0.0) is None
    assert why_several_steps(method, Training(batch=4, images_per_round=4), 100, 0.0) is None


IN_TURN, ON_CORES = "one client after another", "clients on cores of their own"


def chosen(asked: str, method: Method, training: Training, people: Population) -> tuple[type, str]:
    stages: Any = SimpleNamespace(engine=asked)
    stage: Any = SimpleNamespace(private=None)
    engine, form = Stages.chosen_engine(stages, method, people, stage, training, 0.0)
    return type(engine), form


def test_auto_stacks_what_can_be_stacked(population: Population) -> None:
    method, alone = method_named("fedface")(), replace(population, clients=((0,),))
    by_batch = method_named("fedavg/private-head")(normalisation="local")
    in_turn, on_cores = (f"{how}: a local round is more than one step" for how in (IN_TURN, ON_CORES))
    assert chosen("auto", method, ONE_STEP, population) == (Stacked, "one step for many clients")
    assert chosen("auto", method, STEPS, population) == (Stacked, in_turn)
    torch.set_num_threads(2)
    assert chosen("auto", method, STEPS, population) == (Stacked, on_cores)
    torch.set_num_threads(1)
    assert chosen("sequential", method, STEPS, population) == (Sequential, "one client after another: asked for")
    assert chosen("auto", method, STEPS, alone) == (Sequential, "one client")
    assert chosen("auto", by_batch, STEPS, population)[0] is Sequential
    own = "one client after another: each trains a network of its own too"
    assert chosen("auto", method_named("fedfs")(), ONE_STEP, population) == (Stacked, own)


def test_on_a_cpu_one_pass_is_for_clients_that_do_not_fill_it() -> None:
    """Images of 200 × 200 pixels: five are 200,000."""
    images = torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(12, 3, 200, 200)
    people = Population(FaceSet(images, torch.tensor([0, 6, 12])), ((0,), (1,)))
    for drawn, form in {
        5: "one step for many clients",
        0: "one client after another: 6 images a client keep a CPU busy",
    }.items():
        assert chosen("auto", method_named("fedface")(), replace(ONE_STEP, images_per_round=drawn), people)[1] == form
