"""Federations of real processes on loopback: `coalface serve` and `coalface join`, and kill -9 for both."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coalface import config
from coalface.algorithms import METHODS
from coalface.cli import main
from coalface.config import DetectionRun, Run, method_named
from coalface.data.centres import DomainData
from coalface.federation import Rounds
from coalface.local import Training
from coalface.recipes import RECIPES
from tests.end_to_end.conftest import SMALL, command, environment

pytest.importorskip("flwr")

from tests.end_to_end.federation import Fleet, fleet, until

ALL = ["rounds.cohort=0", "rounds.rounds=3", "rounds.quorum=1.0", "data.images_each=4"]
LONG = ["training.epochs=30", "training.batch=1"]  # a round of a second or more: there is a middle to kill it in


def small_run(method: str, *settings: str) -> Run:
    return config.override(replace(RECIPES["demo"](), method=method_named(method)()), [*SMALL, *ALL, *settings])


def written(run: Run | DetectionRun, folder: Path) -> Path:
    file = folder / "config.json"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config.to_json(run)))
    return file


def simulated(run: Run | DetectionRun, folder: Path) -> dict[str, Any]:
    """The same run by the sequential engine, in this process."""
    file = written(run, folder)
    assert (
        main(["run", str(file), "--engine", "sequential", "--device", "cpu", "--quiet", "--out", str(folder / "run")])
        == 0
    )
    return result(folder / "run")


def result(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return found


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    file = out / name
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written


def finished(process: subprocess.Popen[bytes], clients: Fleet) -> None:
    assert process.wait(timeout=600) == 0, (clients.folder / "serve.log").read_text()


def test_three_processes_give_the_result_of_the_simulation(tmp_path: Path) -> None:
    run = small_run("fedavg/positive-only", "data.clients=3")
    with fleet(tmp_path / "fleet", run) as clients:
        server = clients.serve(written(run, tmp_path / "served"), tmp_path / "served" / "run")
        clients.start()
        expected = simulated(run, tmp_path / "simulated")
        finished(server, clients)
    found = result(tmp_path / "served" / "run")
    assert found["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert found["metrics"]["method"] == expected["metrics"]["method"]
    assert found["engine"] == "flower" and "central" not in found["metrics"]
    assert found["bytes"] == expected["bytes"]
    assert [row["outcome"] for row in rows(tmp_path / "served" / "run", "ledger.jsonl")] == ["counted"] * 9


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Six clients that stay for one federation after another: two choirs of three."""
    with fleet(
        tmp_path_factory.mktemp("six") / "fleet", small_run("chorus", "data.clients=6", "method.choir=3")
    ) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def three_centres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three data centres that stay for one federation after another."""
    with fleet(tmp_path_factory.mktemp("centres") / "fleet", small_detection("fedpad")) as made:
        made.start()
        yield made


def small_detection(method: str) -> DetectionRun:
    few = {"subjects": 2, "dev_subjects": 2, "test_subjects": 2, "videos": 1, "frames": 2}
    data = DomainData(size=32, **few)
    training = Training(rate=1e-3, batch=4)
    return DetectionRun(method_named(method)(), width=4, data=data, rounds=Rounds(3), training=training, ends=())


@pytest.mark.deploy
@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.world == "faces"])
def test_every_method_gives_the_result_of_the_simulation(name: str, six: Fleet, tmp_path: Path) -> None:
    run = small_run(name, "data.clients=6", *(["method.choir=3"] if name.startswith("chorus") else []))
    handed_out(tmp_path / "run", six)
    server = six.serve(written(run, tmp_path), tmp_path / "run")
    expected = simulated(run, tmp_path / "simulated")
    finished(server, six)
    assert result(tmp_path / "run")["checkpoint_sha256"] == expected["checkpoint_sha256"]


@pytest.mark.deploy
@pytest.mark.parametrize(
    "name", [name for name, kind in METHODS.items() if kind.world == "recordings" and not name.startswith("all")]
)
def test_every_detector_gives_the_result_of_the_simulation(name: str, three_centres: Fleet, tmp_path: Path) -> None:
    run = small_detection(name)
    server = three_centres.serve(written(run, tmp_path), tmp_path / "run")
    expected = simulated(run, tmp_path / "simulated")
    finished(server, three_centres)
    found = result(tmp_path / "run")
    assert found["checkpoint_sha256"] == expected["checkpoint_sha256"] and found["engine"] == "flower"
    if name != "single":  # whose detectors are at the centres
        assert found["metrics"] == expected["metrics"]


def handed_out(out: Path, clients: Fleet) -> None:
    """The public set of a run lies where its clients look for it, as soon as the server has written it."""
    place = clients.folder / "public.safetensors"
    place.unlink(missing_ok=True)
    place.symlink_to(out / "public.safetensors")


SECURE = ["privacy.secure_sum=true", "privacy.min_cohort=4", "privacy.threshold=0.6", "privacy.value_bound=64",
          "privacy.most_images=6"]  # fmt: skip


@pytest.mark.deploy
@pytest.mark.parametrize("name", ["fedavg/shared-head", "chorus"])
def test_a_secure_sum_of_processes_is_the_simulated_one(name: str, six: Fleet, tmp_path: Path) -> None:
    run = small_run(name, "data.clients=6", *SECURE, *(["method.choir=3"] if name.startswith("chorus") else []))
    server = six.serve(written(run, tmp_path), tmp_path / "run")
    expected = simulated(run, tmp_path / "simulated")
    finished(server, six)
    found = result(tmp_path / "run")
    assert found["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert found["bytes"] == expected["bytes"] or abs(found["bytes"]["up"] / expected["bytes"]["up"] - 1) < 0.02


@pytest.mark.deploy
def test_noise_in_shares_is_charged_for_every_sum_that_was_told(six: Fleet, tmp_path: Path) -> None:
    """The server is killed and forgets a round; what that round told is charged all the same."""
    noise = ["privacy.dp.noise=4", "privacy.dp.group_noise=4", "privacy.dp.where=distributed", "privacy.dp.delta=0.01"]
    run = small_run("chorus", "data.clients=6", "method.choir=3", *SECURE, *noise, *LONG, "rounds.checkpoint_every=3")
    out, file = tmp_path / "run", written(run, tmp_path)
    server = six.serve(file, out)
    until(lambda: len(rows(out, "rounds.jsonl")) >= 1)
    server.send_signal(signal.SIGKILL)
    server.wait()
    finished(six.serve(file, out), six)
    told, epsilons = rows(out, "told.jsonl"), [row["privacy"]["epsilon"] for row in rows(out, "rounds.jsonl")]
    assert [row["round"] for row in told][-3:] == [1, 2, 3] and len(told) > 3
    assert len(epsilons) == 3 and epsilons == sorted(epsilons)
    report = result(out)["privacy"]
    assert report["epsilon"] == report["epsilon_server"] == epsilons[-1]  # chords show who sang: no amplification


@pytest.mark.deploy
def test_a_client_killed_in_a_secure_sum_is_done_without(tmp_path: Path) -> None:
    """Its masks are removed by the shares that the others hold of its key; restarted, it is in a later sum again."""
    run = small_run("fedavg/shared-head", "data.clients=6", "rounds.rounds=500", "rounds.quorum=0.6", *SECURE, *LONG)
    out = tmp_path / "served" / "run"

    def outcomes() -> list[str]:
        return [row["outcome"] for row in rows(out, "ledger.jsonl") if row["client"] == 2]

    with fleet(tmp_path / "fleet", run) as clients:
        server = clients.serve(written(run, tmp_path / "served"), out)
        clients.start()
        until(lambda: len(outcomes()) >= 1)
        shared = clients.log("client2").count("shared")
        until(lambda: clients.log("client2").count("shared") > shared)  # it has given its shares, and trains
        clients.kill("client2")
        clients.start("client2")
        until(lambda: "counted" not in outcomes()[-1:])
        until(lambda: outcomes()[-1:] == ["counted"])
        server.send_signal(signal.SIGKILL)
        server.wait()
    others = {row["outcome"] for row in rows(out, "ledger.jsonl") if row["client"] != 2}
    assert others == {"counted"} and outcomes()[0] == "counted"
    assert not any(row["void"] for row in rows(out, "rounds.jsonl"))


@pytest.mark.deploy
def test_a_client_killed_in_a_round_and_restarted_goes_on_with_its_state(tmp_path: Path) -> None:
    """It is called again, in this try or in the next, and the end is the same as if nothing had happened."""
    run = small_run("fedavg/positive-only", "data.clients=3", "rounds.rounds=4", *LONG)
    out = tmp_path / "served" / "run"
    with fleet(tmp_path / "fleet", run) as clients:
        server = clients.serve(written(run, tmp_path / "served"), out)
        clients.start()
        until(lambda: len(rows(out, "rounds.jsonl")) == 2)
        clients.kill("client1")
        clients.start("client1")
        expected = simulated(run, tmp_path / "simulated")
        finished(server, clients)
        log = clients.log("client1")
    assert result(out)["checkpoint_sha256"] == expected["checkpoint_sha256"]
    outcomes = [row["outcome"] for row in rows(out, "ledger.jsonl") if row["client"] == 1]
    assert outcomes.count("counted") == 4 and set(outcomes) <= {"counted", "gone", "absent"}
    assert "starts anew" not in log


@pytest.mark.deploy
def test_a_client_that_stays_away_is_missed_and_welcome_back(tmp_path: Path) -> None:
    """Rounds complete at quorum without it; when it is back it counts, with the state that it had."""
    settings = ["data.clients=3", "rounds.rounds=500", "rounds.quorum=0.6", "rounds.deadline=30.0"]
    run = small_run("fedavg/positive-only", *settings)
    out = tmp_path / "served" / "run"
    with fleet(tmp_path / "fleet", run) as clients:
        server = clients.serve(written(run, tmp_path / "served"), out)
        clients.start()
        until(lambda: len(rows(out, "rounds.jsonl")) >= 2)
        clients.kill("client1")
        until(lambda: any(row["outcome"] != "counted" for row in rows(out, "ledger.jsonl")))
        clients.start("client1")
        before = len(rows(out, "ledger.jsonl"))
        counted = {"client": 1, "outcome": "counted"}
        until(lambda: any(counted.items() <= row.items() for row in rows(out, "ledger.jsonl")[before:]))
        server.send_signal(signal.SIGKILL)
        server.wait()
        log = clients.log("client1")
    missed = {row["outcome"] for row in rows(out, "ledger.jsonl") if row["client"] == 1} - {"counted"}
    assert missed and missed <= {"late", "gone", "absent"}
    assert not any(row["void"] for row in rows(out, "rounds.jsonl"))
    assert "starts anew" not in log


@pytest.mark.deploy
@pytest.mark.parametrize("name", ["fedavg/positive-only", "fedface"])
def test_the_server_killed_in_a_round_and_restarted_ends_the_same(name: str, tmp_path: Path) -> None:
    run = small_run(name, "data.clients=3", "rounds.rounds=5", "rounds.checkpoint_every=2", *LONG)
    out, file = tmp_path / "served" / "run", written(run, tmp_path / "served")
    with fleet(tmp_path / "fleet", run) as clients:
        server = clients.serve(file, out)
        clients.start()
        for done in (1, 3):
            until(lambda done=done: len(rows(out, "rounds.jsonl")) >= done)  # type: ignore[misc]
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = clients.serve(file, out)
        expected = simulated(run, tmp_path / "simulated")
        finished(server, clients)
        assert all(process.poll() is None for process in clients.processes.values())  # clients sat it out
    assert result(out)["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert [row["round"] for row in rows(out, "rounds.jsonl")] == [1, 2, 3, 4, 5]


@pytest.mark.deploy
def test_strangers_are_told_why(tmp_path: Path) -> None:
    run = small_run("fedavg/positive-only", "data.clients=3")
    with fleet(tmp_path / "fleet", run) as clients, fleet(tmp_path / "others", run) as others:
        server = clients.serve(written(run, tmp_path / "served"), tmp_path / "served" / "run")
        clients.start("client0")
        until(lambda: "knows this node" in clients.log("client0"))
        home = clients.folder / "client1"
        for change, says in (
            (["--key", others.folder / "client1" / "client.key"], "does not know this key"),
            (["--ca", others.folder / "client1" / "ca.crt"], "does not show a certificate"),
        ):
            clients.write("client1")
            stranger = command("join", home / "client.toml", *change, "--state", tmp_path / "elsewhere", "--quiet")
            done = subprocess.run(stranger, env=environment(), capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 2 and says in done.stderr
        clients.start("client1", "client2")
        finished(server, clients)
    log = (tmp_path / "served" / "run" / "server.log").read_text()
    assert "Attempted to register SuperNode" in log and "a connection was refused" in log
