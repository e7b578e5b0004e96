"""The method that CONTRIBUTING.md shows is a method: it runs, it keeps the contract, and it is what the page says."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from coalface import tree, wire
from coalface.algorithms import METHODS
from coalface.algorithms.fedavg import PrivateHead
from coalface.data.population import Population
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import Net
from tests.conftest import SmallRun, noise_population, small_run
from tests.contract import test_engines, test_methods

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
MODULE = "coalface.algorithms.fedstep"
CHECKS = [check for name, check in vars(test_methods).items() if name.startswith("test_")]


@pytest.fixture(autouse=True)
def fedstep(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The code block as a file, imported, and in the table of methods under its name."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    file = tmp_path_factory.mktemp("contributed") / "fedstep.py"
    file.write_text(block)
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, MODULE, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, "fedstep", module.FedStep)
    return module


def two_rounds(method: Any, net: Net, folder: Path) -> tuple[Any, SmallRun]:
    run = SmallRun(method, net, noise_population(clients=4, identities_each=2), folder, Training(rate=0.05, batch=2))
    return run.run(Rounds(rounds=2)), run


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Any, net: Net, population: Population, tmp_path: Path) -> None:
    offered = {"name": "fedstep", "net": net, "population": population, "tmp_path": tmp_path}
    wanted = set(inspect.signature(check).parameters)
    if "run" in wanted:
        offered["run"] = small_run("fedstep", net, population, tmp_path)
    check(**{name: offered[name] for name in wanted})


def test_it_can_be_stacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_engines.test_one_step_stacked_equals_sequential("fedstep", "tiny", True, tmp_path, monkeypatch)


def test_it_learns_in_two_rounds(fedstep: Any, net: Net, tmp_path: Path) -> None:
    _, run = two_rounds(fedstep.FedStep(), net, tmp_path)
    first, second = (row["losses"]["loss"] for row in run.stage.rounds())
    assert 0 < second < first


def test_with_a_share_of_one_it_is_fedavg(fedstep: Any, net: Net, tmp_path: Path) -> None:
    whole, _ = two_rounds(fedstep.FedStep(share=1.0), net, tmp_path / "fedstep")
    fedavg, _ = two_rounds(PrivateHead(), net, tmp_path / "fedavg")
    assert tree.sha256(whole.backbone) == tree.sha256(fedavg.backbone)
    half, _ = two_rounds(fedstep.FedStep(share=0.5), net, tmp_path / "half")
    assert tree.sha256(half.backbone) != tree.sha256(fedavg.backbone)


def test_it_refuses_a_bad_share_in_words(fedstep: Any) -> None:
    with pytest.raises(ValueError, match="not 0"):
        fedstep.FedStep(share=0.0)


def test_the_page_names_every_mark_that_a_field_can_have() -> None:
    text = PAGE.read_text()
    marks = [name for name in vars(wire) if getattr(getattr(wire, name), "__metadata__", ())]
    assert len(marks) == len(wire.Seen)
    assert all(f"`{mark}`" in text for mark in marks)
