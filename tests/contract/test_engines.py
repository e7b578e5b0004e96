"""Engines are proven equal: ``sequential`` is the definition, and ``stacked`` gives the same within float tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coalface import tree
from coalface.algorithms import METHODS
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedfv import FedFV
from coalface.config import method_named
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.engines import room, stacked
from coalface.engines.engine import Task
from coalface.engines.launch import laid
from coalface.engines.on_cores import OnCores
from coalface.engines.quickest import Quickest
from coalface.engines.stacked import Stacked
from coalface.federation import Rounds
from coalface.local import Draw, Training
from coalface.method import Method
from coalface.models.net import Net
from tests.conftest import SmallRun, noise_population, small_population

TOLERANCE = 2e-6  # float32: sums in another order
EXACT = 1e-10  # float64: over many steps float32 strays too far to tell a rounding from a small mistake
ONE_STEP = Training(rate=0.05, weight_decay=1e-3)
STEPS = Training(rate=0.05, weight_decay=1e-3, momentum=0.9, batch=2, epochs=2)
ALL = Rounds(rounds=2)
FACES = [name for name, kind in METHODS.items() if kind.world == "faces"]
ON_CORES = "on cores"
COUNTS = (1, 4, 2, 3, 4, 2, 1, 3)  # images of each client: one to four steps in two epochs of batches of two


def finished(
    engine: str, method: Method, net: Net, people: Population, folder: Path, training: Training, rules: Rounds
) -> tuple[Any, SmallRun]:
    run = SmallRun(method, net, people, folder / engine, training)
    if engine == "stacked":
        run.engine = Stacked(run.population, run.stage.private, rules.max_norm)  # type: ignore[assignment]
    return run.run(rules), run


def assert_equal(
    method: Method, net: Net, people: Population, folder: Path, training: Training, rules: Rounds, tolerance: float
) -> SmallRun:
    """Server, private states, ledger and losses are those of the sequential engine."""
    one, first = finished("sequential", method, net, people, folder, training, rules)
    two, second = finished("stacked", method, net, people, folder, training, rules)
    assert_close(one, two, tolerance)
    assert first.stage.private.clients() == second.stage.private.clients()
    for client in first.stage.private.clients():
        assert_close(first.stage.private.load(client, 99), second.stage.private.load(client, 99), tolerance)
    drop = ("seconds",)
    ledgers = [[{k: v for k, v in row.items() if k not in drop} for row in r.stage.ledger()] for r in (first, second)]
    assert ledgers[0] == ledgers[1]
    for row, other in zip(first.stage.rounds(), second.stage.rounds(), strict=True):
        assert other["losses"] == pytest.approx(row["losses"], rel=tolerance, abs=tolerance)
    return second


def assert_close(one: Any, two: Any, tolerance: float) -> None:
    others = tree.leaves(two)
    for path, leaf in tree.leaves(one).items():
        torch.testing.assert_close(others[path], leaf, rtol=0, atol=tolerance, msg=lambda m, p=path: f"{p}: {m}")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clients went into each launch of several steps, as the launches happen."""
    sizes: list[int] = []
    side_by_side, on_cores = stacked.several_steps, OnCores.train

    def noted(task: Any, members: Any, *others: Any) -> Any:
        sizes.append(len(members))
        return side_by_side(task, members, *others)

    def noted_on_cores(cores: OnCores, task: Any, members: Any, *others: Any) -> Any:
        sizes.append(len(members))
        return on_cores(cores, task, members, *others)

    monkeypatch.setattr(stacked, "several_steps", noted)
    monkeypatch.setattr(OnCores, "train", noted_on_cores)
    return sizes


def take(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several steps as a GPU takes them, whatever its quickest way to a convolution may be; or as a CPU does."""
    if way != ON_CORES:
        monkeypatch.setattr(stacked, "DEVICES", ("cpu", "cuda"))
        monkeypatch.setattr(Quickest, "__call__", lambda _, work, ways: ways.get(way, ways["apart"])())


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("net_name", ["tiny", "tiny_bn"])
@pytest.mark.parametrize("name", [name for name in FACES if METHODS[name].common is not None])
def test_one_step_stacked_equals_sequential(
    name: str, net_name: str, unequal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "why_on_cores", lambda *given: None)  # whether it pays or not
    monkeypatch.setitem(room.IMAGES, "cpu", 9)  # several launches a round
    people = small_population(name)
    people = replace(people, images_each=COUNTS) if unequal else people
    net = Net(net_name, embedding=8, size=16)
    rules = Rounds(rounds=3, cohort=4)
    method = method_named(name)()
    run: Any = assert_equal(method, net, people, tmp_path, ONE_STEP, rules, TOLERANCE)
    assert run.engine.form(method, ONE_STEP) == "one step for many clients"


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("way", "cores"), [("apart", 1), ("product", 1), (ON_CORES, 1), (ON_CORES, 3)])
@pytest.mark.parametrize("net_name", ["tiny", "tiny_bn"])
@pytest.mark.parametrize("name", FACES)
def test_several_steps_stacked_equal_sequential(
    name: str,
    net_name: str,
    way: str,
    cores: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launches: list[int],
) -> None:
    take(way, monkeypatch)
    monkeypatch.setitem(room.IMAGES, "cpu", 7)  # three clients a launch on a device, with two images each
    torch.set_num_threads(cores)
    method = method_named(name)()
    people = noise_population(identities_each=1 if method.one_identity else 2)
    people = replace(people, images_each=COUNTS)
    net = Net(net_name, embedding=8, size=16)
    assert_equal(method, net, people, tmp_path, STEPS, ALL, EXACT)
    assert launches == ([1, 1] if name == "centralised" else [8, 8] if way == ON_CORES else [3, 3, 2] * 2)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("way", ["apart", "grouped", "turned", "product"])
@pytest.mark.parametrize("net_name", ["tiny_deep", "tiny_pools"])
@pytest.mark.parametrize("name", ["fedface", "fedfr", "local_only"])
def test_every_way_to_a_convolution_trains_alike(
    name: str, net_name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(way, monkeypatch)
    method = method_named(name)()
    people = replace(noise_population(identities_each=1 if method.one_identity else 2), images_each=COUNTS)
    assert_equal(method, Net(net_name, embedding=8, size=16), people, tmp_path, STEPS, ALL, EXACT)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "training",
    [
        replace(STEPS, momentum=0.0),
        replace(STEPS, batch=0, epochs=3, flip=False),
        replace(STEPS, images_per_round=3, epochs=1),
        replace(STEPS, optimiser="adam", rate=1e-3),
        Training(rate=1e-3, optimiser="adam"),
    ],
    ids=["plain", "epochs", "drawn images", "adam", "one step of adam"],
)
def test_however_the_steps_are_taken(training: Training, net: Net, tmp_path: Path, launches: list[int]) -> None:
    people = replace(noise_population(identities_each=2), images_each=COUNTS)
    assert_equal(method_named("fedprox/private-head")(), net, people, tmp_path, training, ALL, EXACT)
    assert launches == [8, 8]


def test_several_steps_agree_in_float32(net: Net, population: Population, tmp_path: Path) -> None:
    assert_equal(method_named("fedface")(), net, population, tmp_path, STEPS, ALL, TOLERANCE)


@pytest.mark.parametrize("way", ["apart", ON_CORES])
def test_one_step_of_clients_that_start_apart(
    way: str,
    net: Net,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launches: list[int],
) -> None:
    take(way, monkeypatch)
    assert_equal(method_named("local_only")(), net, noise_population(), tmp_path, ONE_STEP, ALL, TOLERANCE)
    assert launches == [8, 8]


@pytest.mark.usefixtures("float64")
def test_a_tensor_that_the_loss_does_not_read_is_not_decayed(net: Net, tmp_path: Path) -> None:
    """Chorus multiplies what it sings by random parts that are in its state, but not in its loss."""
    training = replace(STEPS, weight_decay=0.5)
    assert_equal(Chorus(parts=2), net, noise_population(), tmp_path, training, ALL, EXACT)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "method",
    [
        Chorus(choir=3, groupings=2, enrol_first=True, momentum=0.9),
        Chorus(choir=3, groupings=2, enrol_first=True, chords=3),
        FedFV(enrol_first=True, momentum=0.9),
    ],
)
def test_enrolment_and_momentum_are_the_same_in_both(method: Method, net: Net, tmp_path: Path) -> None:
    people = noise_population()
    assert_equal(method, net, people, tmp_path, Training(rate=0.05), Rounds(rounds=5, cohort=6), EXACT)


@pytest.mark.usefixtures("float64")
def test_clients_of_other_shapes_go_in_launches_of_their_own(net: Net, tmp_path: Path, launches: list[int]) -> None:
    people = noise_population()
    people = Population(people.faces, ((0,), (1,), (2, 3), (4, 5), (6,)))
    assert_equal(method_named("fedavg/private-head")(), net, people, tmp_path, STEPS, ALL, EXACT)
    assert launches == [2, 2, 1] * 2


def test_weights_bound_a_launch_too(
    net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: list[int]
) -> None:
    # tiny: 3·3·3·4 + 4 in the convolution, 64·8 + 8 in the linear layer, and a class embedding of 8; 4 bytes each.
    monkeypatch.setitem(room.WEIGHTS, "cpu", 3 * 4 * (112 + 520 + 8))
    rules = Rounds(rounds=1)
    finished("stacked", method_named("fedface")(), net, population, tmp_path / "on cores", STEPS, rules)
    assert launches == [8]  # models are averaged as they come: what stays of each client is its class embedding
    launches.clear()
    finished("stacked", method_named("local_only")(), net, population, tmp_path / "apart", STEPS, rules)
    assert launches == [3, 3, 2]
    launches.clear()
    take("apart", monkeypatch)
    finished("stacked", method_named("fedface")(), net, population, tmp_path / "side by side", STEPS, rules)
    assert launches == [3, 3, 2]


def test_a_norm_bound_meets_each_clients_own_update(net: Net, population: Population, tmp_path: Path) -> None:
    """Of a round of one step too, whose updates otherwise exist as their mean only."""
    rules = Rounds(rounds=1, quorum=0.1, max_norm=1.01)
    run = assert_equal(method_named("fedface")(), net, population, tmp_path, ONE_STEP, rules, TOLERANCE)
    outcomes = [row["outcome"] for row in run.stage.ledger()]
    assert 0 < outcomes.count("counted") < len(outcomes)


@pytest.mark.parametrize("training", [ONE_STEP, STEPS], ids=["one step", "several"])
def test_replies_keep_the_order_of_the_cohort(
    training: Training, net: Net, population: Population, tmp_path: Path
) -> None:
    offsets = torch.tensor([0, 4, 8, 8, 12])  # the third person has no image
    people = Population(
        replace(population.faces, images=population.faces.images[:12], offsets=offsets), ((0,), (1,), (2,), (3,))
    )
    _, run = finished("stacked", method_named("fedface")(), net, people, tmp_path, training, Rounds(rounds=1))
    assert [(row["client"], row["outcome"]) for row in run.stage.ledger()] == [
        (0, "counted"), (1, "counted"), (2, "no images"), (3, "counted"),
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["apart", "product", ON_CORES])
@pytest.mark.parametrize("name", ["local_only", "fedface"])
def test_what_a_client_keeps_and_sends_is_its_own(
    name: str,
    way: str,
    net: Net,
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A view of the stack would keep the whole launch's models alive for as long as one client's."""
    take(way, monkeypatch)
    run = SmallRun(method_named(name)(), net, replace(population, images_each=COUNTS), tmp_path, STEPS)
    server = run.begin()
    opened = run.method.open_round(server, list(range(8)), torch.Generator())
    task = Task(run.method, net, STEPS, 0, 1, 0, lambda client: run.method.broadcast(server, opened, client))
    apart = Stacked(run.population, run.stage.private, max_norm=1e6)  # without a bound, models are averaged at once
    replies = list(apart.gather(task, range(8)))
    leaves = [leaf for r in replies for held in (r.upload, r.private) for leaf in tree.leaves(held).values()]
    assert all(leaf.untyped_storage().nbytes() == leaf.nbytes and not leaf.requires_grad for leaf in leaves)
    assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == len(leaves)


def test_an_error_in_a_client_says_where(
    net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it starts, in either form; and while it trains, where one is trained after another."""
    fedface = method_named("fedface")
    steps = iter(range(99))

    def failing(*given: Any) -> Any:
        if next(steps) == 4:
            raise RuntimeError("boom")
        return objective(*given)

    def failing_start(*given: Any) -> Any:
        raise RuntimeError("boom")

    def notes(training: Training, folder: str) -> list[str]:
        with pytest.raises(RuntimeError, match="boom") as error:
            finished("stacked", fedface(), net, population, tmp_path / folder, training, ALL)
        return error.value.__notes__

    with monkeypatch.context() as patched:
        objective = fedface.objective
        patched.setattr(fedface, "objective", failing)
        assert notes(Training(batch=2), "training") == ["in round 1 of client 2, 4 images"]  # two steps each
    monkeypatch.setattr(fedface, "start", failing_start)
    for training, folder in ((ONE_STEP, "one"), (STEPS, "several")):
        assert notes(training, folder) == ["in round 1 of client 0, 4 images"]


@pytest.mark.parametrize("training", [ONE_STEP, STEPS], ids=["one step", "several"])
def test_clients_train_for_no_longer_than_their_round(
    training: Training, net: Net, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch is read when the next is under way: the seconds of both together would be counted twice."""
    take("apart", monkeypatch)
    monkeypatch.setitem(room.IMAGES, "cpu", 8)
    _, run = finished("stacked", method_named("fedface")(), net, population, tmp_path, training, ALL)
    for number, entry in enumerate(run.stage.rounds(), start=1):
        trained = [row["seconds"] for row in run.stage.ledger() if row["round"] == number]
        assert min(trained) > 0 and sum(trained) < entry["seconds"]


def test_padding_has_no_share() -> None:
    images = torch.arange(4 * 3, dtype=torch.uint8).reshape(4, 3, 1, 1)
    people = Population(FaceSet(images, torch.tensor([0, 2, 3, 4])), ((0,), (1,), (2,)))
    members = [SimpleNamespace(faces=people[client], trained_on=people[client]) for client in range(3)]
    both, one = Draw(torch.tensor([1, 0]), torch.zeros(2).bool()), Draw(torch.tensor([0]), torch.zeros(1).bool())
    step = laid(members, [both, None, one], people)  # type: ignore[arg-type]
    assert step.share.tolist() == [[0.5, 0.5], [0.0, 0.0], [1.0, 0.0]]
    first, second, _, last = ([3 * row, 3 * row + 1, 3 * row + 2] for row in range(4))
    assert step.images.flatten(2)[0].tolist() == [second, first]
    assert step.images.flatten(2)[2, 0].tolist() == last
    assert laid(members, [both, None, one], people, multiple=8).share.shape == (3, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("images_each", "drawn", "one_pass"),
    [
        ((1, 1, 1, 1, 1, 1, 1, 3), 0, True),  # 24 with padding, of which 10 are images
        ((1, 1, 1, 1, 1, 1, 1, 4), 0, True),  # 32, of which 11
        ((1, 1, 1, 1, 1, 1, 1, 9), 0, False),  # 72, of which 16
        ((1, 1, 1, 1, 1, 1, 1, 9), 2, True),  # two of them at most in a round: 16, of which 9
    ],
)
def test_on_a_cpu_one_pass_does_not_go_through_much_padding(
    images_each: tuple[int, ...], drawn: int, one_pass: bool, tmp_path: Path, launches: list[int]
) -> None:
    people = replace(noise_population(images=9), images_each=images_each)
    training = replace(ONE_STEP, images_per_round=drawn)
    method, net = method_named("fedface")(), Net("tiny", embedding=8, size=16)
    run: Any = assert_equal(method, net, people, tmp_path, training, ALL, TOLERANCE)
    assert ("padding" in run.engine.form(method, training)) is not one_pass
    assert bool(launches) is not one_pass
