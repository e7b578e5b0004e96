"""Clipping, noise and the account, by numbers that can be checked by hand or against dp-accounting itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coalface import tree, wire
from coalface.algorithms import chorus
from coalface.config import Run
from coalface.engines.engine import Reply, Task
from coalface.federation import QuorumError, Rounds
from coalface.gathering import Plain
from coalface.local import Training
from coalface.models.net import Net, Weights
from coalface.privacy.account import Account, combined
from coalface.privacy.dp import PrivateSums
from coalface.privacy.layout import UploadLayout
from coalface.privacy.noise import Noise, central, clip, discrete_gaussian, seeded
from coalface.privacy.protect import protected
from coalface.privacy.secagg.rules import Rules
from coalface.privacy.secure_sum import SecureSums
from coalface.privacy.settings import DP, Privacy
from coalface.store import Stage, StoreError
from coalface.wire import Count, Summed, SummedInGroup, sends
from tests.conftest import SmallRun, noise_population, small_run

EVERYBODY = Rounds(rounds=6)


@dataclass(frozen=True)
class Upload(wire.Upload):
    backbone: Summed[dict[str, Tensor]] = sends("change")
    head: Summed[Tensor] = sends("change")
    voice: SummedInGroup[Tensor] = sends("voice")
    images: Count = sends("images")


def upload(scale: float = 1.0) -> Upload:
    return Upload({"a": scale * torch.tensor([2.0, 0.0])}, scale * torch.tensor([1.0, 2.0]), torch.tensor([0.3]), 7)


# --- clipping ---------------------------------------------------------------------------------------------------------


def test_all_summed_fields_are_clipped_together_and_groups_apart() -> None:
    clipped, norm = clip(upload(), 1.5, 0.1)  # 4 + 1 + 4 = 3²: everything is halved
    assert norm == pytest.approx(3.0)
    assert clipped.backbone["a"].tolist() == [1.0, 0.0] and clipped.head.tolist() == [0.5, 1.0]  # type: ignore[attr-defined]
    assert clipped.voice.tolist() == pytest.approx([0.1])  # type: ignore[attr-defined]
    assert clipped.images == 1  # type: ignore[attr-defined]  # equal weights, and no count is told


def test_what_is_short_stays() -> None:
    clipped, _ = clip(upload(), 3.1, 1.0)
    assert clipped.head.tolist() == [1.0, 2.0] and clipped.voice.tolist() == pytest.approx([0.3])  # type: ignore[attr-defined]
    nothing, norm = clip(upload(0.0), 1.0, 1.0)
    assert norm == 0.0 and nothing.head.tolist() == [0.0, 0.0]  # type: ignore[attr-defined]


def test_norms_that_are_known_are_not_taken_again() -> None:
    known = wire.Known()
    wire.check(upload(), upload(), known=known)
    clipped, norm = clip(upload(), 1.5, 0.1, known)
    assert norm == pytest.approx(3.0) and clipped.head.tolist() == [0.5, 1.0]  # type: ignore[attr-defined]
    assert clipped.voice.tolist() == pytest.approx([0.1])  # type: ignore[attr-defined]


def test_a_long_backbone_does_not_shorten_a_voice() -> None:
    """Chorus's own upload: its class embedding has a clip of its own."""
    long = Weights({"w": torch.tensor([30.0, 40.0])}, {})
    sent = chorus.Upload(long, torch.tensor([[0.6, 0.8]]), images=3)
    clipped, norm = clip(sent, 5.0, 1.0)
    assert norm == 50 and clipped.backbone.parameters["w"].tolist() == pytest.approx([3.0, 4.0])  # type: ignore[attr-defined]
    assert clipped.chord.tolist()[0] == pytest.approx([0.6, 0.8])  # type: ignore[attr-defined]
    assert clip(sent, 5.0, 0.5)[0].chord.tolist()[0] == pytest.approx([0.3, 0.4])  # type: ignore[attr-defined]


# --- the account ------------------------------------------------------------------------------------------------------


def test_one_sum_is_the_gaussian_mechanism() -> None:
    """Replacing a user moves the sum by two clips: z = 2 is a Gaussian mechanism with σ = 1, of ε 4.377 at 1e-5."""
    account = Account(2.0, 1e-5, cohort=8, clients=8, sample_is_secret=True)
    account.charge(range(8))
    assert account.readers() == account.server() == pytest.approx(4.3772, abs=1e-4)
    for _ in range(3):
        account.charge(range(8))
    one = Account(1.0, 1e-5, 8, 8, True)  # four sums with noise 2 tell as much as one with noise 1
    one.charge(range(8))
    assert account.readers() == pytest.approx(one.readers())


def test_sampling_is_the_bound_of_the_rdp_accountant() -> None:
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    account = Account(2.0, 1e-5, cohort=100, clients=10_000, sample_is_secret=True)
    for round_ in range(60):
        account.charge(range(round_, round_ + 100))
    reference = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    reference.compose(SampledWithoutReplacementDpEvent(10_000, 100, GaussianDpEvent(1.0)), 60)
    assert account.readers() == pytest.approx(reference.get_epsilon(1e-5))
    assert account.server() > 5 * account.readers()  # client 59 was in sixty sums, and the server knows


def test_a_sample_that_shows_does_not_amplify() -> None:
    shown = Account(2.0, 1e-5, cohort=100, clients=10_000, sample_is_secret=False)
    for round_ in range(3):
        shown.charge(range(100 * round_, 100 * round_ + 100))
    assert shown.readers() == shown.server() == pytest.approx(4.3772, abs=1e-4)  # everybody was in one sum at most


def test_more_sampling_or_more_rounds_tell_more() -> None:
    epsilons = {}
    for cohort in (10, 20):
        account = Account(2.0, 1e-5, cohort, 1000, True)
        for round_ in range(50):
            account.charge((round_ * cohort + i) % 1000 for i in range(cohort))
            epsilons[cohort, round_ + 1] = account.readers()
    assert epsilons[10, 25] < epsilons[10, 50] < epsilons[20, 50]


def test_two_noisy_sums_of_one_upload_are_one_mechanism() -> None:
    assert combined(3.0) == pytest.approx(3.0)
    assert combined(3.0, 4.0) == pytest.approx(2.4)  # 1/√(1/9 + 1/16)


def test_records_restore_the_account_and_void_rounds_are_free() -> None:
    rounds: list[dict[str, Any]] = [
        {"round": 1, "attempt": 0, "void": True}, {"round": 1, "attempt": 1, "void": False},
    ]  # fmt: skip
    ledger = [
        {"round": 1, "attempt": attempt, "client": client, "outcome": "late" if client == 3 else "counted"}
        for attempt in (0, 1)
        for client in range(4)
    ]
    account = Account(2.0, 1e-5, 4, 4, True)
    account.restore(rounds, ledger)
    assert account.rounds == 1 and dict(account.sums_of) == {0: 1, 1: 1, 2: 1}


# --- noise ------------------------------------------------------------------------------------------------------------


def test_discrete_gaussians_have_the_right_shape() -> None:
    drawn = discrete_gaussian(1.5, 200_000, np.random.default_rng(0))
    weights = {n: exp(-(n**2) / (2 * 1.5**2)) for n in range(-30, 31)}
    for n in range(-4, 5):
        share = weights[n] / sum(weights.values())
        assert (drawn == n).mean() == pytest.approx(share, abs=4.5 * sqrt(share / len(drawn)))
    wide = discrete_gaussian(5000.0, 100_000, np.random.default_rng(1))
    assert wide.std() == pytest.approx(5000, rel=0.02) and abs(wide.mean()) < 5 * 5000 / sqrt(len(wide))


class Still:
    """Clients that send zeros: what the server gets is the noise."""

    def __init__(self, like: wire.Upload) -> None:
        self.like = tree.transform(torch.zeros_like, like)

    def gather(self, task: Task, cohort: Any) -> Any:
        for client in cohort:
            yield Reply(client, self.like)


def noise_of(name: str, net: Net, folder: Path, settings: DP, secure: bool, clients: int = 20) -> Any:
    """The received sums of a round in which nobody has anything to say."""
    run = small_run(name, net, noise_population(clients), folder)
    server = run.begin()
    opened = run.method.open_round(server, list(range(clients)), torch.Generator())
    task = Task(run.method, net, run.training, 0, 1, 0, lambda client: run.method.broadcast(server, opened, client))
    inner = SecureSums(EVERYBODY, Rules(min_cohort=4), 4.0, 1) if secure else Plain(EVERYBODY)
    sums = PrivateSums(settings, EVERYBODY, inner, run.method, clients, clients)
    gathering = sums.open(task, range(clients), lambda client: run.method.group(server, client), clients)
    like = run.method.expected(task.broadcast(0))
    for reply in Still(like).gather(task, range(clients)):
        assert gathering.count_in(reply, like) == "counted"
    gathered = gathering.close()
    assert gathered.received is not None
    return gathered


def deviation(received: Any) -> float:
    leaves = [leaf.flatten() for leaf in tree.leaves(received.mean("backbone")).values()]
    return float(torch.cat(leaves).std())


def test_a_machines_noise_is_new_every_time() -> None:
    """A round that is told again after a crash must not carry the same noise, or two sums' difference is bare."""
    task: Any = SimpleNamespace(seed=0, round=1, attempt=0)
    size = torch.Size([10_000])
    first, second = (central(task, on_machines=True)(size) for _ in range(2))
    assert float((first - second).std()) == pytest.approx(2**0.5, rel=0.05) and first.dtype == torch.float64
    here, again = (central(task, on_machines=False)(size) for _ in range(2))
    assert torch.equal(here, again)  # a simulation repeats


def test_central_noise_is_z_clips_on_the_sum(net: Net, tmp_path: Path) -> None:
    settings = DP(noise=1.5, clip=0.2)
    received = noise_of("fedavg/positive-only", net, tmp_path, settings, secure=False).received
    assert deviation(received) == pytest.approx(1.5 * 0.2 / 20, rel=0.1)  # 632 numbers


def test_shares_of_noise_add_up_to_it(net: Net, tmp_path: Path) -> None:
    """The 14 of 20 clients that could unmask have it all; here all 20 are there, and it is √(20/14) as much."""
    settings = DP(noise=1.5, clip=0.2, where="distributed")
    received = noise_of("fedavg/positive-only", net, tmp_path, settings, secure=True).received
    assert deviation(received) == pytest.approx(1.5 * 0.2 / 20 * sqrt(20 / 14), rel=0.1)


@pytest.mark.parametrize(("where", "secure"), [("central", False), ("central", True), ("distributed", True)])
def test_a_choirs_sum_has_noise_of_its_own(where: Any, secure: bool, net: Net, tmp_path: Path) -> None:
    settings = DP(noise=1.0, clip=0.1, group_noise=3.0, group_clip=0.5, where=where)
    received = noise_of("chorus", net, tmp_path, settings, secure).received
    chords = torch.stack([*received.whole_groups("chord", lambda group: 4).values()])
    assert chords.shape == (5, 1, 8)
    assert float(chords.std()) == pytest.approx(1.5, rel=0.35)  # 40 numbers
    assert deviation(received) < 0.02


def test_noise_on_updates_alone_leaves_choirs_exact_and_has_no_epsilon(net: Net, tmp_path: Path) -> None:
    """A fifth of a clip of 0.1, in shares that 14 of 20 clients would have all of; and nobody sang anything."""
    settings = DP(noise=0.2, clip=0.1, where="distributed", summed_only=True)
    gathered = noise_of("chorus", net, tmp_path, settings, secure=True)
    chords = torch.stack([*gathered.received.whole_groups("chord", lambda group: 4).values()])
    assert not chords.any() and "epsilon" not in gathered.privacy
    assert deviation(gathered.received) == pytest.approx(0.2 * 0.1 / 20 * sqrt(20 / 14), rel=0.1)


@pytest.mark.parametrize("bound", [0.1, 0.3, 0.7])
def test_one_long_number_clipped_fits_into_the_fixed_point(bound: float, net: Net) -> None:
    """In float32 a vector of one number may come out of the clip a little longer than the clip."""
    task = Task(None, net, Training(), 0, 1, 0, lambda client: wire.Broadcast())  # type: ignore[arg-type]
    noise = Noise(bound, bound, 0.0, bound, bound, seeded(task))
    for scale in (1.1, 3.0, 7.7, 1e3):
        long = Upload({"a": torch.tensor([-scale])}, torch.zeros(0), torch.tensor([scale]), 7)
        clipped, _ = clip(long, bound, bound)
        layout = UploadLayout(clipped, 20, [4], 4.0, 1, 14, noise)
        assert [len(words) for words in layout.vectors(clipped, {}, 0)] == [1 + 1 + 1 + 8, 1]


def test_noise_is_another_for_each_client_and_each_part(net: Net) -> None:
    task = Task(None, net, Training(), 0, 1, 0, lambda client: wire.Broadcast())  # type: ignore[arg-type]
    noise = Noise(1.0, 1.0, 1.0, 1.0, 1.0, seeded(task))
    draws = [noise.share(part, 4, 50, 1e-4, client) for part in ("summed", "grouped") for client in (0, 1)]  # type: ignore[arg-type]
    assert len({draw.tobytes() for draw in draws}) == 4
    assert np.array_equal(noise.share("summed", 4, 50, 1e-4, 0), draws[0])
    with pytest.raises(ValueError, match="too little to be Gaussian"):
        noise.share("summed", 4, 50, 1.0, 0)


# --- whole runs -------------------------------------------------------------------------------------------------------


def private_run(
    folder: Path, net: Net, privacy: Privacy, name: str = "fedavg/shared-head", clients: int = 8
) -> SmallRun:
    run = small_run(name, net, noise_population(clients), folder)
    run.stage.resume()
    run.sums = protected(privacy, run.method, run.population, EVERYBODY, run.stage)
    return run


CENTRAL = Privacy(dp=DP(noise=4.0, clip=0.5, delta=1e-3))
ADAPTIVE = Privacy(dp=DP(noise=0.1, clip=10.0, clip_quantile=0.5, delta=1e-3))
HIDDEN = Privacy(secure_sum=True, min_cohort=4, value_bound=16.0, dp=replace(CENTRAL.dp, where="distributed"))


def told(run: SmallRun, what: str) -> list[float]:
    return [row["privacy"][what] for row in run.stage.rounds()]


@pytest.mark.parametrize("privacy", [CENTRAL, ADAPTIVE, HIDDEN], ids=["central", "adaptive", "distributed"])
def test_epsilon_is_in_every_round_and_resume_goes_on_with_it(privacy: Privacy, net: Net, tmp_path: Path) -> None:
    whole = private_run(tmp_path / "whole", net, privacy)
    end = whole.run(EVERYBODY)
    assert len(told(whole, "epsilon")) == 6 and told(whole, "epsilon") == sorted(told(whole, "epsilon"))
    private_run(tmp_path / "cut", net, privacy).run(EVERYBODY, stop_after=3)
    again = private_run(tmp_path / "cut", net, privacy)
    assert tree.sha256(again.run(EVERYBODY)) == tree.sha256(end)
    assert told(again, "epsilon") == told(whole, "epsilon") and told(again, "clip") == told(whole, "clip")
    assert ("epsilon_server" in whole.stage.rounds()[0]["privacy"]) == privacy.secure_sum
    assert all(row["losses"] == {} for row in whole.stage.rounds())  # measured on private images
    assert all(row["images"] == 0 for row in whole.stage.ledger())


def test_the_run_stops_before_the_budget_is_passed(net: Net, tmp_path: Path) -> None:
    unbound = private_run(tmp_path / "a", net, CENTRAL)
    unbound.run(EVERYBODY)
    budget = told(unbound, "epsilon")[3] + 1e-6  # room for four rounds
    limited = private_run(tmp_path / "b", net, replace(CENTRAL, dp=replace(CENTRAL.dp, budget=budget)))
    limited.run(replace(EVERYBODY, checkpoint_every=3))
    assert told(limited, "epsilon") == told(unbound, "epsilon")[:4]
    resumed = limited.stage.resume()
    assert resumed is not None and resumed[0] == 4  # the last round is kept, though no checkpoint was due
    again = private_run(tmp_path / "b", net, replace(CENTRAL, dp=replace(CENTRAL.dp, budget=budget)))
    again.run(EVERYBODY)
    assert len(again.stage.rounds()) == 4


def test_a_sum_that_somebody_spoilt_was_told_all_the_same(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two void rounds of which the server saw the sums cost as much as two that counted."""
    good = private_run(tmp_path / "good", net, HIDDEN)
    good.run(replace(EVERYBODY, rounds=2))
    honest = UploadLayout.vectors

    def vectors(layout: UploadLayout, upload: wire.Upload, losses: dict[str, float], client: int) -> Any:
        vector, grouped = honest(layout, upload, losses, client)
        if client == 0:
            vector[layout.values] = 100  # eight clients weigh 8 together
        return vector, grouped

    monkeypatch.setattr(UploadLayout, "vectors", vectors)
    spoilt = private_run(tmp_path / "spoilt", net, HIDDEN)
    with pytest.raises(QuorumError, match="somebody spoilt the sum: 8 clients weigh 1 to 8 together, and not 107"):
        spoilt.run(replace(EVERYBODY, rounds=1, attempts=2))
    account = spoilt.sums.account  # type: ignore[union-attr]
    assert account.readers() == pytest.approx(told(good, "epsilon")[1])


def test_a_budget_for_less_than_one_round_is_an_error(net: Net, tmp_path: Path) -> None:
    tight = replace(CENTRAL, dp=replace(CENTRAL.dp, budget=0.01))
    with pytest.raises(ValueError, match="the first round alone has ε = .* over privacy.dp.budget=0.01"):
        private_run(tmp_path, net, tight)


def test_the_clip_follows_the_quantile(net: Net, tmp_path: Path) -> None:
    """From far too high it falls by e^(−0.2·(1 − 0.5)) a round, but for the noise on the share, until half is over."""
    adaptive = Privacy(dp=DP(noise=0.1, clip=1e4, clip_quantile=0.5, delta=1e-3))
    run = private_run(tmp_path, net, adaptive)
    run.run(EVERYBODY)
    clips = told(run, "clip")
    assert clips == sorted(clips, reverse=True) and told(run, "next_clip")[:-1] == clips[1:]
    assert clips[1] == pytest.approx(1e4 * exp(-0.1), rel=0.05)


def test_a_cohort_too_small_to_adapt_is_refused(net: Net, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too small to adapt the clip"):
        private_run(tmp_path, net, Privacy(dp=DP(noise=1.0, clip_quantile=0.5, delta=1e-3)))


def test_chorus_is_accounted_by_who_sang(net: Net, tmp_path: Path) -> None:
    privacy = Privacy(dp=DP(noise=3.0, group_noise=4.0, delta=1e-3))
    run = private_run(tmp_path, net, privacy, "chorus")
    run.run(Rounds(rounds=3, cohort=4))  # one choir of two a round
    sung = [row["client"] for row in run.stage.ledger()]
    most = max(sung.count(client) for client in set(sung))
    expected = Account(2.4, 1e-3, 4, 8, False)  # combined(3, 4)
    for _ in range(most):
        expected.charge([0])
    assert told(run, "epsilon")[-1] == pytest.approx(expected.server())


def test_a_method_that_reveals_has_no_epsilon(net: Net, tmp_path: Path) -> None:
    privacy = Privacy(dp=DP(noise=1.0, delta=1e-3, summed_only=True))
    run = private_run(tmp_path, net, privacy, "fedface")
    run.run(Rounds(rounds=1))
    assert "epsilon" not in run.stage.rounds()[0]["privacy"]


def test_another_setting_is_another_run(tmp_path: Path) -> None:
    """Resuming with other noise is refused: the account would not be what was spent."""
    one, other = Run(privacy=CENTRAL), Run(privacy=replace(CENTRAL, dp=replace(CENTRAL.dp, noise=1.0)))
    first = Stage(tmp_path, upload_server(), None, one.sha256(), torch.device("cpu"))
    first.checkpoint(1, upload_server()(torch.zeros(1)))
    with pytest.raises(StoreError, match="other settings"):
        Stage(tmp_path, upload_server(), None, other.sha256(), torch.device("cpu")).resume()


@dataclass(frozen=True)
class Kept:
    value: Tensor


def upload_server() -> type[Kept]:
    return Kept
