"""A whole run: pre-train on public faces, federate, train centrally for comparison, evaluate, write it down.

Pre-training and central training are federations too, of one client: the same round, checkpoints and resume.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, Protocol

import safetensors.torch
import torch
from torch import Tensor

from coalface import provenance, seeding, speed, tree, wire
from coalface.algorithms.centralised import Centralised
from coalface.config import Central, ConfigError, Run, method_name, to_json
from coalface.data import world
from coalface.data.population import Population
from coalface.data.world import World
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
from coalface.personal_evaluation import ModelOf, PersonalEvaluation
from coalface.privacy.protect import protected
from coalface.privacy.settings import Privacy
from coalface.report.page import PageContent, write_page
from coalface.report.progress import Progress
from coalface.store import Stage, explained, write_atomically

EngineName = Literal["auto", "sequential", "stacked"]
PERSONAL_MODELS = 8  # of a method that ends with no model for everyone, so many clients' own are evaluated


@dataclass(frozen=True)
class Outcome:
    """A finished stage."""

    server: Any
    stage: Stage
    models: list[Weights]  # the global one, or a sample of the clients' own
    engine: str
    form: str  # how the engine ran the clients, and why


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
        loaded: World | None = None,
        remote: Remote | None = None,
    ) -> None:
        """``loaded`` are the faces of the run, where somebody has them already.

        ``remote``: the clients are elsewhere, and so are their faces; there is no central training then.
        """
        self.remote = remote
        self.run, self.out, self.device, self.progress, self.command = run, out, device, progress, command
        self.engine_name = engine
        self.began = time.perf_counter()
        run.numerics.switch_on()
        self.net = Net(run.model, run.numerics, embedding=run.embedding, size=run.data.size)
        self.given = load_weights(Path(run.weights), self.net) if run.weights else None
        self.world = loaded or self.faces()
        run.method.check(self.world.clients)
        self.check_privacy()
        self.check_engine()
        self.verification = Verification(self.net, self.world.test, run.data.pairs, run.seed)

    def faces(self) -> World:
        """The faces of the run, drawn or read."""
        data, seed = self.run.data, self.run.seed
        with self.progress.stage("faces", total=data.images()) as stage:
            told = lambda done, _: stage.advance(done - stage.done)  # noqa: E731
            return world.load(data, seed, self.device, told, elsewhere=self.remote.roster if self.remote else None)

    def execute(self) -> dict[str, Any]:
        """The result, as written to result.json; the page stands beside it."""
        run = self.run
        with explained(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        write_atomically(self.out / "config.json", json_bytes(to_json(run)))
        self.world.partition.write_manifest(self.out / "partition.json")
        start, public_proxies = self.start()
        clients = self.clients(start, public_proxies)
        federated = self.stage("federating", self.out, run.method, clients, start, run.rounds, run.training, main=True)
        models, central = {"start": [start], "method": federated.models}, None
        if self.remote is None:
            central = self.centrally("central", self.out / "central", run.central, self.world.clients, start)
            models["central"] = central.models
        save_weights(self.out / "start.safetensors", start)
        save_weights(self.out / "model.safetensors", federated.models[0])
        if (head := run.method.head(federated.server)) is not None:
            write_atomically(self.out / "head.safetensors", safetensors.torch.save({"head": head.contiguous().cpu()}))
        return self.write_result(models, federated, central, self.personally(start, federated, central))

    def start(self) -> tuple[Weights, Tensor | None]:
        """The weights that the server sends out first: loaded, pre-trained on public faces, or fresh.

        With them, if there was pre-training, the class embeddings of the public people that it ended with.
        """
        if self.given is not None:
            return self.given.map(lambda leaf: leaf.to(self.device)), None
        fresh = self.net.fresh(seeding.derive(self.run.seed, "weights")).map(lambda leaf: leaf.to(self.device))
        if self.world.public is None or not self.run.pretrain.rounds:
            return fresh, None
        folder = self.out / "pretrain"
        trained = self.centrally("pre-training", folder, self.run.pretrain, self.world.public, fresh)
        kept: Any = trained.stage.private.load(0, 1 << 62)
        return trained.models[0], kept.head

    def clients(self, start: Weights, public_proxies: Tensor | None) -> Population:
        """The clients, with what is public before the first round."""
        public = replace(self.world.clients.public, head=public_proxies, backbone=start)
        return replace(self.world.clients, public=public)

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
        """One federation, from its last checkpoint if it has one; ``main`` is the one that the run is about.

        Only the main one has faults, privacy, and clients on other machines.
        """
        population = method.clients(population)
        remote = self.remote if main else None
        kept = remote.private(method) if remote else method.types.private
        stage = Stage(folder, method.types.server, kept, self.fingerprint(), self.device)
        privacy = self.run.privacy if main else Privacy()
        if remote:
            engine, form = remote.engine(self.run, stage), "clients on machines of their own"
        else:
            engine = self.engine(method, population, stage, rules, training, own_updates=privacy.any())
            form = self.form(engine, method, population, rules, training)
        here = None if remote else stage  # where clients' own states are, if they are here
        if main and self.run.faults.any():
            engine = Faulty(engine, self.run.faults)
        resumed = stage.resume()
        federation = Federation(
            method,
            self.net,
            len(population),
            engine,
            rules,
            training,
            self.run.seed,
            stage,
            evaluate=lambda server: self.scores(method, server, here),
            sums=protected(privacy, method, population, rules, stage),
        )
        if resumed is None:
            done, server = 0, method.begin(self.net, start, population, seeding.generator(self.run.seed, "begin"))
        else:
            done, server = resumed
        with self.progress.stage(title, total=rules.rounds, done=done) as bar:
            for entry, after in federation.run(server, first_round=done + 1):
                server = after
                told = {"ε": entry.privacy["epsilon"]} if "epsilon" in entry.privacy else {}
                shown = {**entry.losses, **entry.scores, **told}
                note = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
                bar.advance(0 if entry.void else 1, note="void round" if entry.void else note)
        if bar.done < rules.rounds:
            self.progress.say(
                f"{title}: stopped after {bar.done} rounds, as one more would pass ε = {privacy.dp.budget:g}"
            )
        return Outcome(server, stage, self.models(method, server, here), engine.name, form)

    def check_privacy(self) -> None:
        """Refuse what the privacy settings cannot protect, or need and do not find, before anything is done."""
        run, clients = self.run, self.run.method.clients(self.world.clients)
        if self.remote and run.privacy.any():
            raise ConfigError("privacy.* protects simulated clients only so far: leave it out, or run here")
        cohort = min(run.rounds.cohort or len(clients), len(clients))
        run.privacy.check(run.method, method_name(run.method), cohort, len(clients))
        protected(run.privacy, run.method, clients, run.rounds)

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

    def engine(
        self,
        method: Method,
        population: Population,
        stage: Stage,
        rules: Rounds,
        training: Training,
        own_updates: bool = False,
    ) -> Engine:
        """The engine that was asked for; ``auto`` takes the stacked one where it applies and pays.

        ``own_updates``: each client's own update must exist, to be masked or clipped; their mean would not do.
        """
        if self.engine_name == "sequential" or why_not(method) or len(population) == 1:
            return Sequential(population, stage.private)
        bound = inf if own_updates else rules.max_norm
        several = why_several_steps(method, training, int(population.counts().max()), bound) is not None
        if self.engine_name == "auto" and not worth_it(self.device, several):
            return Sequential(population, stage.private)
        return Stacked(population, stage.private, bound)

    def scores(self, method: Method, server: Any, stage: Stage | None) -> dict[str, float]:
        """The numbers of an evaluated round."""
        return self.verification.scores(self.models(method, server, stage), method.head(server))

    def form(self, engine: Engine, method: Method, population: Population, rules: Rounds, training: Training) -> str:
        """How this engine runs the clients, and why not faster, in words for the report."""
        several = why_several_steps(method, training, int(population.counts().max()), rules.max_norm)
        if isinstance(engine, Stacked):
            return "one step for many clients" if several is None else f"stacked steps: {several}"
        if len(population) == 1:
            return "one client"
        why = "asked for" if self.engine_name == "sequential" else why_not(method) or several
        return f"one client after another: {why}"

    @staticmethod
    def models(method: Method, server: Any, stage: Stage | None) -> list[Weights]:
        """The models to evaluate: one, or a sample of the clients' own, evenly spread over those that trained.

        Without a stage there are no clients' states here, and the server's model is all that there is.
        """
        if method.generic or stage is None:
            return method.ensemble(server)
        clients = stage.private.clients()
        chosen = clients[:: max(1, len(clients) // PERSONAL_MODELS)][:PERSONAL_MODELS]
        return [method.embedder(server, stage.private.load(client, 1 << 62)) for client in chosen]

    def personally(self, start: Weights, federated: Outcome, central: Outcome | None) -> dict[str, Any]:
        """The personal numbers of every model that the run has; none if no images were kept for them."""
        if self.world.probes is None or central is None:
            return {}
        method, server, private = self.run.method, federated.server, federated.stage.private

        def own(client: int) -> tuple[Weights, Tensor | None]:
            kept = private.load(client, 1 << 62)  # of a client that was never called: nothing, and the global model
            return method.embedder(server, kept), method.head(server, kept)

        models: dict[str, ModelOf] = {"start": lambda _: (start, None)}
        if method.generic:
            models["generic"] = lambda _: (method.embedder(server), method.head(server))
        if method.personal:
            models["own"] = own
            if any(own(client)[1] is not None for client in private.clients()[:1]):
                models["local"] = lambda client: (own(client)[0], None)  # without what stands behind the backbone
        models["central"] = lambda _: (central.models[0], None)
        evaluation = PersonalEvaluation(self.net, self.world.clients, self.world.probes, self.run.data.probed_clients)
        with self.progress.stage("evaluating clients' models", total=len(models)) as bar:
            numbers = {}
            for name, model_of in models.items():
                numbers[name] = evaluation.report(model_of)
                bar.advance(1)
        return numbers

    def write_result(
        self, models: dict[str, list[Weights]], federated: Outcome, central: Outcome | None, personal: dict[str, Any]
    ) -> dict[str, Any]:
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
        fast = speed.images_per_second(ledger, rounds)
        central_fast = speed.images_per_second(central.stage.ledger(), central.stage.rounds()) if central else None
        result = {
            "title": f"{method_name(run.method)} on {run.data.kind()}",
            "method": method_name(run.method),
            "model": run.model,
            "command": self.command,
            "seed": run.seed,
            "rounds": sum(not row["void"] for row in rounds),
            "clients": len(run.method.clients(self.world.clients)),
            "cohort": run.rounds.cohort or len(self.world.clients),
            "metrics": metrics,
            "gain_recovered": gain_recovered(metrics),
            **({"personal": personal} if personal else {}),
            "disclosure": disclosure(run.method),
            "privacy": {**to_json(run.privacy), **next((r["privacy"] for r in rounds[::-1] if not r["void"]), {})},
            "bytes": traffic(ledger),
            "seconds": {
                "federated": sum(row["seconds"] for row in rounds),
                "this_process": time.perf_counter() - self.began,
            },
            "engine": federated.engine,
            "engine_form": federated.form,
            "images_per_second": fast,
            "central_images_per_second": central_fast,
            "share_of_central_speed": fast / central_fast if fast and central_fast else None,
            "outside_training": speed.outside_training(ledger, rounds),
            "peak_memory": speed.peak_memory(self.device),
            "config_sha256": run.sha256(),
            "partition_sha256": self.world.partition.manifest()["sha256"],
            "checkpoint_sha256": tree.sha256(federated.server),
            "private_sha256": federated.stage.private.sha256(),
            **provenance.describe(self.device),
        }
        write_atomically(self.out / "result.json", json_bytes(result))
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


def traffic(ledger: list[dict[str, Any]]) -> dict[str, float]:
    """Bytes up and down: in all, and per client per round."""
    up, down = sum(row["bytes_up"] for row in ledger), sum(row["bytes_down"] for row in ledger)
    calls = max(1, len(ledger))
    return {"up": up, "down": down, "up_per_client": up / calls, "down_per_client": down / calls}


def json_bytes(value: Any) -> bytes:
    """JSON text for a file that people read too."""
    return (json.dumps(value, indent=2) + "\n").encode()
