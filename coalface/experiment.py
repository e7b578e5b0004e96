"""A whole run: pre-train on public faces, federate, train centrally for comparison, evaluate, write it down.

Pre-training and central training are federations too, of one client: the same round, checkpoints and resume.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from coalface import provenance, seeding, speed, tree, wire
from coalface.config import ConfigError, Run, method_name, to_json
from coalface.data import world
from coalface.data.population import Population
from coalface.data.world import World
from coalface.evaluation import Verification
from coalface.method import Method
from coalface.models.checkpoints import load_weights, save_weights
from coalface.models.net import Net, Weights
from coalface.personal_evaluation import ModelOf, PersonalEvaluation, models_of, same_for_all
from coalface.report.page import PageContent, write_page
from coalface.report.progress import Progress
from coalface.run_folder import alone, begin, json_bytes
from coalface.stages import EngineName, Outcome, Remote, Stages, models
from coalface.store import Stage, write_atomically


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
        self.began = time.perf_counter()
        run.numerics.switch_on()
        self.net = Net(run.model, run.numerics, embedding=run.embedding, size=run.data.size)
        self.stages = Stages(run, self.net, device, progress, self.scores, engine, remote)
        self.stages.check_method()
        self.given = load_weights(Path(run.weights), self.net) if run.weights else None
        self.world = loaded or self.faces()
        self.stages.check(self.world.clients)
        self.verification = Verification(self.net, self.world.test, run.data.pairs, run.seed)

    def faces(self) -> World:
        """The faces of the run, drawn or read."""
        data, seed = self.run.data, self.run.seed
        with self.progress.stage("faces", total=data.images()) as stage:
            told = lambda done, _: stage.advance(done - stage.done)  # noqa: E731
            return world.load(data, seed, self.device, told, elsewhere=self.remote.roster if self.remote else None)

    def execute(self) -> dict[str, Any]:
        """The result, as written to result.json; the page stands beside it."""
        with alone(self.out):
            return self._executed()

    def _executed(self) -> dict[str, Any]:
        run, roles = self.run, self.out / "partition.json"
        if roles.exists() and roles.read_text(encoding="utf-8", errors="replace") != self.world.partition.text():
            raise ConfigError(
                f"people would have other roles than in {roles}, so that test people might be trained on: put "
                "photographs and settings back as they were when the run began, or start anew in another --out"
            )
        self.command = begin(self.out, run, self.command, self.world.files)
        self.world.partition.write_manifest(roles)
        start, public_proxies = self.start()
        clients = self.clients(start, public_proxies)
        federated = self.stages.stage(
            "federating", self.out, run.method, clients, start, run.rounds, run.training, main=True
        )
        compared, central = {"start": [start], "method": federated.models}, None
        if self.remote is None and run.central.rounds:
            seen = self.world.everyone() if run.method.holds_public else self.world.clients
            central = self.stages.centrally("central", self.out / "central", run.central, seen, start)
            compared["central"] = central.models
        save_weights(self.out / "start.safetensors", start)
        save_weights(self.out / "model.safetensors", federated.models[0])
        if (head := run.method.head(federated.server)) is not None:
            write_atomically(self.out / "head.safetensors", safetensors.torch.save({"head": head.contiguous().cpu()}))
        return self.write_result(compared, federated, central, self.personally(start, federated, central))

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
        trained = self.stages.centrally("pre-training", folder, self.run.pretrain, self.world.public, fresh)
        kept: Any = trained.stage.private.load(0, 1 << 62)
        return trained.models[0], kept.head

    def clients(self, start: Weights, public_proxies: Tensor | None) -> Population:
        """The clients, with what is public before the first round."""
        public = replace(self.world.clients.public, head=public_proxies, backbone=start)
        return replace(self.world.clients, public=public)

    def scores(self, method: Method, server: Any, stage: Stage | None) -> dict[str, float]:
        """The numbers of an evaluated round."""
        return self.verification.scores(models(method, server, stage), method.head(server))

    def personally(self, start: Weights, federated: Outcome, central: Outcome | None) -> dict[str, Any]:
        """The personal numbers of every model that the run has; none if no images were kept for them."""
        if self.world.probes is None:
            return {}
        of_all: dict[str, ModelOf] = {"start": same_for_all(start)}
        of_all |= models_of(self.run.method, federated.server, federated.stage.private)
        if central is not None:
            of_all["central"] = same_for_all(central.models[0])
        evaluation = PersonalEvaluation(self.net, self.world.clients, self.world.probes, self.run.data.probed_clients)
        with self.progress.stage("evaluating clients' models", total=len(of_all)) as bar:
            numbers = {}
            for name, model_of in of_all.items():
                numbers[name] = evaluation.report(model_of)
                bar.advance(1)
        return numbers

    def write_result(
        self, compared: dict[str, list[Weights]], federated: Outcome, central: Outcome | None, personal: dict[str, Any]
    ) -> dict[str, Any]:
        """Evaluate every end, and write result.json and report.html."""
        run, ledger, rounds = self.run, federated.stage.ledger(), federated.stage.rounds()
        metrics: dict[str, Any] = {}
        scores: dict[str, tuple[Tensor, Tensor]] = {}
        with self.progress.stage("evaluating", total=len(compared)) as bar:
            for name, several in compared.items():
                head = run.method.head(federated.server) if name == "method" else None
                metrics[name], scores[name] = self.verification.report(several[0], head)
                if len(several) > 1:
                    metrics[name]["mean_over_clients"] = self.verification.scores(several, head)
                bar.advance(1)
        taking_part = len(run.method.clients(self.world.clients))
        fast = speed.images_per_second(ledger, rounds)
        central_fast = speed.images_per_second(central.stage.ledger(), central.stage.rounds()) if central else None
        result = {
            "title": f"{method_name(run.method)} on {run.data.kind()}",
            "method": method_name(run.method),
            "model": run.model,
            "command": self.command,
            "seed": run.seed,
            "rounds": sum(not row["void"] for row in rounds),
            "clients": taking_part,
            "cohort": min(run.rounds.cohort or taking_part, taking_part),
            **({"broken_images_left_out": self.world.skipped} if self.world.skipped else {}),
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
    return {"field": row.field, "seen": row.who, "what": row.words, "type": row.type}


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
