"""Federations of a run, each in a folder: the engine is chosen, its checkpoints found, its rounds shown as they pass.

Pre-training and central training are federations too, of one client: the same round, checkpoints and resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from coalface import seeding, wire
from coalface.algorithms.centralised import Centralised
from coalface.config import Central, ConfigError, DetectionRun, Run, method_name
from coalface.data.population import Population
from coalface.engines.engine import Engine
from coalface.engines.faults import Faulty
from coalface.engines.forms import why_not
from coalface.engines.sequential import Sequential
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.gathering import Sums
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net, Weights
from coalface.privacy.protect import protected
from coalface.privacy.settings import Privacy
from coalface.report.progress import Progress
from coalface.store import Stage

EngineName = Literal["auto", "sequential", "stacked"]
Scores = Callable[[Method, Any, Stage | None], dict[str, float]]  # method, server's state, where clients' states are
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

    def engine(self, run: Run | DetectionRun, stage: Stage, population: Population) -> Engine:
        """The engine that calls them; ``population`` is the roster, with what is public before the first round."""

    def seed(self, run: Run | DetectionRun, stage: Stage) -> int:
        """Of the server's own choices, whom to call above all."""

    def sums(self, run: Run | DetectionRun, engine: Engine, stage: Stage) -> Sums | None:
        """How their uploads are summed, going on from the stage's records; None adds them up in the open."""


@dataclass(frozen=True)
class Stages:
    """Where and how the federations of one run are done."""

    run: Run | DetectionRun
    net: Net
    device: torch.device
    progress: Progress
    scores: Scores  # the numbers of an evaluated round
    engine: EngineName = "auto"
    remote: Remote | None = None

    def check_method(self) -> None:
        """Refuse privacy or an engine that the method cannot have, before a face is drawn or read."""
        run, name = self.run, method_name(self.run.method)
        if self.remote and run.privacy.dp.clip_quantile:
            raise ConfigError(
                f"privacy.dp.clip_quantile={run.privacy.dp.clip_quantile:g} moves the clip, and real clients agree to "
                "one: set it to 0, and privacy.dp.clip to what a simulation found"
            )
        run.privacy.check_method(run.method, name)
        refusal = why_not(run.method)
        if self.engine == "stacked" and refusal:
            raise ConfigError(f"--engine stacked cannot run {name}: {refusal}; use --engine auto")

    def check(self, clients: Population) -> None:
        """Refuse clients that the method or its privacy cannot have, before anybody trains."""
        run = self.run
        run.method.check(clients)
        taking_part = run.method.clients(clients)
        cohort = min(run.rounds.cohort or len(taking_part), len(taking_part))
        run.privacy.check(run.method, method_name(run.method), cohort, len(taking_part))
        if self.remote is None or run.privacy.dp.noise:
            protected(run.privacy, run.method, taking_part, run.rounds)

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
            engine, form = remote.engine(self.run, stage, population), "clients on machines of their own"
        else:
            bound = inf if privacy.any() else rules.max_norm  # to be masked or clipped, each client's update must exist
            engine, form = self.chosen_engine(method, population, stage, training, bound)
        here = None if remote else stage
        if main and self.run.faults.any():
            engine = Faulty(engine, self.run.faults)
        resumed = stage.resume()
        sums = remote.sums(self.run, engine, stage) if remote else protected(privacy, method, population, rules, stage)
        federation = Federation(
            method,
            self.net,
            len(population),
            engine,
            rules,
            training,
            remote.seed(self.run, stage) if remote else self.run.seed,
            stage,
            evaluate=lambda server: self.scores(method, server, here),
            sums=sums,
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
        return Outcome(server, stage, models(method, server, here), engine.name, form)

    def fingerprint(self) -> str:
        """A hash of everything that decides the outcome: the settings, and who takes part if they are elsewhere."""
        if self.remote is None:
            return self.run.sha256()
        return hashlib.sha256(f"{self.run.sha256()} {self.remote.roster.clients}".encode()).hexdigest()

    def chosen_engine(
        self, method: Method, population: Population, stage: Stage, training: Training, max_norm: float
    ) -> tuple[Engine, str]:
        """The engine that was asked for, and how it runs the clients in words for the report.

        ``auto`` takes the stacked one where it applies: it is never slower.
        """
        if len(population) == 1:
            return Sequential(population, stage.private), "one client"
        refusal = "asked for" if self.engine == "sequential" else why_not(method)
        if refusal is not None:
            return Sequential(population, stage.private), f"one client after another: {refusal}"
        engine = Stacked(population, stage.private, max_norm)
        return engine, engine.form(method, training)


def models(method: Method, server: Any, stage: Stage | None) -> list[Weights]:
    """The models to evaluate: one, or a sample of the clients' own, evenly spread over those that trained.

    Without a stage there are no clients' states here, and the server's model is all that there is.
    """
    if method.generic or stage is None:
        return method.ensemble(server)
    clients = stage.private.clients()
    many = min(len(clients), PERSONAL_MODELS)
    return [own_model(method, server, stage, clients[len(clients) * number // many]) for number in range(many)]


def own_model(method: Method, server: Any, stage: Stage, client: int) -> Weights:
    """What a client of this process ends with."""
    return method.embedder(server, stage.private.load(client, 1 << 62))
