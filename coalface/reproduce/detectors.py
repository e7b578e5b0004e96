"""Attack detectors on one bench: each is trained once, and tested on every domain that it was not trained on.

A detector is a stage on disk. Tables that share one share it, and many processes can fill one folder together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coalface import config, provenance
from coalface.config import ConfigError, DetectionRun
from coalface.data.centres import DrawDomain, load
from coalface.data.recordings import Recordings
from coalface.data.spoof_folders import FolderDomains
from coalface.detection import Detection
from coalface.liveness import features
from coalface.method import Method
from coalface.models.net import Net, Weights
from coalface.protocols.leave_one_out import Scored, judge, scored
from coalface.report.progress import Progress
from coalface.reproduce.artefact import ScaleName
from coalface.stages import Outcome
from coalface.store import write_atomically

DRAWN_FRAMES, DRAWN_DIRECTIONS = 40, 10  # of each domain's live frames, and of its attacks; directions that vary most
BY_SUBJECT = 1000  # resamples for the intervals


@dataclass(frozen=True)
class Row:
    """One line of a table: a method, the data centres that train by it, and the users."""

    name: str  # of the method, as the paper prints it
    method: Method
    centres: tuple[str, ...]
    target: str
    printed: tuple[float, ...] = ()  # the paper's HTER, EER and AUC; empty: the paper has no such row
    kinds: tuple[str, ...] = ()  # of attack, one for each centre; empty: all
    at_home: bool = False  # whoever uses the detector takes half of its statistics from live frames of their own
    change: Callable[[DetectionRun], DetectionRun] | None = None  # of the scale's run, where this row trains otherwise

    @property
    def trained_on(self) -> str:
        """The centres in words."""
        known = [f"{name} ({kind})" for name, kind in zip(self.centres, self.kinds, strict=False)]
        return "&".join(known or self.centres)

    @property
    def label(self) -> str:
        return f"{self.shown}, {self.trained_on} → {self.target}"

    @property
    def shown(self) -> str:
        """The method in words."""
        return f"{self.name} at home" if self.at_home else self.name

    def of(self, run: DetectionRun, domains: Sequence[str]) -> DetectionRun:
        """The run that trains this row's detector. It knows nothing of the row's users: any others will do as well."""
        first = next(name for name in domains if name not in self.centres)
        data = replace(run.data, centres=self.centres, target=first, kinds=self.kinds)
        mine = replace(run, method=self.method, data=data)
        return self.change(mine) if self.change else mine


@dataclass(frozen=True)
class DetectorArtefact:
    """``coalface reproduce NAME``, of detectors."""

    what: str  # the paper, its number there, and what it shows
    scales: Mapping[ScaleName, DetectionRun]
    table: tuple[Row, ...]
    domains: tuple[str, ...]  # on each that a detector was not trained on, it is tested
    rows_of: str  # the folder of the rows: artefacts that name the same one share them
    draw: DrawDomain
    remarks: str = ""
    figures: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    keep_features: bool = True  # a few, for drawing; never of real people
    shows_features: bool = False  # its figures draw them

    def rows(self, scale: object) -> tuple[Row, ...]:
        """The same rows at every size."""
        return self.table

    def on_sets(self, folder: Path, scale: ScaleName) -> DetectorArtefact:
        """The same table on published sets, ``folder``/O for the domain O: the rows whose domains are there."""
        if self.shows_features:
            raise ConfigError("this figure draws features of single faces: it is made of synthetic people only")
        there = tuple(name for name in self.domains if (folder / name).is_dir())
        table = tuple(row for row in self.table if {*row.centres, row.target} <= set(there))
        if not table:
            raise ConfigError(
                f"{folder} has {', '.join(there) or 'none'} of the domains {', '.join(self.domains)}, a folder each: "
                "too few for any row"
            )
        run = self.scales[scale]
        draw = FolderDomains(folder, run.data.crop, run.data.margin)
        # Not the folder's own name: a result is passed on.
        data = replace(run.data, source="SETS", centres=table[0].centres, target=table[0].target)
        return replace(
            self,
            scales={scale: replace(run, data=data)},
            table=table,
            domains=there,
            rows_of=f"{self.rows_of}-sets",
            draw=draw,
            remarks=f"{self.remarks} Frames: {draw.how(there, data.frames)}. Live faces' depth is one oval.".strip(),
            keep_features=False,
        )

    def changed(self, scale: ScaleName, settings: Sequence[str]) -> DetectorArtefact:
        """This artefact with ``a.b=c`` settings of the scale's run."""
        return replace(self, scales={**self.scales, scale: config.override(self.scales[scale], settings)})

    def bench(
        self, scale: ScaleName, seed: int, out: Path, device: torch.device, progress: Progress, command: str
    ) -> DetectorBench:
        """The bench of one seed."""
        run = replace(self.scales[scale], seed=seed)
        return DetectorBench(run, self.domains, self.draw, out, device, progress, command, self.keep_features)


@dataclass
class DetectorBench:
    """One seed, in one folder."""

    run: DetectionRun
    domains: Sequence[str]
    draw: DrawDomain
    out: Path
    device: torch.device
    progress: Progress
    command: str
    keep_features: bool = True
    drawn: dict[tuple[str, str], Recordings] = field(default_factory=dict)  # domain, split -> what is there already

    def measure(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Every row's measurements, by label."""
        measured = {}
        for row in rows:
            found = self._stage(row)
            measured[row.label] = {**found, **found["statistics_at_home" if row.at_home else "as_sent"][row.target]}
        return measured

    def _stage(self, row: Row) -> dict[str, Any]:
        """A detector's measurements on all domains: found on disk, or made now."""
        run = row.of(self.run, self.domains)
        folder = self.out / "".join(
            letter if letter.isalnum() else "-" for letter in f"{row.name}-{row.trained_on}".lower()
        ).strip("-")
        file = folder / "measured.json"
        if file.exists():
            found: dict[str, Any] = json.loads(file.read_text())
            if found["config_sha256"] != run.sha256():
                raise ConfigError(f"{folder} was measured with other settings: choose another --out, or remove it")
            return found
        measured = self._measured(run, f"{row.name}, {row.trained_on}", folder)
        measured |= {"config_sha256": run.sha256(), "made": provenance.describe(self.device)}
        write_atomically(file, json.dumps(measured).encode())
        return measured

    def _measured(self, run: DetectionRun, title: str, folder: Path) -> dict[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        world = load(run.data, run.seed, self.device, self._drawn, users_at_home=True)
        detection = Detection(run, folder, self.device, self.progress, self.command, world=world)
        done = detection.stages.stage(
            title, folder, run.method, world.clients, detection.first_weights(), run.rounds, run.training
        )

        users = [name for name in self.domains if name not in run.data.centres]
        seen = {name: self._drawn_for(name, "test", run.data.test_subjects) for name in users}
        rounds = done.stage.rounds()
        return {
            "as_sent": self._tested(detection, done.models, seen, world.dev, None),
            "statistics_at_home": self._tested(
                detection, done.models, seen, world.dev_at_home, world.home | self._homes(users)
            ),
            "features": self._features(detection.net, done, seen) if self.keep_features else None,
            "engine": done.engine,
            "rounds": len(rounds),
            "frames": sum(entry["images"] for entry in done.stage.ledger()),
            "seconds": sum(entry["seconds"] for entry in rounds),
        }

    def _homes(self, users: Sequence[str]) -> dict[str, Tensor]:
        """Live frames of people in each users' domain who are not tested."""
        dev = {name: self._drawn_for(name, "dev", self.run.data.dev_subjects) for name in users}
        return {name: held.images[held.live] for name, held in dev.items()}

    def _tested(
        self,
        detection: Detection,
        models: list[Weights],
        seen: Mapping[str, Recordings],
        of_centres: Mapping[str, Recordings],
        homes: Mapping[str, Tensor] | None,
    ) -> dict[str, Any]:
        """By user: rates and curves, and how the centres' dev subjects fare at the same threshold."""

        def here(name: str, recordings: Recordings) -> Scored:
            return scored(detection.scorer(models, homes[name] if homes else None), recordings)

        dev = {name: here(name, recordings) for name, recordings in of_centres.items()}
        seed = self.run.seed
        own = {name: judge(name, mine, dev, seed, replicates=0).as_dict() for name, mine in dev.items()}
        tested = {}
        for name, recordings in seen.items():
            test = here(name, recordings)
            rates = judge(name, test, dev, seed, replicates=BY_SUBJECT).as_dict()
            tested[name] = {"tested": {**rates, **test.curves()}, "dev": own}
        return tested

    def _features(self, net: Net, done: Outcome, seen: Mapping[str, Recordings]) -> dict[str, Any] | None:
        """Of one detector: what it makes of some frames of its centres and of users, for a picture of them."""
        if len(done.models) > 1:
            return None
        sources = {name: held for (name, split), held in self.drawn.items() if split == "train" and name not in seen}
        groups = {
            f"{name} {kind}": held.images[held.live if kind == "live" else ~held.live][:DRAWN_FRAMES]
            for name, held in {**sources, **seen}.items()
            for kind in ("live", "attack")
        }
        points = _flattened(features(net, done.models[0], torch.cat(list(groups.values()))))
        return {"groups": {name: len(images) for name, images in groups.items()}, "points": points}

    def _drawn(self, name: str, split: str, *how: Any, **named: Any) -> Recordings:
        """As ``draw``, once for each domain and split."""
        if (name, split) not in self.drawn:
            self.drawn[name, split] = self.draw(name, split, *how, **named)
        return self.drawn[name, split]

    def _drawn_for(self, name: str, split: str, subjects: int) -> Recordings:
        data = self.run.data
        return self._drawn(name, split, subjects, data.videos, data.frames, data.size, self.run.seed, self.device)


def _flattened(points: Tensor) -> list[list[float]]:
    """In the few directions in which they vary most, in units of the first one's spread."""
    centred = (points - points.mean(0)).double().cpu()
    _, spread, directions = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:DRAWN_DIRECTIONS].T / (spread[0] / len(points) ** 0.5).clamp(min=1e-12)
    return [[round(value, 3) for value in row] for row in flat.tolist()]
