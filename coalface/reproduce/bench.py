"""Many methods on one bench: faces, the start and the tests are made once for a seed, and every row is a stage on disk.

A row that is finished is not trained again, so a command that was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from coalface import provenance
from coalface.config import ConfigError, Run
from coalface.data.world import Data, World
from coalface.experiment import Experiment
from coalface.local import Training
from coalface.method import Method
from coalface.metrics.rates import roc_curve
from coalface.models.net import Net, Weights
from coalface.report.progress import Progress
from coalface.stages import Outcome
from coalface.store import write_atomically

ROC_POINTS = 200  # of a curve in a result file
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
    data: Data | None = None  # None: that of the scale; a row may deal the same people out in another way
    printed: tuple[float | None, ...] = ()  # the paper's numbers, column by column; empty: the paper has no such row

    def of(self, run: Run) -> Run:
        """The run of this row, where ``run`` is the scale's."""
        data, training = self.data or run.data, self.training or run.training
        return replace(run, method=self.method or run.method, data=data, training=training)


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
    public_proxies: Tensor | None = None  # what pre-training ended with, beside the start

    def measure(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Every row's measurements, by label."""
        return {row.label: finished(self.out, row, self.run) or self._measure(row) for row in rows}

    def _measure(self, row: Row) -> dict[str, Any]:
        file = _file(self.out, row)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Rows of one table may come from several machines.
        made = {"config_sha256": row.of(self.run).sha256(), "made": provenance.describe(self.device)}
        measured = self._measured(row, file.parent) | made
        write_atomically(file, json.dumps(measured).encode())
        return measured

    @cached_property
    def _tests(self) -> Mapping[str, Test]:
        return self.tests(self._experiment(self.run, self.out).net, self.device, self.run.seed)

    def _measured(self, row: Row, folder: Path) -> dict[str, Any]:
        if self.start is None:
            self.start, self.public_proxies = self._experiment(self.run, self.out).start()
        if row.method is None and not row.central:
            return {"scores": _scores(self._tests, self.start, None)}
        run = row.of(self.run)
        experiment = self._experiment(run, folder)
        people = experiment.clients(self.start, self.public_proxies)
        if row.central:
            done = experiment.stages.centrally(row.label, folder, run.central, people, self.start)
        else:
            done = experiment.stages.stage(row.label, folder, run.method, people, self.start, run.rounds, run.training)
        rounds = done.stage.rounds()
        return {
            "scores": _scores(self._tests, done.models[0], None if row.central else run.method.head(done.server)),
            "engine": done.engine,
            "rounds": len(rounds),
            "images": sum(entry["images"] for entry in done.stage.ledger()),
            "seconds": sum(entry["seconds"] for entry in rounds),
            "class_cosines": _class_cosines(done),
        }

    def _experiment(self, run: Run, out: Path) -> Experiment:
        given = self.worlds.get(run.data)
        experiment = Experiment(run, out, self.device, self.progress, self.command, loaded=given)
        self.worlds[run.data] = experiment.world
        return experiment


def finished(out: Path, row: Row, run: Run) -> dict[str, Any] | None:
    """A row's measurements, if it was measured in this folder; with other settings than now, it is refused."""
    file = _file(out, row)
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    if found["config_sha256"] != row.of(run).sha256():
        raise ConfigError(f"{file.parent} was measured with other settings: choose another --out, or remove it")
    return found


def _file(out: Path, row: Row) -> Path:
    folder = "".join(letter if letter.isalnum() else "-" for letter in row.label.lower()).strip("-")
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
            "effective_rank": metrics["effective_rank"],
            "roc": [fmr.tolist(), tar.tolist()],
        }
    return scores


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
