"""Differential privacy between machines: who clips, whose noise it is, and what a client insists on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

from coalface import tree
from coalface.config import ConfigError, method_named
from coalface.federation import Rounds
from coalface.local import Training
from coalface.offer import DECLINED
from coalface.privacy.account import Account
from coalface.privacy.protect import protected
from coalface.privacy.settings import DP, Privacy
from coalface.registry import InsistedNoise
from tests.conftest import SmallRun, noise_population, small_net
from tests.engines.flower_world import Deployed, Nodes, nodes

PEOPLE = noise_population(clients=6)
TRAINING = Training(rate=0.05, batch=2)
ROUNDS = Rounds(rounds=1, quorum=0.5, attempts=1)
METHOD = "fedavg/positive-only"
CLIP, Z = 0.5, 2.0
CENTRAL = Privacy(dp=DP(noise=Z, clip=CLIP, delta=1e-3))
SHARES = replace(
    CENTRAL, secure_sum=True, min_cohort=4, threshold=0.6, dp=replace(CENTRAL.dp, where="distributed")
)  # four of six can unmask, so that four shares are the whole noise


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("six"), PEOPLE) as made:
        for name in made.names:
            made.start(name)
        yield made


def parameters(server: object) -> torch.Tensor:
    return torch.cat([leaf.flatten() for leaf in tree.leaves(server).values()])


def quiet(folder: Path) -> torch.Tensor:
    """The same round here, clipped, with next to no noise."""
    run = SmallRun(method_named(METHOD)(), small_net(METHOD), PEOPLE, folder, TRAINING)
    run.sums = protected(Privacy(dp=replace(CENTRAL.dp, noise=1e-9)), run.method, PEOPLE, ROUNDS)
    return parameters(run.run(ROUNDS))


@pytest.mark.parametrize(("privacy", "shares"), [(CENTRAL, 1.0), (SHARES, 6 / 4)])
def test_the_sum_carries_the_noise_that_was_agreed(privacy: Privacy, shares: float, six: Nodes, tmp_path: Path) -> None:
    """z · clip on the sum of six, a sixth of it on their mean; shares of six where four would do are √(6/4) as much."""
    run = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path / "many", TRAINING, ROUNDS, privacy)
    noise = parameters(run.run(ROUNDS)) - quiet(tmp_path / "one")
    assert float(noise.std()) == pytest.approx(shares**0.5 * Z * CLIP / 6, rel=0.15)
    assert abs(float(noise.mean())) < 5 * float(noise.std()) / len(noise) ** 0.5
    account = Account(Z, 1e-3, 6, 6, sample_is_secret=False)
    account.charge(range(6))
    [told] = [row["privacy"] for row in run.stage.rounds()]
    assert told["epsilon"] == pytest.approx(account.readers())
    assert ("epsilon_server" in told) is (privacy is SHARES)
    again = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path / "again", TRAINING, ROUNDS, privacy)
    assert not torch.equal(parameters(again.run(ROUNDS)), noise + quiet(tmp_path / "two"))  # it is nobody's seed's


@pytest.mark.parametrize(
    ("insisted", "privacy", "counted"),
    [
        (InsistedNoise(least=Z), CENTRAL, True),
        (InsistedNoise(least=Z + 0.1), CENTRAL, False),
        (InsistedNoise(least=Z, in_shares=True), CENTRAL, False),
        (InsistedNoise(least=0.1), Privacy(), False),
    ],
)
def test_a_client_declines_less_noise_than_it_insists_on(
    insisted: InsistedNoise, privacy: Privacy, counted: bool, six: Nodes, tmp_path: Path
) -> None:
    six.stop("client5")
    six.start("client5", noise=insisted)
    run = Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path, TRAINING, ROUNDS, privacy)
    run.run(ROUNDS)
    six.stop("client5")
    six.start("client5")
    outcome = next(row["outcome"] for row in run.stage.ledger() if row["client"] == 5)
    assert outcome == ("counted" if counted else f"declined: {DECLINED['noise']}")


def test_what_was_told_is_written_down_before_it_is_used(six: Nodes, tmp_path: Path) -> None:
    """A server that forgets its rounds still knows what they told: a run that begins anew here is charged on top."""
    method = method_named(METHOD)()
    run = Deployed(six, method, PEOPLE, tmp_path / "run", TRAINING, ROUNDS, CENTRAL)
    run.run(ROUNDS)
    told = tmp_path / "run" / "told.jsonl"
    assert [json.loads(line) for line in told.read_text().splitlines()] == [
        {"round": 1, "attempt": 0, "clients": list(range(6))}
    ]
    for file in ("rounds.jsonl", "ledger.jsonl"):
        (tmp_path / "run" / file).unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    again = Deployed(six, method, PEOPLE, tmp_path / "run", TRAINING, ROUNDS, CENTRAL)
    again.run(ROUNDS)
    account = Account(Z, 1e-3, 6, 6, sample_is_secret=False)
    for _ in range(2):
        account.charge(range(6))
    assert again.stage.rounds()[-1]["privacy"]["epsilon"] == pytest.approx(account.readers())


def test_whom_a_server_calls_under_noise_nobody_can_work_out(six: Nodes, tmp_path: Path) -> None:
    """ε for those who get the model counts on it; and a round that is told again is another draw, and is charged so."""

    def seed(privacy: Privacy) -> int:
        return Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path / "run", TRAINING, ROUNDS, privacy).seed

    assert seed(Privacy()) == 0  # the run's own
    first = seed(CENTRAL)
    assert first.bit_length() == 256 and first != seed(CENTRAL)


def test_a_server_does_not_begin_where_clients_would_refuse_by_their_updates(six: Nodes, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"value_bound is 0\.25, and clipped updates may have numbers up to 1\.001"):
        Deployed(six, method_named(METHOD)(), PEOPLE, tmp_path, TRAINING, ROUNDS, replace(SHARES, value_bound=0.25))
