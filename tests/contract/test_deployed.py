"""The Flower engine, every method: uploads, private states and the server's state are the sequential engine's, bit for
bit, over real sockets with TLS and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coalface import tree
from coalface.algorithms import METHODS
from coalface.algorithms.chorus import Chorus
from coalface.cli import main
from coalface.config import method_named
from coalface.data.centres import centres
from coalface.federation import Rounds
from coalface.local import Training
from coalface.privacy.secagg.rules import Rules
from coalface.privacy.secure_sum import SecureSums
from coalface.privacy.settings import Privacy
from coalface.private_store import PrivateStore
from coalface.state_table import StateTable
from tests.conftest import SmallRun, noise_population, noise_recordings, small_net, small_population

pytest.importorskip("flwr")

from tests.engines.flower_world import Deployed, Nodes, nodes

TRAINING = Training(rate=0.05, batch=2, momentum=0.9)


RECORDINGS = [noise_recordings(seed) for seed in range(5)]
DEPLOYABLE = [name for name in METHODS if not name.startswith("all")]
FEDERATED = [name for name in DEPLOYABLE if name != "centralised"]  # one client has nobody to hide among
QUICK = ("fedavg/shared-head", "chorus", "fedpad")  # weighed, grouped, and of a centre; the others take minutes
RULES = {"min_cohort": 4, "threshold": 0.6}
SECURE = Privacy(secure_sum=True, value_bound=64.0, most_images=8, **RULES)


@pytest.fixture(scope="module")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("phones"), noise_population()) as made:
        for name in made.names:
            made.start(name)
        yield made


@pytest.fixture(scope="module")
def shared_phones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Each with two people."""
    with nodes(tmp_path_factory.mktemp("shared"), noise_population(identities_each=2)) as made:
        for name in made.names:
            made.start(name)
        yield made


@pytest.fixture(scope="module")
def data_centres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("centres"), centres(RECORDINGS), RECORDINGS) as made:
        for name in made.names:
            made.start(name)
        yield made


@pytest.fixture
def clients(name: str, request: pytest.FixtureRequest) -> Nodes:
    phones = "phones" if METHODS[name].one_identity else "shared_phones"
    which = phones if METHODS[name].world == "faces" else "data_centres"
    found: Nodes = request.getfixturevalue(which)
    return found


def test_anchors_reach_clients_that_hold_no_public_face(phones: Nodes, tmp_path: Path) -> None:
    """A client works out the shapes of what it will be sent by itself, and refuses others."""
    method, people, rules = Chorus(choir=4, anchors=2), small_population("chorus"), Rounds(rounds=2, quorum=1.0)
    expected = SmallRun(method, small_net("chorus"), people, tmp_path / "one", TRAINING).run(rules)
    deployed = Deployed(phones, method, people, tmp_path / "many", TRAINING, rules)
    assert tree.sha256(deployed.run(rules)) == tree.sha256(expected) and expected.anchors is not None


@pytest.mark.parametrize("name", DEPLOYABLE)
def test_flower_equals_sequential(name: str, clients: Nodes, tmp_path: Path) -> None:
    people, rules = small_population(name), Rounds(rounds=2, cohort=4, quorum=1.0)
    reference = SmallRun(method_named(name)(), small_net(name), people, tmp_path / "one", TRAINING)
    expected = reference.run(rules)
    deployed = Deployed(clients, method_named(name)(), people, tmp_path / "many", TRAINING, rules)
    assert tree.sha256(deployed.run(rules)) == tree.sha256(expected)
    ledgers = [
        [(row["round"], row["client"], row["outcome"]) for row in run.stage.ledger()] for run in (reference, deployed)
    ]
    assert ledgers[0] == ledgers[1] and all(outcome == "counted" for _, _, outcome in ledgers[0])
    assert clients.link.held() == 0  # nothing stays behind
    if reference.method.types.collected is None:
        sizes = [[(row["bytes_up"], row["bytes_down"]) for row in run.stage.ledger()] for run in (reference, deployed)]
        assert sizes[0] == sizes[1]
        assert_private_states_are_at_home(reference, deployed, clients)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.deploy) for name in FEDERATED],
)
def test_the_secure_sum_over_flower_is_the_simulated_one(name: str, clients: Nodes, tmp_path: Path) -> None:
    """Bit for bit, whatever the masks; and what the server wrote down of anybody is the same too."""
    people, rules = small_population(name), Rounds(rounds=2, quorum=0.5)
    training = replace(TRAINING, rate=1e-4)
    reference = SmallRun(method_named(name)(), small_net(name), people, tmp_path / "one", training)
    reference.sums = SecureSums(rules, Rules(**RULES), SECURE.value_bound, SECURE.most_images)
    expected = reference.run(rules)
    deployed = Deployed(clients, method_named(name)(), people, tmp_path / "many", training, rules, SECURE)
    assert tree.sha256(deployed.run(rules)) == tree.sha256(expected)
    told = [[(row["client"], row["outcome"]) for row in run.stage.ledger()] for run in (reference, deployed)]
    assert told[0] == told[1] and all(outcome == "counted" for _, outcome in told[0])
    assert clients.link.held() == 0
    assert_private_states_are_at_home(reference, deployed, clients)


def assert_private_states_are_at_home(reference: SmallRun, deployed: Deployed, clients: Nodes) -> None:
    kind = reference.method.types.private
    for client in reference.stage.private.clients():
        home = clients.folder / clients.names[client] / "state" / deployed.federation.read_text() / "private"
        kept = PrivateStore(home, kind, torch.device("cpu")).load(client, 99)
        assert tree.sha256(kept) == tree.sha256(reference.stage.private.load(client, 99))
    table = StateTable(deployed.stage.folder / "private")
    keys = [(client, made) for client in table.clients() for made in table.rounds_of(client)]
    at_server = [leaf for key in keys for leaf in table.read(key).values()]
    assert (kind is not None) == bool(at_server)
    assert all(leaf.numel() == 1 for leaf in at_server)  # a round's number, and no more


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["all"], "all is for recordings that are in one place already"),
        (["fedavg/shared-head", "--set", "privacy.secure_sum=true"], "set privacy.most_images"),
    ],
)
def test_what_makes_no_sense_between_machines_is_refused_by_name(
    asked: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [f"--{what}={tmp_path / what}" for what in ("tls-dir", "clients", "out")]
    assert main(["serve", *asked, *paths]) == 2
    assert why in capsys.readouterr().err
