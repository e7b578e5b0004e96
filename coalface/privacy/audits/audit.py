"""A whole audit: play real rounds of a method or of a finished run, and try every attack under every protection."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from coalface import seeding
from coalface.config import ConfigError, Run, method_name
from coalface.data import synthetic, world
from coalface.data.faceset import FaceSet
from coalface.experiment import Experiment
from coalface.method import Method
from coalface.models.net import Net, Weights
from coalface.privacy.audits import codeword, embedding_recovery, gradient_inversion, membership, template_leak
from coalface.privacy.audits.judge import HOST, Judge, trained_judge
from coalface.privacy.audits.recording import Case, Memory, begun, recorded
from coalface.privacy.audits.result import AuditResult
from coalface.privacy.audits.template_inversion import Decoder, template_inversion, trained_decoder
from coalface.privacy.audits.view import MIN_COHORT, PLAIN, SECURE_SUM, View, with_noise
from coalface.report.progress import Progress
from coalface.store import Stage

ATTACKER_FIRST = 1_000_000  # number of the first synthetic person whom the attacker draws: in no run of that size
ATTACKER_IMAGES = 8


@dataclass(frozen=True)
class Effort:
    """How hard the attacker tries, where trying costs time."""

    people: int = 400  # synthetic ones, for the judge and the decoder; half of them each
    judge_epochs: int = 12
    decoder_epochs: int = 12  # 0 leaves template inversion out
    inversions: int = 4  # clients whose gradients are inverted; 0 leaves that out
    iterations: int = 150  # of each of these searches
    several: int = 2  # local steps of the harder inversion; 0 leaves it out


@dataclass(frozen=True)
class Attacker:
    """What an attacker prepares on people of its own, for one size of images."""

    faces: FaceSet  # the decoder's
    judge: Judge
    effort: Effort
    device: torch.device = HOST  # where it trains and searches

    @classmethod
    def prepared(
        cls, size: int, difficulty: str, effort: Effort, seed: int, progress: Progress, device: torch.device = HOST
    ) -> Attacker:
        """Draw people, and train the judge on half of them; ``device`` is for whatever takes long."""
        with progress.stage("the attacker's own faces and judge", total=2) as stage:
            faces = synthetic.draw_faceset(
                ATTACKER_FIRST, effort.people, ATTACKER_IMAGES, size, seed, world.CONDITIONS[difficulty]
            )
            stage.advance(1)
            half = effort.people // 2
            judge = trained_judge(faces.subset(range(half)), seed, effort.judge_epochs, device)
            stage.advance(1)
        return cls(faces.subset(range(half, effort.people)), judge, effort, device)


@dataclass(frozen=True)
class Setting:
    """The faces, the network and the beginning of a run: methods that are compared share them."""

    run: Run
    net: Net
    world: world.World
    start: Weights

    @classmethod
    def prepared(cls, run: Run, progress: Progress, device: torch.device = HOST) -> Setting:
        """Draw or read the faces, and pre-train, on the device, if the run says so; what it gives is on the host."""
        here = world.load(run.data, run.seed, HOST)
        there = here
        if device != HOST:
            public = None if here.public is None else replace(here.public, device=device)
            there = replace(here, public=public, clients=replace(here.clients, device=device))
        with tempfile.TemporaryDirectory() as folder:
            experiment = Experiment(run, Path(folder), device, progress, "", loaded=there)
            start, _ = experiment.start()
            return cls(run, experiment.net, here, start.map(lambda leaf: leaf.to(HOST)))


def of_method(setting: Setting, method: Method, attacker: Attacker, progress: Progress) -> Case:
    """A method's rounds, played from the beginning."""
    run = replace(setting.run, method=method)
    case = _case(run, setting.net, setting.world, run.rounds.cohort or run.data.clients, attacker, Memory())
    case = replace(case, server=begun(case, setting.start))
    with progress.stage(f"rounds of {case.name}", total=run.rounds.rounds) as stage:
        return recorded(case, 0, run.rounds.rounds, lambda: stage.advance(1))


def of_run(run: Run, folder: Path, rounds: int, attacker: Attacker, progress: Progress) -> Case:
    """So many further rounds of a finished run, from its last checkpoint; nothing in its folder changes."""
    with tempfile.TemporaryDirectory() as aside:
        experiment = Experiment(run, Path(aside), HOST, progress, "")
        for name in ("checkpoints", "private"):
            if (folder / name).exists():
                shutil.copytree(folder / name, Path(aside) / name)
        for ledger in folder.glob("*.jsonl"):  # a checkpoint counts on their rows
            shutil.copy(ledger, aside)
        stage = Stage(Path(aside), run.method.types.server, run.method.types.private, run.sha256(), HOST)
        resumed = stage.resume()
        if resumed is None:
            raise ConfigError(f"{folder} holds no checkpoint to go on from: finish it with `coalface resume {folder}`")
        kept = {client: stage.private.load(client, 1 << 62) for client in stage.private.clients()}
    done, server = resumed
    cohort = max(MIN_COHORT, run.rounds.cohort or run.data.clients)
    case = _case(run, experiment.net, experiment.world, cohort, attacker, Memory(kept.get))
    case = replace(case, server=server)
    with progress.stage(f"further rounds of {case.name}", total=rounds) as bar:
        return recorded(case, done, rounds, lambda: bar.advance(1))


def audited(case: Case, attacker: Attacker, views: Sequence[View], progress: Progress) -> list[AuditResult]:
    """Every attack that the method gives a hold for, under every view."""
    decoder = None
    if attacker.effort.decoder_epochs:
        with progress.stage("decoder", total=1) as stage:
            epochs = attacker.effort.decoder_epochs
            decoder = trained_decoder(case.net, case.last.backbone, attacker.faces, epochs, case.seed, attacker.device)
            stage.advance(1)
    jobs = list(_attacks(attacker, decoder))
    found = []
    with progress.stage(f"attacks on {case.name}", total=len(jobs)) as stage:
        for name, attack in jobs:
            found += attack(case, views)
            stage.advance(1, note=name)
    return found


def standard_views(noise: float) -> list[View]:
    """Plain, secure sum, and secure sum with noise of this multiplier."""
    return [PLAIN, SECURE_SUM, with_noise(noise)]


Attack = Callable[[Case, Sequence[View]], list[AuditResult]]
OneView = Callable[[Case, View, torch.Generator], AuditResult | None]


def _attacks(attacker: Attacker, decoder: Decoder | None) -> Iterator[tuple[str, Attack]]:
    effort = attacker.effort
    yield _one_by_one("template leak", template_leak.template_leak)
    yield _one_by_one("recovery", embedding_recovery.embedding_recovery)
    yield _one_by_one("codeword", codeword.codeword_reading)
    for steps in (1, effort.several):
        if effort.inversions and steps:
            yield f"gradient inversion, {steps}", partial(_inverted, attacker, steps)
    if decoder is not None:
        yield _one_by_one("template inversion", partial(template_inversion, judge=attacker.judge, decoder=decoder))
    yield _one_by_one("membership, person", membership.person_membership)
    yield _one_by_one("membership, image", membership.image_membership)


def _one_by_one(name: str, attack: OneView) -> tuple[str, Attack]:
    """The attack on each view with luck of its own, where the method gives a hold for it."""

    def on_all(case: Case, views: Sequence[View]) -> list[AuditResult]:
        found = (attack(case, view, seeding.generator(case.seed, name, view.name)) for view in views)
        return [result for result in found if result is not None]

    return name, on_all


def _inverted(attacker: Attacker, steps: int, case: Case, views: Sequence[View]) -> list[AuditResult]:
    luck, effort = seeding.generator(case.seed, "gradient inversion", steps), attacker.effort
    return gradient_inversion.gradient_inversion(
        case, views, luck, attacker.judge, steps, effort.inversions, effort.iterations
    )


def _case(run: Run, net: Net, faces: world.World, cohort: int, attacker: Attacker, memory: Memory) -> Case:
    run.method.check(faces.clients)
    clients = run.method.clients(faces.clients)
    if len(clients) < MIN_COHORT:
        raise ConfigError(f"an audit needs {MIN_COHORT} clients or more for its sums, and there are {len(clients)}")
    choir = getattr(run.method, "choir", 1)
    cohort = -(-cohort // choir) * choir  # whole choirs are called: not fewer clients than asked for
    return Case(
        name=method_name(run.method),
        method=run.method,
        net=net,
        training=run.training,
        cohort=min(cohort, len(clients)),
        seed=run.seed,
        clients=clients,
        outsiders=faces.test,
        public=attacker.faces,
        server=None,
        memory=memory,
        rounds=[],
        device=attacker.device,
    )
