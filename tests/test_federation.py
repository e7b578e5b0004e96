"""The round: cohorts, quorum, deadline, refusals, void rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coalface import tree, wire
from coalface.data.population import Population
from coalface.engines.engine import Engine, Reply, Task
from coalface.engines.faults import Faults, Faulty
from coalface.federation import QuorumError, Rounds
from coalface.models.net import Net
from tests.conftest import SmallRun, small_run


@pytest.fixture
def run(net: Net, population: Population, tmp_path: Path) -> SmallRun:
    return small_run("fedavg/shared-head", net, population, tmp_path)


class Mangled:
    """An engine whose replies a test may change."""

    name = "mangled"

    def __init__(self, engine: Engine, mangle: object) -> None:
        self.engine, self.mangle = engine, mangle

    def gather(self, task: Task, cohort: Sequence[int]) -> Iterator[Reply]:
        for reply in self.engine.gather(task, cohort):
            yield self.mangle(task, reply)  # type: ignore[operator]


def outcomes(run: SmallRun) -> dict[int, str]:
    return {row["client"]: row["outcome"] for row in run.stage.ledger()}


def test_the_ledger_has_a_row_per_client_and_round(run: SmallRun) -> None:
    run.run(Rounds(rounds=2, cohort=3))
    rows = run.stage.ledger()
    assert [row["round"] for row in rows] == [1, 1, 1, 2, 2, 2]
    assert {row["outcome"] for row in rows} == {"counted"}
    assert {row["images"] for row in rows} == {4}
    upload = run.method.expected(run.method.broadcast(run.begin(), None, 0))
    assert {row["bytes_up"] for row in rows} == {wire.encoded_size(upload)}


def test_a_damaged_upload_is_refused_and_the_round_goes_on(run: SmallRun) -> None:
    def mangle(task: Task, reply: Reply) -> Reply:
        data = wire.encode(reply.upload)
        bad = {
            0: replace(reply, upload=data),  # intact bytes count
            1: replace(reply, upload=data[:-1]),
            2: replace(reply, upload=b"\xff" * len(data)),
            3: replace(reply, upload=replace(reply.upload, head=reply.upload.head * float("nan"))),
            4: replace(reply, upload=replace(reply.upload, head=reply.upload.head[:1])),
        }
        return bad.get(reply.client, reply)

    run.engine = Mangled(run.engine, mangle)  # type: ignore[assignment]
    run.run(Rounds(rounds=1, quorum=0.3))
    got = outcomes(run)
    assert got[0] == got[5] == "counted"
    assert "bytes, expected" in got[1]
    assert got[2] == "refused: not a readable message (SafetensorError)"
    assert got[3] == "refused: head is not finite"
    assert got[4] == "refused: head has shape [1, 8], expected [8, 8]"


def test_a_refused_upload_leaves_no_trace_in_the_model(net: Net, population: Population, tmp_path: Path) -> None:
    """The server after a round in which client 5 is refused equals the server of a round that never had it."""
    with_bad = small_run("fedavg/shared-head", net, population, tmp_path / "a")
    with_bad.engine = Mangled(  # type: ignore[assignment]
        with_bad.engine, lambda task, reply: replace(reply, upload=b"junk") if reply.client == 5 else reply
    )
    without = small_run("fedavg/shared-head", net, population, tmp_path / "b")
    without.engine = Mangled(  # type: ignore[assignment]
        without.engine, lambda task, reply: replace(reply, trouble="gone") if reply.client == 5 else reply
    )
    assert tree.sha256(with_bad.run(Rounds(rounds=1))) == tree.sha256(without.run(Rounds(rounds=1)))


def test_late_uploads_are_dropped_and_counted(run: SmallRun) -> None:
    run.engine = Mangled(  # type: ignore[assignment]
        run.engine, lambda task, reply: replace(reply, seconds=9.0 if reply.client == 2 else 0.5)
    )
    run.run(Rounds(rounds=1, deadline=5.0))
    assert outcomes(run)[2] == "late"
    assert run.stage.rounds()[0]["counted"] == 7


def test_norm_bound(run: SmallRun) -> None:
    run.engine = Mangled(  # type: ignore[assignment]
        run.engine,
        lambda task, reply: (
            replace(reply, upload=replace(reply.upload, head=reply.upload.head + 100.0)) if reply.client == 2 else reply
        ),
    )
    run.run(Rounds(rounds=1, max_norm=50.0))
    assert outcomes(run)[2].startswith("refused: norm 8")  # 100·√(8·8) = 800, and a little
    assert outcomes(run)[1] == "counted"


def test_a_round_under_quorum_is_void_recorded_and_repeated(run: SmallRun) -> None:
    def mangle(task: Task, reply: Reply) -> Reply:
        return replace(reply, trouble="dropped out") if task.attempt == 0 and reply.client > 1 else reply

    run.engine = Mangled(run.engine, mangle)  # type: ignore[assignment]
    run.run(Rounds(rounds=1, quorum=0.5))
    assert [(row["attempt"], row["void"], row["counted"]) for row in run.stage.rounds()] == [
        (0, True, 2),
        (1, False, 8),
    ]


def test_a_round_that_is_void_because_training_diverges_says_so(run: SmallRun) -> None:
    def mangle(task: Task, reply: Reply) -> Reply:
        return replace(reply, upload=replace(reply.upload, head=reply.upload.head * torch.inf))

    run.engine = Mangled(run.engine, mangle)  # type: ignore[assignment]
    with pytest.raises(QuorumError, match=r"is not finite\); training has diverged: start again with a lower"):
        run.run(Rounds(rounds=1, attempts=1))


def test_a_void_round_changes_nothing(net: Net, two_each: Population, tmp_path: Path) -> None:
    """Neither the server's state nor what clients keep: the repeat starts as if the void round had never been."""
    disturbed = small_run("fedavg/private-head", net, two_each, tmp_path / "a")
    disturbed.engine = Mangled(  # type: ignore[assignment]
        disturbed.engine,
        lambda task, reply: replace(reply, trouble="x") if task.attempt == 0 and reply.client > 1 else reply,
    )
    calm = small_run("fedavg/private-head", net, two_each, tmp_path / "b")
    rules = Rounds(rounds=3)
    assert tree.sha256(disturbed.run(rules)) == tree.sha256(calm.run(rules))
    assert disturbed.stage.private.sha256() == calm.stage.private.sha256()


def test_giving_up_says_what_to_do(run: SmallRun) -> None:
    run.engine = Faulty(run.engine, Faults(dropout=1.0))  # type: ignore[assignment]
    with pytest.raises(
        QuorumError, match=r"round 1 was void 3 times.*\(8 of 8: dropped out\); mend that, lower rounds\.quorum"
    ):
        run.run(Rounds(rounds=1, attempts=3))


def test_injected_faults_follow_their_shares_and_the_seed(net: Net, two_each: Population, tmp_path: Path) -> None:
    logs = []
    for folder in ("a", "b"):
        run = small_run("fedavg/private-head", net, two_each, tmp_path / folder)
        run.engine = Faulty(run.engine, Faults(dropout=0.2, late=0.2, damaged=0.2))  # type: ignore[assignment]
        run.run(Rounds(rounds=12, quorum=0.1))
        logs.append([(row["round"], row["client"], row["outcome"]) for row in run.stage.ledger()])
    assert logs[0] == logs[1]
    kinds = [outcome.split(":")[0] for _, _, outcome in logs[0]]
    shares = {kind: kinds.count(kind) / len(kinds) for kind in ("counted", "dropped out", "late", "refused")}
    assert 0.2 < shares["counted"] < 0.6
    assert all(0.05 < shares[kind] < 0.4 for kind in ("dropped out", "late", "refused"))


def test_a_client_without_images_is_skipped(net: Net, population: Population, tmp_path: Path) -> None:
    faces = replace(population.faces, offsets=torch.cat([torch.zeros(1, dtype=torch.int64), population.faces.offsets]))
    run = small_run("fedavg/shared-head", net, Population(faces, population.clients), tmp_path)
    run.run(Rounds(rounds=1))
    assert outcomes(run)[0] == "no images"


def test_an_error_in_a_client_says_where(run: SmallRun) -> None:
    class Broken:
        def load(self, client: int, round_: int) -> None:
            if client == 4:
                raise RuntimeError("boom")

    run.engine.private = Broken()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="boom") as error:
        run.run(Rounds(rounds=1))
    assert error.value.__notes__ == ["in round 1 of client 4, 4 images"]


@pytest.mark.parametrize(("quorum", "cohort", "needed"), [(0.5, 5, 3), (0.55, 100, 55), (0.56, 25, 14), (1.0, 7, 7)])
def test_how_many_are_a_quorum(quorum: float, cohort: int, needed: int) -> None:
    assert Rounds(quorum=quorum).needed(cohort) == needed


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"quorum": 0.0}, {"quorum": 1.5}, {"deadline": -1.0}, {"most_images": -1}]
)
def test_bad_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Rounds(**wrong)  # type: ignore[arg-type]


def test_slow_checkpoints_become_rare_but_the_last_is_there(run: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(run.stage, "checkpoint", lambda round_, server: written.append(round_))
    run.run(Rounds(rounds=4))
    assert written == [1, 2, 3, 4]
    written.clear()
    monkeypatch.setattr("coalface.federation.SLOW_CHECKPOINT", 0.0)
    monkeypatch.setattr("coalface.federation.CHECKPOINT_SHARE", 1e-12)
    run.run(Rounds(rounds=4))
    assert written == [1, 4]


def with_images(run: SmallRun, images: dict[int, int]) -> None:
    """Clients that say they hold another number of images than they do."""
    run.engine = Mangled(  # type: ignore[assignment]
        run.engine,
        lambda task, reply: replace(
            reply, upload=replace(reply.upload, images=images.get(reply.client, reply.upload.images))
        ),
    )


def test_a_round_in_which_nobody_weighs_anything_is_void(run: SmallRun) -> None:
    with_images(run, dict.fromkeys(range(8), 0))
    with pytest.raises(QuorumError, match="round 1 was void 2 times: every upload .* is of 0 images$"):
        run.run(Rounds(rounds=1, attempts=2))
    assert [(row["void"], row["counted"], row["why"]) for row in run.stage.rounds()] == [
        (True, 0, "every upload that counted says that it is of 0 images")
    ] * 2


def test_nobody_weighs_more_than_the_rules_allow(net: Net, population: Population, tmp_path: Path) -> None:
    """Client 2 says 2⁶² images where the others hold 4 each: its update would be the mean. It is left out."""
    greedy = small_run("fedavg/shared-head", net, population, tmp_path / "a")
    with_images(greedy, {2: 2**62})
    without = small_run("fedavg/shared-head", net, population, tmp_path / "b")
    without.engine = Mangled(  # type: ignore[assignment]
        without.engine, lambda task, reply: replace(reply, trouble="gone") if reply.client == 2 else reply
    )
    assert tree.sha256(greedy.run(Rounds(rounds=1))) == tree.sha256(without.run(Rounds(rounds=1)))
    assert outcomes(greedy)[2] == f"refused: it weighs {2**62} images, and rounds.most_images is 100000"


@pytest.mark.parametrize(("most", "outcome"), [(4, "counted"), (3, "refused: it weighs 4 images, and"), (0, "counted")])
def test_the_bound_on_images_is_the_largest_number_that_counts(run: SmallRun, most: int, outcome: str) -> None:
    rules = Rounds(rounds=1, attempts=1, most_images=most)
    if outcome == "counted":
        run.run(rules)
    else:
        with pytest.raises(QuorumError):
            run.run(rules)
    assert all(found.startswith(outcome) for found in outcomes(run).values())


def test_a_client_alone_may_hold_any_number_of_images(net: Net, population: Population, tmp_path: Path) -> None:
    """It outweighs nobody: central training is a federation of one client."""
    everybody = small_run("centralised", net, population, tmp_path)
    everybody.run(Rounds(rounds=1, most_images=31))  # of 8 × 4
    assert [(row["outcome"], row["images"]) for row in everybody.stage.ledger()] == [("counted", 32)]
