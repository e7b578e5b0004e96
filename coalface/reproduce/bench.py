"""Many methods on one bench: faces, the start and the tests are made once for a seed, and every row is a stage on disk.

A row that is finished is not trained again, so a command that was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from coalface import provenance
from coalface.config import Central, ConfigError, Run, from_json, to_json
from coalface.data.faceset import FaceView
from coalface.data.population import Population
from coalface.data.world import Data, World
from coalface.experiment import Experiment
from coalface.local import Training
from coalface.method import Method
from coalface.metrics.rates import roc_curve
from coalface.models.net import Net, Weights
from coalface.personal_evaluation import ModelOf, PersonalEvaluation, models_of, same_for_all
from coalface.report.progress import Progress
from coalface.stages import Outcome
from coalface.store import write_atomically

ROC_POINTS = 200  # of a curve in a result file
PERSONAL = "personal"  # the test whose people are the clients' own
COSINE_BINS = 80  # of the histogram of class embeddings, from −1 to 1


class Test(Protocol):
    """Unseen people and the pairs to tell apart (``evaluation``)."""

    def report(self, weights: Weights, head: Tensor | None = None) -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
        """Metrics, and the (impostor, genuine) scores behind them."""


@dataclass(frozen=True)
class Row:
    """One line of a table: a method with how it is trained; or central training; or, without a method, the start."""

    label: str  # as the paper prints it
    method: Method | None = None
    central: bool = False
    training: Training | None = None  # None: that of the scale
    plan: Central | None = None  # of central training; None: that of the scale
    data: Data | None = None  # None: that of the scale; a row may deal the same people out in another way
    printed: tuple[float | None, ...] = ()  # the paper's numbers, column by column; empty: the paper has no such row
    model: str = ""  # the network; empty: that of the scale
    rounds: int = 0  # 0: as many as the scale has
    after: Row | None = None  # it starts from what this row ends with, and not from the server's start
    trained_as: str = ""  # the label under which it is trained, if another row is trained alike
    whose: str = ""  # personal numbers of this model: generic, local or own; empty: of the one that clients end with

    def of(self, run: Run) -> Run:
        """The run of this row, where ``run`` is the scale's."""
        data, training = self.data or run.data, self.training or run.training
        rounds = replace(run.rounds, rounds=self.rounds or run.rounds.rounds)
        model, central = self.model or run.model, self.plan or run.central
        changed = replace(run, model=model, data=data, training=training, rounds=rounds, central=central)
        return replace(changed, method=self.method or run.method)

    def fingerprint(self, run: Run) -> str:
        """A hash of every setting, those of the row that it starts from included."""
        before = f"{self.after.fingerprint(run)}+" if self.after else ""
        return before + self.of(run).sha256()

    def settings(self, run: Run) -> list[Any]:
        """Every setting as plain JSON values, those of the row that it starts from first."""
        return [*(self.after.settings(run) if self.after else ()), to_json(self.of(run))]

    def score(self, measured: dict[str, Any], test: str, score: str) -> float | None:
        """One number of this row's measurements; None for a rate that the personal pairs cannot carry."""
        if test == PERSONAL:
            found: float | None = measured["scores"][f"{test}, {self.whose}" if self.whose else test].get(score)
            return found
        return float(measured["scores"][test][score])


@dataclass
class Bench:
    """One seed of one artefact, in one folder."""

    run: Run
    tests: Callable[[Net, torch.device, int], Mapping[str, Test]]
    out: Path
    device: torch.device
    progress: Progress
    command: str
    worlds: dict[Data, World] = field(default_factory=dict)  # faces that are already loaded
    start: Weights | None = None  # None: pre-trained as the run says, or fresh
    _ready: dict[str, Any] = field(default_factory=dict)  # network -> its start, public proxies, and tests

    def measure(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Every row's measurements, by label."""
        return {row.label: finished(self.out, row, self.run) or self._measure(row) for row in rows}

    def _measure(self, row: Row) -> dict[str, Any]:
        file = measured_file(self.out, row)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Rows of one table may come from several machines.
        made = {"config_sha256": row.fingerprint(self.run), "made": provenance.describe(self.device)}
        measured = self._measured(row) | made | {"settings": row.settings(self.run)}
        write_atomically(file, json.dumps(measured).encode())
        return measured

    def _measured(self, row: Row) -> dict[str, Any]:
        start, _, tests = self._prepared(row)
        experiment = self._experiment(row.of(self.run), measured_file(self.out, row).parent)
        if row.method is None and not row.central:
            return {
                "scores": _scores(tests, start, None) | self._personal(experiment, {"generic": same_for_all(start)})
            }
        done = self._outcome(row)
        method, rounds, ledger = experiment.run.method, done.stage.rounds(), done.stage.ledger()
        if row.central:
            head, of_all = None, {"generic": same_for_all(done.models[0])}
        else:
            head, of_all = method.head(done.server), models_of(method, done.server, done.stage.private)
        scores = _scores(tests, done.models[0], head) | self._personal(experiment, of_all)
        clients, training = experiment.world.clients, experiment.run.training
        if not row.central and clients.public.faces is not None and not training.images_per_round:
            scores["public"] = {"used": public_used(clients, clients.public.faces, training.epochs, ledger)}
        return {
            "scores": scores,
            "engine": done.engine,
            "rounds": len(rounds),
            "images": sum(entry["images"] for entry in ledger),
            "seconds": sum(entry["seconds"] for entry in rounds),
            "class_cosines": _class_cosines(done),
        }

    def _outcome(self, row: Row) -> Outcome:
        """The row, trained; from its last checkpoint if it has one."""
        run, folder = row.of(self.run), measured_file(self.out, row).parent
        experiment = self._experiment(run, folder)
        start, public_proxies, _ = self._prepared(row)
        if row.after is not None:
            start = self._outcome(row.after).models[0]
        if row.central:
            seen = experiment.world.everyone() if self.run.method.holds_public else experiment.world.clients
            return experiment.stages.centrally(row.label, folder, run.central, seen, start)
        people = experiment.clients(start, public_proxies)
        return experiment.stages.stage(row.label, folder, run.method, people, start, run.rounds, run.training)

    def _prepared(self, row: Row) -> tuple[Weights, Tensor | None, Mapping[str, Test]]:
        """The start of the row's network, the public people's class embeddings beside it, and the tests."""
        model = row.model or self.run.model
        if model not in self._ready:
            folder = self.out / model if row.model else self.out
            experiment = self._experiment(replace(self.run, model=model), folder)
            start = (self.start, None) if self.start is not None else experiment.start()
            self._ready[model] = (*start, self.tests(experiment.net, self.device, self.run.seed))
        ready: tuple[Weights, Tensor | None, Mapping[str, Test]] = self._ready[model]
        return ready

    def _personal(self, experiment: Experiment, of_all: dict[str, ModelOf]) -> dict[str, Any]:
        """The personal numbers of each of a row's models, and again of the one that clients end with."""
        faces = experiment.world
        if faces.probes is None:
            return {}
        evaluation = PersonalEvaluation(experiment.net, faces.clients, faces.probes, experiment.run.data.probed_clients)
        reports = {whose: _flat(evaluation.report(model_of)) for whose, model_of in of_all.items()}
        named = {f"{PERSONAL}, {whose}": report for whose, report in reports.items()}
        return {PERSONAL: reports.get("own", next(iter(reports.values()))), **named}

    def _experiment(self, run: Run, out: Path) -> Experiment:
        given = self.worlds.get(run.data)
        experiment = Experiment(run, out, self.device, self.progress, self.command, loaded=given)
        self.worlds[run.data] = experiment.world
        return experiment


def finished(out: Path, row: Row, run: Run) -> dict[str, Any] | None:
    """A row's measurements, if it was measured in this folder; with other settings than now, it is refused."""
    file = measured_file(out, row)
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    if found["config_sha256"] != row.fingerprint(run) and not _as_now(found.get("settings", []), row, run):
        raise ConfigError(f"{file.parent} was measured with other settings: choose another --out, or remove it")
    return found


def _as_now(settings: list[Any], row: Row, run: Run) -> bool:
    """Whether a row's settings are those of now; one that did not exist then had what is its default now."""
    try:
        return [to_json(from_json(Run, each)) for each in settings] == row.settings(run)
    except ConfigError:  # a setting that is gone: whatever it did, nothing does it now
        return False


def measured_file(out: Path, row: Row) -> Path:
    """Where a row's measurements are; the stage that it was trained in lies beside them."""
    label = row.trained_as or row.label
    folder = "".join(letter if letter.isalnum() else "-" for letter in label.lower()).strip("-")
    return out / folder / "measured.json"


def _scores(tests: Mapping[str, Test], weights: Weights, head: Tensor | None) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for name, test in tests.items():
        metrics, (impostor, genuine) = test.report(weights, head)
        tars = {f"tar@{point['target_fmr']:g}": point["tar"] for point in metrics["at_fmr"]}
        fmr, tar = roc_curve(impostor, genuine, ROC_POINTS)
        scores[name] = {
            "accuracy": metrics["accuracy"]["accuracy"],
            **tars,
            **{f"tpir@{point['target_fpir']:g}": point["tpir"] for point in metrics.get("at_fpir", ())},
            "effective_rank": metrics["effective_rank"],
            "roc": [fmr.tolist(), tar.tolist()],
        }
    return scores


def _flat(report: dict[str, Any]) -> dict[str, float]:
    """Of a personal report, the means over clients: 1:1 against others, 1:N with rank one, and AUROC."""
    verified, found = report["verification"]["others"], report["identification"]["standard"]
    return {
        **{f"tar@{point['target_fmr']:g}": point["tar"]["mean"] for point in verified["at_fmr"]},
        **{f"tpir@{point['target_fpir']:g}": point["tpir"]["mean"] for point in found},
        "auroc": report["enrolled_auc"]["mean"],
        "auroc_pairs": verified["auc"]["mean"],
    }


def public_used(clients: Population, public: FaceView, passes: int, ledger: list[dict[str, Any]]) -> float:
    """Public images that clients trained on, as a share of those that they would have with all of them each time."""
    own = clients.counts()
    used = sum(entry["images"] - passes * int(own[entry["client"]]) for entry in ledger)
    return float(used / (passes * len(ledger) * len(public)))


def _class_cosines(done: Outcome) -> list[int] | None:
    """A histogram of the cosines between class embeddings, where somebody holds them all; numbers, no embedding."""
    rows = getattr(done.server, "class_embeddings", None)
    if rows is None and len(done.stage.private.clients()) == 1:
        rows = getattr(done.stage.private.load(0, 1 << 62), "head", None)  # central training holds everyone's
    if rows is None or len(rows) < 2:
        return None
    unit = torch.nn.functional.normalize(rows[rows.any(dim=1)].float(), dim=1)
    cosines = (unit @ unit.T)[~torch.eye(len(unit), dtype=torch.bool, device=unit.device)]
    return [int(count) for count in torch.histc(cosines.cpu(), COSINE_BINS, -1.0, 1.0)]
