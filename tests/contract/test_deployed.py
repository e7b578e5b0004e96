"""The Flower engine, every method: uploads, private states and the server's state are the sequential engine's, bit for
bit, over real sockets with TLS and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from coalface import tree
from coalface.algorithms import METHODS
from coalface.cli import main
from coalface.config import method_named
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import Net
from coalface.private_store import PrivateStore
from tests.conftest import SmallRun, noise_population

pytest.importorskip("flwr")

from tests.engines.flower_world import Deployed, Nodes, nodes

TRAINING = Training(rate=0.05, batch=2, momentum=0.9)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("eight"), noise_population()) as made:
        for name in made.names:
            made.start(name)
        yield made


DEPLOYABLE = [name for name, kind in METHODS.items() if kind.world == "faces" and not kind.holds_public]


@pytest.mark.parametrize("name", DEPLOYABLE)
def test_flower_equals_sequential(name: str, eight: Nodes, tmp_path: Path) -> None:
    people, rules = noise_population(), Rounds(rounds=2, cohort=4, quorum=1.0)
    reference = SmallRun(method_named(name)(), Net("tiny", embedding=8, size=16), people, tmp_path / "one", TRAINING)
    expected = reference.run(rules)
    deployed = Deployed(eight, method_named(name)(), people, tmp_path / "many", TRAINING, rules)
    assert tree.sha256(deployed.run(rules)) == tree.sha256(expected)
    ledgers = [
        [(row["round"], row["client"], row["outcome"]) for row in run.stage.ledger()] for run in (reference, deployed)
    ]
    assert ledgers[0] == ledgers[1] and all(outcome == "counted" for _, _, outcome in ledgers[0])
    assert eight.link.held() == 0  # nothing stays behind
    if reference.method.types.collected is None:
        sizes = [[(row["bytes_up"], row["bytes_down"]) for row in run.stage.ledger()] for run in (reference, deployed)]
        assert sizes[0] == sizes[1]
        assert_private_states_are_at_home(reference, deployed, eight)


def assert_private_states_are_at_home(reference: SmallRun, deployed: Deployed, clients: Nodes) -> None:
    kind = reference.method.types.private
    for client in reference.stage.private.clients():
        home = clients.folder / clients.names[client] / "state" / deployed.federation.read_text() / "private"
        kept = PrivateStore(home, kind, torch.device("cpu")).load(client, 99)
        assert tree.sha256(kept) == tree.sha256(reference.stage.private.load(client, 99))
    files = deployed.stage.folder.rglob("private/*.safetensors")
    at_server = [leaf for file in files for leaf in load_file(file).values()]
    assert (kind is not None) == bool(at_server)
    assert all(leaf.numel() == 1 for leaf in at_server)  # a round's number, and no more


@pytest.mark.parametrize(("name", "why"), [("fedfr", "hold public faces"), ("fedpad", "detects attacks")])
def test_what_cannot_be_deployed_is_refused_by_name(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [f"--{what}={tmp_path / what}" for what in ("tls-dir", "clients", "out")]
    assert main(["serve", name, *paths]) == 2
    told = capsys.readouterr().err
    assert name in told and why in told
