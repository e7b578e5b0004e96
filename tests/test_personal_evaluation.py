"""Which model is measured on whose faces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface.algorithms.fedavg import PrivateHead
from coalface.algorithms.fedfr import FedFR
from coalface.algorithms.local_only import LocalOnly
from coalface.config import Central, Run
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.population import Population
from coalface.data.world import Data
from coalface.experiment import Experiment
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models.head import affine_identity
from coalface.models.net import Net
from coalface.personal_evaluation import PersonalEvaluation
from coalface.protocols.personal import enrol, enrolled_auc, verify
from coalface.report.progress import Progress
from tests.conftest import noise_faces


def small(clients: int = 4) -> tuple[Population, FaceView]:
    """Two people each, of whom two images are trained on and three are probes. They look like nobody: rates are low."""
    faces = noise_faces(10 * clients, 1, seed=2)
    faces = FaceSet(faces.images, faces.offsets[::5])
    held = tuple((2 * client, 2 * client + 1) for client in range(clients))
    rows = torch.arange(10 * clients).reshape(-1, 5)[:, 2:].flatten()
    labels = torch.arange(2 * clients).repeat_interleave(3)
    return Population(faces, held, (2,) * clients), FaceView(faces, rows, labels, 2 * clients)


def test_the_numbers_are_means_over_clients(net: Net) -> None:
    clients, probes = small()
    weights = [net.fresh(client) for client in range(4)]
    report = PersonalEvaluation(net, clients, probes, most=0).report(lambda client: (weights[client], None))
    tars, aucs = [], []
    for client in range(4):
        features = net(weights[client], probes.gather(torch.arange(24)))
        mine = probes.labels // 2 == client
        labels = probes.labels[mine] - 2 * client
        found = verify(features[mine], labels, features[~mine], [0.1])["others"]
        tars.append(found.at_fmr[0].tar)
        gallery = enrol(net(weights[client], clients[client].images), clients[client].labels, 2)
        aucs.append(enrolled_auc(gallery, features[mine], labels, features[~mine]))
    (point,) = [p for p in report["verification"]["others"]["at_fmr"] if p["target_fmr"] == 0.1]
    assert point["tar"]["mean"] == pytest.approx(sum(tars) / 4) and point["tar"]["spread"] > 0
    assert report["enrolled_auc"]["mean"] == pytest.approx(sum(aucs) / 4)
    assert report["verification"]["others"]["impostor_pairs"] == 6 * 18
    assert report["clients"] == 4 and report["pairs_per_second"] > 0
    assert [p["target_fpir"] for p in report["identification"]["standard"]] == [0.1]  # of 18 strangers, no lower


def test_a_head_comes_after_the_backbone(net: Net) -> None:
    clients, probes = small()
    evaluation, weights = PersonalEvaluation(net, clients, probes, most=0), net.fresh(0)
    plain = evaluation.report(lambda _: (weights, None))
    same = affine_identity(8, like=torch.ones(1))
    for head, equal in ((same, True), (same * torch.arange(1, 10), False)):
        other = evaluation.report(lambda _, head=head: (weights, head))
        assert (other["enrolled_auc"] == pytest.approx(plain["enrolled_auc"])) is equal


def test_fewer_clients_are_spread_evenly(net: Net) -> None:
    clients, probes = small(6)
    asked = []

    def model_of(client: int) -> tuple[object, None]:
        asked.append(client)
        return net.fresh(0), None

    report = PersonalEvaluation(net, clients, probes, most=3).report(model_of)  # type: ignore[arg-type]
    assert asked == [0, 2, 4] and report["clients"] == 3


def finished(method: Method, folder: Path, central_rounds: int = 1, cohort: int = 0) -> dict[str, Any]:
    people = Data(size=16, public=4, public_images=3, clients=3, identities_each=2, images_each=4, probe_images=3)
    before, central = Central(rounds=1), Central(rounds=central_rounds)
    run = Run(
        method, "tiny", 8, data=replace(people, test=20, test_images=3, pairs=20), pretrain=before, central=central,
        rounds=Rounds(rounds=1, cohort=cohort), training=Training(batch=8, rate=0.001),
    )  # fmt: skip
    with Progress(quiet=True) as progress:
        return Experiment(run, folder, torch.device("cpu"), progress, "test", "sequential").execute()


def test_a_run_measures_generic_and_personal_models(tmp_path: Path) -> None:
    result = finished(FedFR(), tmp_path)
    assert set(result["personal"]) == {"start", "generic", "own", "local", "central"}
    assert json.loads((tmp_path / "result.json").read_text())["personal"] == result["personal"]
    assert "at_fmr" in result["metrics"]["method"] and "mean_over_clients" not in result["metrics"]["method"]
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Personal</h2>" in page and "1:N TPIR@FPIR 1e-01 (release" in page


@pytest.mark.parametrize(
    ("method", "models"),
    [
        (FedFR(branch="none"), {"start", "generic", "own", "central"}),
        (LocalOnly(), {"start", "own", "central"}),
        (PrivateHead(), {"start", "generic", "central"}),
    ],
)
def test_only_models_that_differ_are_measured(method: Method, models: set[str], tmp_path: Path) -> None:
    assert set(finished(method, tmp_path)["personal"]) == models


def test_without_central_training_the_rest_is_compared(tmp_path: Path) -> None:
    result = finished(PrivateHead(), tmp_path, central_rounds=0, cohort=100)
    assert set(result["metrics"]) == {"start", "method"} and set(result["personal"]) == {"start", "generic"}
    assert not (tmp_path / "central").exists()
    assert "central training was not run" in (tmp_path / "report.html").read_text()
    assert (result["clients"], result["cohort"]) == (3, 3)  # a round of a hundred of three clients has three
