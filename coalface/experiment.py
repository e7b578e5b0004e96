"""A whole run: pre-train on public faces, federate, train centrally for comparison, evaluate, write it down.

Pre-training and central training are federations too, of one client: the same round, checkpoints and resume.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import safetensors.torch
import torch
from torch import Tensor

from coalface import provenance, seeding, tree, wire
from coalface.algorithms.centralised import Centralised
from coalface.config import Central, ConfigError, Run, method_name, to_json
from coalface.data import world
from coalface.data.population import Population
from coalface.engines.engine import Engine
from coalface.engines.faults import Faulty
from coalface.engines.sequential import Sequential
from coalface.engines.stacked import Stacked, why_not, why_several_steps, worth_it
from coalface.evaluation import Verification
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models.checkpoints import load_weights, save_weights
from coalface.models.net import Net, Weights
from coalface.report.page import PageContent, write_page
from coalface.report.progress import Progress
from coalface.store import Stage, explained, write_atomically

EngineName = Literal["auto", "sequential", "stacked"]
PERSONAL_MODELS = 8  # of a method that ends with a model per client, so many are evaluated


@dataclass(frozen=True)
class Outcome:
    """A finished stage."""

    server: Any
    stage: Stage
    models: list[Weights]  # the global one, or a sample of the clients' own
    engine: str


class Remote(Protocol):
    """Clients on other machines (``engines.flower_server``)."""

    @property
    def roster(self) -> Population:
        """Who they are, without an image of theirs."""

    def private(self, method: Method) -> type[wire.Private] | None:
        """What stands at the server for the state that they keep."""

    def engine(self, run: Run, stage: Stage) -> Engine:
        """The engine that calls them."""


class Experiment:
    """One run in one folder. Calling ``execute`` again after a crash goes on where it stopped."""

    def __init__(
        self,
        run: Run,
        out: Path,
        device: torch.device,
        progress: Progress,
        command: str,
        engine: EngineName = "auto",
        remote: Remote | None = None,
    ) -> None:
        """``remote``: the clients are elsewhere, and so are their faces; there is no central training then."""
        self.remote = remote
        self.run, self.out, self.device, self.progress, self.command = run, out, device, progress, command
        self.engine_name = engine
        self.began = time.perf_counter()
        self.net = Net(run.model, embedding=run.embedding, size=run.data.size)
        self.given = load_weights(Path(run.weights), self.net) if run.weights else None
        with progress.stage("faces", total=run.data.images()) as stage:
            self.world = world.load(
                run.data,
                run.seed,
                device,
                lambda done, _: stage.advance(done - stage.done),
                elsewhere=remote.roster if remote else None,
            )
        run.method.check(self.world.clients)
        self.check_engine()
        self.verification = Verification(self.net, self.world.test, run.data.pairs, run.seed)

    def execute(self) -> dict[str, Any]:
        """The result, as written to result.json; the page stands beside it."""
        run = self.run
        with explained(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        write_atomically(self.out / "config.json", _json(to_json(run)))
        self.world.partition.write_manifest(self.out / "partition.json")
        start = self.start()
        federated = self.stage(
            "federating", self.out, run.method, self.world.clients, start, run.rounds, run.training, main=True
        )
        models = {"start": [start], "method": federated.models}
        if self.remote is None:
            models["central"] = self.centrally(
                "central", self.out / "central", run.central, self.world.clients, start
            ).models
        save_weights(self.out / "start.safetensors", start)
        save_weights(self.out / "model.safetensors", federated.models[0])
        if (head := run.method.head(federated.server)) is not None:
            write_atomically(self.out / "head.safetensors", safetensors.torch.save({"head": head.contiguous().cpu()}))
        return self.write_result(models, federated)

    def start(self) -> Weights:
        """The weights that the server sends out first: loaded, pre-trained on public faces, or fresh."""
        if self.given is not None:
            return self.given.map(lambda leaf: leaf.to(self.device))
        fresh = self.net.fresh(seeding.derive(self.run.seed, "weights")).map(lambda leaf: leaf.to(self.device))
        if self.world.public is None or not self.run.pretrain.rounds:
            return fresh
        folder = self.out / "pretrain"
        return self.centrally("pre-training", folder, self.run.pretrain, self.world.public, fresh).models[0]

    def centrally(self, title: str, folder: Path, plan: Central, population: Population, start: Weights) -> Outcome:
        """Train on pooled faces."""
        normalisation = "average" if start.statistics else "frozen"
        method = Centralised(scale=plan.scale, margin=plan.margin, normalisation=normalisation)  # type: ignore[arg-type]
        return self.stage(title, folder, method, population, start, Rounds(rounds=plan.rounds), plan.training)

    def stage(
        self,
        title: str,
        folder: Path,
        method: Method,
        population: Population,
        start: Weights,
        rules: Rounds,
        training: Training,
        main: bool = False,
    ) -> Outcome:
        """One federation, from its last checkpoint if it has one; ``main`` is the one that the run is about."""
        population = method.clients(population)
        remote = self.remote if main else None
        kept = remote.private(method) if remote else method.types.private
        stage = Stage(folder, method.types.server, kept, self.fingerprint(), self.device)
        engine = remote.engine(self.run, stage) if remote else self.engine(method, population, stage, rules, training)
        if main and self.run.faults.any():
            engine = Faulty(engine, self.run.faults)
        federation = Federation(
            method,
            self.net,
            len(population),
            engine,
            rules,
            training,
            self.run.seed,
            stage,
            evaluate=lambda server: self.verification.scores(
                self.models(method, server, None if remote else stage), method.head(server)
            ),
        )
        resumed = stage.resume()
        if resumed is None:
            done, server = 0, method.begin(self.net, start, population, seeding.generator(self.run.seed, "begin"))
        else:
            done, server = resumed
        with self.progress.stage(title, total=rules.rounds, done=done) as bar:
            for entry, after in federation.run(server, first_round=done + 1):
                server = after
                shown = {**entry.losses, **entry.scores}
                note = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
                bar.advance(0 if entry.void else 1, note="void round" if entry.void else note)
        return Outcome(server, stage, self.models(method, server, None if remote else stage), engine.name)

    def fingerprint(self) -> str:
        """A hash of everything that decides the outcome: the settings, and who takes part if they are elsewhere."""
        if self.remote is None:
            return self.run.sha256()
        return hashlib.sha256(f"{self.run.sha256()} {self.remote.roster.clients}".encode()).hexdigest()

    def check_engine(self) -> None:
        """Refuse an engine that cannot run the method, before anything is done."""
        run = self.run
        refusal = why_not(run.method)
        if self.engine_name == "stacked" and refusal:
            raise ConfigError(f"--engine stacked cannot run {method_name(run.method)}: {refusal}; use --engine auto")

    def engine(self, method: Method, population: Population, stage: Stage, rules: Rounds, training: Training) -> Engine:
        """The engine that was asked for; ``auto`` takes the stacked one where it applies and pays."""
        if self.engine_name == "sequential" or why_not(method) or len(population) == 1:
            return Sequential(population, stage.private)
        several = why_several_steps(method, training, int(population.counts().max()), rules.max_norm) is not None
        if self.engine_name == "auto" and not worth_it(self.device, several):
            return Sequential(population, stage.private)
        return Stacked(population, stage.private, rules.max_norm)

    @staticmethod
    def models(method: Method, server: Any, stage: Stage | None) -> list[Weights]:
        """The models to evaluate: one, or a sample of the clients' own, evenly spread over those that trained.

        Without a stage there are no clients' states here, and the server's model is all that there is.
        """
        if not method.personal or stage is None:
            return [method.embedder(server)]
        clients = stage.private.clients()
        chosen = clients[:: max(1, len(clients) // PERSONAL_MODELS)][:PERSONAL_MODELS]
        return [method.embedder(server, stage.private.load(client, 1 << 62)) for client in chosen]

    def write_result(self, models: dict[str, list[Weights]], federated: Outcome) -> dict[str, Any]:
        """Evaluate every end, and write result.json and report.html."""
        run, ledger, rounds = self.run, federated.stage.ledger(), federated.stage.rounds()
        metrics: dict[str, Any] = {}
        scores: dict[str, tuple[Tensor, Tensor]] = {}
        with self.progress.stage("evaluating", total=len(models)) as bar:
            for name, several in models.items():
                head = run.method.head(federated.server) if name == "method" else None
                metrics[name], scores[name] = self.verification.report(several[0], head)
                if len(several) > 1:
                    metrics[name]["mean_over_clients"] = self.verification.scores(several, head)
                bar.advance(1)
        seconds = sum(row["seconds"] for row in rounds)
        images = sum(row["images"] for row in ledger)
        result = {
            "title": f"{method_name(run.method)} on {run.data.kind()}",
            "method": method_name(run.method),
            "model": run.model,
            "command": self.command,
            "seed": run.seed,
            "rounds": run.rounds.rounds,
            "clients": len(run.method.clients(self.world.clients)),
            "cohort": run.rounds.cohort or len(self.world.clients),
            "metrics": metrics,
            "gain_recovered": gain_recovered(metrics),
            "disclosure": disclosure(run.method),
            "bytes": _traffic(ledger),
            "seconds": {"federated": seconds, "this_process": time.perf_counter() - self.began},
            "images_per_second": images / seconds if images and seconds else None,
            "engine": federated.engine,
            "config_sha256": run.sha256(),
            "partition_sha256": self.world.partition.manifest()["sha256"],
            "checkpoint_sha256": tree.sha256(federated.server),
            "private_sha256": federated.stage.private.sha256(),
            **provenance.describe(self.device),
        }
        write_atomically(self.out / "result.json", _json(result))
        named = {self.label(name): pair for name, pair in scores.items()}
        write_page(self.out / "report.html", PageContent(result, rounds, ledger, named, self.sample_faces()))
        return result

    def label(self, name: str) -> str:
        """What a curve is called: the method by its own name."""
        return method_name(self.run.method) if name == "method" else name

    def sample_faces(self) -> Tensor | None:
        """Synthetic people only: real faces never enter a report."""
        if self.run.data.source != "synthetic":
            return None
        each = min(6, int(self.world.test.counts().min()))
        rows, _ = self.world.test.rows(range(6), each)
        return self.world.test.gather(rows).reshape(6, each, 3, self.run.data.size, self.run.data.size).cpu()


def gain_recovered(metrics: dict[str, Any]) -> dict[str, float | None]:
    """(method − start) / (central − start) for each headline number; None where central training gains nothing."""
    ends = {name: _headline(m) for name, m in metrics.items()}
    shares: dict[str, float | None] = {}
    for score, start in ends["start"].items():
        room = ends["central"][score] - start if "central" in ends else 0.0
        shares[score] = (ends["method"][score] - start) / room if room > 0 else None
    return shares


def disclosure(method: Method) -> dict[str, list[dict[str, str]]]:
    """What leaves a client (each round, and once before the first), and what it is sent."""
    once = wire.disclosure(method.types.collected) if method.types.collected else ()
    return {
        "up": [_disclosed(row) for row in wire.disclosure(method.types.upload)],
        "once": [_disclosed(row) for row in once],
        "down": wire.described(method.types.broadcast),
    }


def _disclosed(row: wire.Disclosure) -> dict[str, str]:
    return {"field": row.field, "seen": row.seen.value, "what": row.what, "type": row.type}


def _headline(metrics: dict[str, Any]) -> dict[str, float]:
    """Accuracy, and TAR at each FMR; of a method with a model per client, their mean."""
    if "mean_over_clients" in metrics:
        means = metrics["mean_over_clients"]
        return {name: means[name] for name in means if name == "accuracy" or name.startswith("tar@")}
    tars = {f"tar@{point['target_fmr']:g}": point["tar"] for point in metrics["at_fmr"]}
    return {"accuracy": metrics["accuracy"]["accuracy"], **tars}


def _traffic(ledger: list[dict[str, Any]]) -> dict[str, float]:
    up, down = sum(row["bytes_up"] for row in ledger), sum(row["bytes_down"] for row in ledger)
    calls = max(1, len(ledger))
    return {"up": up, "down": down, "up_per_client": up / calls, "down_per_client": down / calls}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
