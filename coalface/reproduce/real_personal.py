"""Real photographs: models of one's own. A server that knows CelebA, and clients with people of CFP.

The server trains on synthetic faces, and then on 253 people of CelebA, who are public: FedFR's clients hold them. The
clients have 18 people of CFP each, or one; ten images of a person train and four, drawn at random, are kept for the
personal numbers. The generic model is tested on the official LFW pairs. Methods are set as in the synthetic tables;
nothing was tuned on photographs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from coalface import seeding
from coalface.algorithms.chorus_personal import ChorusPersonal
from coalface.algorithms.fedfr import FedFR
from coalface.config import Central, Run
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.partition import Partition
from coalface.data.population import Population
from coalface.data.public import Public
from coalface.data.world import Data, World, with_probes
from coalface.evaluation import ListedPairs
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import Net, Weights
from coalface.reproduce.artefact import Artefact, Column, Scale, ScaleName
from coalface.reproduce.bench import PERSONAL, Bench, Row, Test, finished
from coalface.reproduce.fedfs import DRAWN_TOGETHER
from coalface.reproduce.real_lfw import ON_CELEBA, RealArtefact, RealBench, joined

EACH, PROBES = 18, 4  # people of a client, and images of each person that nobody trains on
START, CENTRAL = "start", "central"


def _run(size: int, model: str, embedding: int, pretrain: int, rounds: int) -> Run:
    drop = max(1, pretrain * 5 // 6)
    together = Training(rate=0.01, rate_drops=((7, 0.2),), batch=64, momentum=0.9)
    return Run(
        method=FedFR(proxies="mean"),
        model=model,
        embedding=embedding,
        data=Data(source="photographs", size=size, public=0, clients=EACH, identities_each=EACH, test=20, pairs=20),
        pretrain=Central(
            rounds=pretrain, training=Training(rate=0.02, rate_drops=((drop, 0.2),), batch=128, momentum=0.9)
        ),
        rounds=Rounds(rounds=rounds, checkpoint_every=rounds),
        # A round is at most 1,000 of a client's own and hard public images.
        training=Training(
            rate=0.01,
            rate_drops=((rounds * 3 // 4, 0.3),),
            epochs=2,
            batch=64,
            images_per_round=1000,
            momentum=0.9,
            weight_decay=5e-4,
        ),
        central=Central(rounds=8, training=together),
    )


SCALES: dict[ScaleName, Scale] = {
    "cpu": Scale(_run(32, "feduv_cnn_small", 128, 6, 4), ("LFW",)),
    "gpu": Scale(_run(64, "feduv_cnn", 512, 12, 12), ("LFW",)),
}


def _rows(scale: Scale) -> Sequence[Row]:
    method, training, rounds = scale.run.method, scale.run.training, scale.run.rounds.rounds
    assert isinstance(method, FedFR)
    hard = replace(method, contrast=0.0, branch="none")
    alone = replace(scale.run.data, clients=EACH * EACH, identities_each=1, probed_clients=4 * EACH)
    step = replace(training, rate=training.rate / 2, batch=0, epochs=1, momentum=0.0, weight_decay=0.0)
    return [
        Row(START),
        Row("FedAvg", replace(hard, public="none")),
        Row("FedAvg + HN", hard),
        Row("FedAvg + HN + contrastive", replace(method, branch="none")),
        Row("FedFR, all parts", method),
        Row(CENTRAL, central=True),
        Row("start, one person each", data=alone),
        Row("FedFR, one person each", method, data=alone),
        Row("FedFS, one person each", DRAWN_TOGETHER, data=alone, training=replace(step, epochs=3)),
        Row("chorus/personal, one person each", ChorusPersonal(), data=alone, training=step, rounds=8 * rounds),
    ]


class PersonalArtefact(RealArtefact):
    """Clients with real people, whose own models are measured too."""

    def bench(self, *about: Any) -> PersonalBench:  # type: ignore[override]  # it measures as a Bench does
        known = super().bench(*about)
        return PersonalBench(known.run, known.photographs, known.out, known.device, known.progress, known.command)


@dataclass
class PersonalBench(RealBench):
    """One seed."""

    def measure(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        done = {row.label: finished(self.out, row, self.run) for row in rows}
        if all(done.values()):
            return done  # type: ignore[return-value]  # none of them is None
        cfp, celeba = self._shuffled(self.photographs.people("cfp")), self.photographs.people("celeba")
        faces = joined([celeba, cfp])
        here = FaceSet(faces.images.to(self.device), faces.offsets)
        dealt = dict.fromkeys([self.run.data, *(row.of(self.run).data for row in rows)])  # the start asks for the first
        worlds = {data: self._dealt(here, len(celeba), data.identities_each) for data in dealt}
        bench = Bench(
            self.run, self._tests, self.out, self.device, self.progress, self.command, worlds, self._first(worlds)
        )
        return bench.measure(rows)

    def _first(self, worlds: Mapping[Data, World]) -> Weights:
        """Trained on synthetic people, and then on CelebA."""
        world = next(iter(worlds.values()))
        assert world.public is not None
        experiment = self._experiment(self.run, self.out / "start", replace(world, public=self._synthetic()))
        start, _ = experiment.start()
        folder = self.out / "start-celeba"
        return experiment.stages.centrally("CelebA, for the server", folder, ON_CELEBA, world.public, start).models[0]

    def _dealt(self, faces: FaceSet, public: int, each: int) -> World:
        """The first people are public; the others go to clients in an order of this seed, so many to each."""
        people = torch.randperm(len(faces) - public, generator=seeding.generator(self.run.seed, "clients")) + public
        order = people[: EACH * EACH].tolist()
        clients = tuple(tuple(order[first : first + each]) for first in range(0, len(order), each))
        seen = FaceView.of(faces, range(public))
        caps = (int(faces.counts().max()),) * len(clients)
        population, probes = with_probes(Population(faces, clients, caps, public=Public(seen)), PROBES)
        partition = Partition(tuple(range(public)), (), (), clients, identities=len(faces))
        server = Population(faces, (tuple(range(public)),))
        return World(server, population, probes, self.photographs.held_out(), partition)

    def _shuffled(self, faces: FaceSet) -> FaceSet:
        """Each person's images in an order of this seed: CFP has profiles last, and the last ones are the probes."""
        generator = seeding.generator(self.run.seed, "probes")
        parts = [int(first) + torch.randperm(int(count), generator=generator) for first, count in _places(faces)]
        return FaceSet(faces.images[torch.cat(parts)], faces.offsets)

    def _tests(self, net: Net, device: torch.device, seed: int) -> Mapping[str, Test]:
        return {"LFW": ListedPairs(net, *self.photographs.test("LFW"))}


def _places(faces: FaceSet) -> zip[tuple[torch.Tensor, torch.Tensor]]:
    return zip(faces.offsets[:-1], faces.counts(), strict=True)


COLUMNS: dict[str, Column] = {
    "LFW accuracy": ("LFW", "accuracy"),
    "LFW TAR@1%": ("LFW", "tar@0.01"),
    "personal 1:1 TAR@1e-2": (PERSONAL, "tar@0.01"),
    "personal 1:1 TAR@1e-1": (PERSONAL, "tar@0.1"),
    "personal 1:N TPIR@1e-1": (PERSONAL, "tpir@0.1"),
    "AUROC": (PERSONAL, "auroc"),
    "AUROC of pairs of probes": (PERSONAL, "auroc_pairs"),
}

ARTEFACTS: dict[str, Artefact] = {
    "real-personal": PersonalArtefact(
        "Real photographs: FedFR, FedFS and chorus with a personal head on people of CFP, public people of CelebA",
        COLUMNS,
        (),
        SCALES,
        _rows,
        "Personal numbers are of the clients' own people, in images that nobody trained on; a threshold for one person "
        "is another task than one for 18. Nobody is in both sets, and nobody of CFP who is in LFW takes part.",
        between={"": (START, CENTRAL)},
    ),
}
