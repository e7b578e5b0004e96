"""A whole run of attack detection: data centres train, and the detector is tested on a domain that none of them has.

Its stages are those of an ``Experiment``: the same rounds, checkpoints, engines and resume.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coalface import provenance, seeding, tree
from coalface.algorithms import METHODS
from coalface.config import DetectionRun, method_name
from coalface.data.attacks import draw_domain
from coalface.data.centres import DomainWorld, load
from coalface.data.recordings import ATTACKS, Recordings
from coalface.data.spoof_folders import FolderDomains
from coalface.experiment import disclosure, traffic
from coalface.liveness import at_home, liveness
from coalface.method import Method
from coalface.models.checkpoints import load_weights, save_weights
from coalface.models.detector import detector
from coalface.models.net import Net, Weights
from coalface.protocols.leave_one_out import Scored, Scorer, judge, scored
from coalface.report.detection_page import page
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table
from coalface.run_folder import alone, begin, json_bytes
from coalface.stages import EngineName, Remote, Stages, models, own_model
from coalface.store import Stage, write_atomically

RATES = ("hter", "eer", "auc")
SAMPLES = 8  # frames of a kind in the report


class Detection:
    """One run in one folder, and one in a folder below it for each of its ends."""

    def __init__(
        self,
        run: DetectionRun,
        out: Path,
        device: torch.device,
        progress: Progress,
        command: str,
        engine: EngineName = "auto",
        world: DomainWorld | None = None,
        remote: Remote | None = None,
    ) -> None:
        """``world`` are recordings that are there already, and may be of real people; without it they are drawn.

        ``remote``: the centres are elsewhere, and so are their recordings; the ends are not run then.
        """
        self.remote = remote
        self.run, self.out, self.device, self.progress, self.command = run, out, device, progress, command
        self.engine_name = engine
        self.began = time.perf_counter()
        run.numerics.switch_on()
        self.net = detector_net(run)
        self.stages = Stages(run, self.net, device, progress, self.scores, engine, remote)
        self.stages.check_method()
        self.given = load_weights(Path(run.weights), self.net) if run.weights else None
        self.synthetic = world is None and run.data.source == "synthetic"
        self.files: str | None = None  # a hash over the files that were read here
        self.world = world or self._drawn()
        self.stages.check(self.world.clients)

    def execute(self) -> dict[str, Any]:
        """The result, as written to result.json."""
        with alone(self.out):
            return self._executed()

    def _executed(self) -> dict[str, Any]:
        run = self.run
        self.command = begin(self.out, run, self.command, self.files)
        name = method_name(run.method)
        done = self.stages.stage(
            name, self.out, run.method, self.world.clients, self.first_weights(), run.rounds, run.training, True
        )
        for number, weights in enumerate(done.models):
            save_weights(self.out / ("model.safetensors" if not number else f"model{number}.safetensors"), weights)
        here = done.stage if self.remote is None else None
        metrics = {name: self.judged(run.method, done.server, here, replicates=1000)}
        if self.remote is None:
            metrics |= {end: self._end(end)["metrics"][end] for end in run.ends if end != name}
        ledger, rounds = done.stage.ledger(), done.stage.rounds()
        result = {
            "title": f"{name}{' at home' * run.at_home}, {'&'.join(run.data.sources())} → {run.data.target}",
            "method": name,
            "model": self.net.name,
            "command": self.command,
            "seed": run.seed,
            "rounds": run.rounds.rounds,
            "clients": len(self.world.clients),
            "recordings": self.recordings(),
            "metrics": metrics,
            "disclosure": disclosure(run.method),
            "bytes": traffic(ledger),
            "seconds": {"federated": sum(row["seconds"] for row in rounds), "this_process": self._seconds()},
            "engine": done.engine,
            "config_sha256": run.sha256(),
            "checkpoint_sha256": tree.sha256(done.server),
            "private_sha256": done.stage.private.sha256(),
            **provenance.describe(self.device),
        }
        write_atomically(self.out / "result.json", json_bytes(result))
        write_atomically(self.out / "report.html", page(result, rounds, ledger, self.sample_frames()).encode())
        return result

    def recordings(self) -> str:
        """Where frames come from, how many there are, and what is cut out of them."""
        data, test = self.run.data, self.world.test
        how = "synthetic" if data.source == "synthetic" else self._folders().how(data.domains(), data.frames)
        counts = f"{int(self.world.clients.counts().sum()):,} frames train, {len(test):,} test"
        return f"{how}; {data.size} × {data.size} pixels; {counts}"

    def sample_frames(self) -> dict[str, Tensor]:
        """A few of the users' frames, live and by kind of attack: synthetic ones, real faces never enter a report."""
        test, shown = self.world.test, {}
        for kind in test.attack.unique().tolist() if self.synthetic else []:
            mine = test.images[test.attack == kind]
            shown[ATTACKS[kind]] = mine[:: max(1, len(mine) // SAMPLES)][:SAMPLES].cpu()
        return shown

    def first_weights(self) -> Weights:
        """The weights that the server sends out first: loaded, or fresh."""
        weights = self.given or self.net.fresh(seeding.derive(self.run.seed, "weights"))
        return weights.map(lambda leaf: leaf.to(self.device))

    def scores(self, method: Method, server: Any, stage: Stage | None) -> dict[str, float]:
        """The numbers of an evaluated round, by frame."""
        judged = self.judged(method, server, stage, replicates=0)
        return {rate: sum(row["frame"][rate] for row in judged) / len(judged) for rate in RATES}

    def judged(self, method: Method, server: Any, stage: Stage | None, replicates: int) -> list[dict[str, Any]]:
        """Rates on the users' recordings at the centres' threshold: of the detector, or of each centre's own.

        Without a stage the centres' own detectors are elsewhere, and the server's is all that there is.
        """
        if not method.personal or stage is None:
            return [self._judged(models(method, server, stage), self.dev(), replicates)]
        names, judged = list(self.world.dev), []
        for centre in stage.private.clients():
            its_own = {names[centre]: self.dev()[names[centre]]}  # nobody else's recordings to find a threshold with
            judged.append(self._judged([own_model(method, server, stage, centre)], its_own, replicates))
        return judged

    def dev(self) -> dict[str, Recordings]:
        """The centres' recordings that thresholds come from; at home, of people who are not in the home's frames."""
        return self.world.dev_at_home if self.run.at_home else self.world.dev

    def _judged(self, detectors: list[Weights], dev_of: Mapping[str, Recordings], replicates: int) -> dict[str, Any]:
        def here(name: str, recordings: Recordings) -> Scored:
            return scored(self.scorer(detectors, self.world.home[name] if self.run.at_home else None), recordings)

        target = self.run.data.target
        dev = {name: here(name, recordings) for name, recordings in dev_of.items()}
        test = here(target, self.world.test)
        return {**judge(target, test, dev, self.run.seed, replicates=replicates).as_dict(), **test.curves()}

    def scorer(self, detectors: list[Weights], home: Tensor | None) -> Scorer:
        """What detectors say together, as they were sent or with statistics of these live frames; on the host."""
        used = detectors if home is None else [at_home(self.net, weights, home) for weights in detectors]
        return lambda images: liveness(self.net, used, images).cpu()

    def _drawn(self) -> DomainWorld:
        run, elsewhere = self.run, self.remote.roster if self.remote else None
        if self.synthetic:
            with self.progress.stage("recordings", total=1) as bar:
                world = load(run.data, run.seed, self.device, draw_domain, run.at_home, elsewhere)
                bar.advance(1)
            return world
        folders = self._folders()
        with self.progress.stage("recordings", total=folders.clips(run.data.domains())) as bar:
            folders.each = bar.advance
            self.files = folders.hash_of_clips(run.data.domains())
            return load(run.data, run.seed, self.device, folders, run.at_home, elsewhere)

    def _folders(self) -> FolderDomains:
        data = self.run.data
        return FolderDomains(Path(data.source), data.crop, data.margin)

    def _end(self, name: str) -> dict[str, Any]:
        run = replace(self.run, method=METHODS[name](), model="", weights="", ends=())
        return Detection(
            run, self.out / name, self.device, self.progress, self.command, self.engine_name, self.world
        ).execute()

    def _seconds(self) -> float:
        return time.perf_counter() - self.began


def detector_net(run: DetectionRun) -> Net:
    """The network of a run, with one output."""
    return detector(run.model or run.method.network, run.data.size, run.width, run.numerics)


def table(result: dict[str, Any]) -> str:
    """The method and its ends in percent, by frame and by video; of several centres' own detectors the mean."""
    header = ["", *(f"{rate.upper()}, {unit}" for unit in ("frame", "video") for rate in RATES)]
    rows = []
    for name, judged in result["metrics"].items():
        means = [sum(row[unit][rate] for row in judged) / len(judged) for unit in ("frame", "video") for rate in RATES]
        rows.append([name, *(f"{100 * mean:.1f}" for mean in means)])
    return f"{result['title']}\n\n{markdown_table(rows, header)}\n\n{result['recordings']}"
