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
from coalface.models.net import Weights
from coalface.privacy.audits import codeword, embedding_recovery, gradient_inversion, membership, template_leak
from coalface.privacy.audits.judge import Judge, trained_judge
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

    people: int = 200  # synthetic ones, for the judge and the decoder; half of them each
    judge_epochs: int = 12
    decoder_epochs: int = 30
    inversions: int = 4  # clients whose pictures are sought
    iterations: int = 150  # of each of these searches
    several: int = 2  # local steps of the harder inversion; 0 leaves it out


@dataclass(frozen=True)
class Attacker:
    """What an attacker prepares on people of its own, for one size of images."""

    faces: FaceSet  # the decoder's
    judge: Judge
    effort: Effort

    @classmethod
    def prepared(cls, size: int, difficulty: str, effort: Effort, seed: int, progress: Progress) -> Attacker:
        """Draw people, and train the judge on half of them."""
        with progress.stage("the attacker's own faces and judge", total=2) as stage:
            faces = synthetic.draw_faceset(
                ATTACKER_FIRST, effort.people, ATTACKER_IMAGES, size, seed, world.CONDITIONS[difficulty]
            )
            stage.advance(1)
            half = effort.people // 2
            judge = trained_judge(faces.subset(range(half)), seed, effort.judge_epochs)
            stage.advance(1)
        return cls(faces.subset(range(half, effort.people)), judge, effort)


def of_method(run: Run, start: Weights | None, attacker: Attacker, progress: Progress) -> tuple[Case, Weights]:
    """The rounds of this run, played from the beginning; and the weights that it started from, pre-trained if None."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(run, Path(folder), torch.device("cpu"), progress, "")
        start = experiment.start() if start is None else start
    case = _case(experiment, run.rounds.cohort or len(experiment.world.clients), attacker, Memory())
    case = replace(case, server=begun(case, start))
    with progress.stage(f"rounds of {case.name}", total=run.rounds.rounds) as stage:
        return recorded(case, 0, run.rounds.rounds, lambda: stage.advance(1)), start


def of_run(run: Run, folder: Path, rounds: int, attacker: Attacker, progress: Progress) -> Case:
    """So many further rounds of a finished run, from its last checkpoint; nothing in its folder changes."""
    device = torch.device("cpu")
    with tempfile.TemporaryDirectory() as aside:
        experiment = Experiment(run, Path(aside), device, progress, "")
        for name in ("checkpoints", "private"):
            if (folder / name).exists():
                shutil.copytree(folder / name, Path(aside) / name)
        stage = Stage(Path(aside), run.method.types.server, run.method.types.private, run.sha256(), device)
        resumed = stage.resume()
        if resumed is None:
            raise ConfigError(f"{folder} holds no checkpoint to go on from: finish it with `coalface resume {folder}`")
        kept = {client: stage.private.load(client, 1 << 62) for client in stage.private.clients()}
    done, server = resumed
    case = _case(experiment, max(MIN_COHORT, run.rounds.cohort), attacker, Memory(kept.get))
    case = replace(case, server=server)
    with progress.stage(f"further rounds of {case.name}", total=rounds) as bar:
        return recorded(case, done, rounds, lambda: bar.advance(1))


def audited(
    case: Case, attacker: Attacker, views: Sequence[View], progress: Progress, decoder: Decoder | None = None
) -> list[AuditResult]:
    """Every attack that the method gives a hold for, under every view. A decoder is trained unless given."""
    if decoder is None:
        with progress.stage("decoder", total=1) as stage:
            epochs = attacker.effort.decoder_epochs
            decoder = trained_decoder(case.net, case.last.backbone, attacker.faces, epochs, case.seed)
            stage.advance(1)
    jobs = list(_attacks(case, attacker, decoder))
    found = []
    with progress.stage(f"attacks on {case.name}", total=len(jobs) * len(views)) as stage:
        for name, attack in jobs:
            for view in views:
                result = attack(case, view, seeding.generator(case.seed, name, view.name))
                if result is not None:
                    found.append(result)
                stage.advance(1, note=f"{name}, {view.name}")
    return found


def standard_views(noise: float) -> list[View]:
    """Plain, secure sum, and secure sum with noise of this multiplier."""
    return [PLAIN, SECURE_SUM, with_noise(noise)]


Attack = Callable[[Case, View, torch.Generator], AuditResult | None]


def _attacks(case: Case, attacker: Attacker, decoder: Decoder) -> Iterator[tuple[str, Attack]]:
    effort = attacker.effort
    yield "template leak", template_leak.template_leak
    yield "recovery", embedding_recovery.embedding_recovery
    yield "codeword", codeword.codeword_reading
    for steps in (1, effort.several):
        if effort.inversions and steps:
            yield (
                f"gradient inversion, {steps}",
                partial(
                    gradient_inversion.gradient_inversion,
                    judge=attacker.judge,
                    steps=steps,
                    targets=effort.inversions,
                    iterations=effort.iterations,
                ),
            )
    yield "template inversion", partial(template_inversion, judge=attacker.judge, decoder=decoder)
    yield "membership, person", membership.person_membership
    yield "membership, image", membership.image_membership


def _case(experiment: Experiment, cohort: int, attacker: Attacker, memory: Memory) -> Case:
    run, clients = experiment.run, experiment.world.clients
    choir = getattr(run.method, "choir", 1)
    cohort = -(-cohort // choir) * choir  # whole choirs are called: not fewer clients than asked for
    if len(clients) < MIN_COHORT:
        raise ConfigError(f"an audit needs {MIN_COHORT} clients or more for its sums: data.clients is {len(clients)}")
    return Case(
        name=method_name(run.method),
        method=run.method,
        net=experiment.net,
        training=run.training,
        cohort=min(cohort, len(clients)),
        seed=run.seed,
        clients=run.method.clients(clients),
        outsiders=experiment.world.test,
        public=attacker.faces,
        server=None,
        memory=memory,
        rounds=[],
    )
