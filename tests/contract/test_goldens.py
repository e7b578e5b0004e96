"""Losses of a small fixed run of every method, as plain text: what should not alter results must not alter these.

In double precision: processors of other kinds, which round otherwise, give the same digits.

After a change that should: ``python -m tests.contract.test_goldens`` writes them anew; the diff is part of the review.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from coalface import models
from coalface.algorithms import METHODS
from coalface.federation import Rounds
from tests import conftest

FOLDER = Path(__file__).parents[1] / "goldens"


STEADY = {"batch": 6, "rate": 0.01, "momentum": 0.0}  # for networks with batch norm: of two images it is chaotic


def losses(name: str, folder: Path) -> list[float]:
    steady = {} if METHODS[name].world == "faces" else STEADY
    run = conftest.small_run(name, conftest.small_net(name), conftest.small_population(name), folder, **steady)
    run.run(Rounds(rounds=4, cohort=4))
    return [row["losses"]["loss"] for row in run.stage.rounds()]


def golden(name: str) -> Path:
    return FOLDER / f"{name.replace('/', '.')}.txt"


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", METHODS)
def test_losses_are_as_they_were(name: str, tmp_path: Path) -> None:
    expected = [float(line.split()[1]) for line in golden(name).read_text().splitlines()]
    assert losses(name, tmp_path) == pytest.approx(expected, rel=1e-6, abs=1e-8)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    models.MODELS["tiny"] = conftest.tiny
    for method in METHODS:
        with tempfile.TemporaryDirectory() as scratch:
            lines = [f"{round_} {loss:.8f}" for round_, loss in enumerate(losses(method, Path(scratch)), start=1)]
        golden(method).write_text("\n".join(lines) + "\n")
