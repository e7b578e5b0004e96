"""Real photographs: what each method makes of a start that knows little about real faces, tested on LFW.

(a) the server has seen synthetic faces only; the clients are 577 real people of CFP and CelebA
(b) the server goes on with 253 real people of CelebA; the clients are 324 people of CFP

Tested on the official LFW pairs, and on CFP-FP with the people of CFP who are in LFW by name: they train nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from coalface import seeding
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedavg import PositiveOnly
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.fedfv import FedFV
from coalface.algorithms.feduv import FedUV
from coalface.algorithms.random_targets import RandomTargets
from coalface.config import Central, Run
from coalface.data import pairs as pair_lists
from coalface.data import synthetic
from coalface.data.faces import read_folder, read_images
from coalface.data.faceset import FaceSet
from coalface.data.packs import unpacked
from coalface.data.pairs import PairList
from coalface.data.partition import Partition
from coalface.data.population import Population
from coalface.data.world import Data, World
from coalface.evaluation import ListedPairs
from coalface.experiment import Experiment
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.models.net import Net, Weights
from coalface.numerics import Numerics
from coalface.report.progress import Progress
from coalface.reproduce import figures
from coalface.reproduce.artefact import Artefact, Scale, ScaleName
from coalface.reproduce.bench import Bench, Row, Test, finished

PUBLIC_PEOPLE, PUBLIC_IMAGES = 2000, 20  # synthetic
ON_CELEBA = Central(rounds=12, training=Training(rate=0.01, rate_drops=((10, 0.2),), batch=64, momentum=0.9))


def _run(size: int, model: str, embedding: int, rounds: int, pretrain: int) -> Run:
    """A client's round is one step on ten of its images; the lower rate at the end settles the noise of cohorts."""
    drop = max(1, pretrain * 5 // 6)
    return Run(
        model=model,
        embedding=embedding,
        data=Data(source="photographs", size=size, public=0, test=20, pairs=20),
        pretrain=Central(
            rounds=pretrain, training=Training(rate=0.02, rate_drops=((drop, 0.2),), batch=128, momentum=0.9)
        ),
        rounds=Rounds(rounds=rounds, cohort=32, checkpoint_every=max(1, rounds // 4)),
        training=Training(rate=0.05, images_per_round=10, rate_drops=((max(2, rounds * 4 // 5), 0.2),)),
        central=ON_CELEBA,
    )


SCALES: dict[ScaleName, Scale] = {
    "cpu": Scale(_run(32, "feduv_cnn_small", 128, 400, 6), ("LFW", "CFP-FP")),
    "paper": Scale(_run(64, "feduv_cnn", 512, 500, 12), ("LFW", "CFP-FP")),
}
# Half the passes over synthetic faces, and faster arithmetic: an image costs seven times as much here.
STRONGER: dict[ScaleName, Scale] = {
    "paper": Scale(replace(_run(112, "sphere20", 512, 400, 6), numerics=Numerics("bf16")), ("LFW", "CFP-FP"))
}


def _rows(scale: Scale) -> Sequence[Row]:
    rows = []
    # A hinge has no scale, where a softmax has 16: at the softmax's rate these methods hardly leave their start.
    hinge = replace(scale.run.training, rate=1.0)
    without_scale: dict[str, Method] = {
        "random targets": RandomTargets(),
        "FedUV-511": FedUV(),
        "FedUV-511 by features": FedUV(similarity="embedding"),
        "FedAwS": FedAwS(),
        "FedFace": FedFace(),
    }
    for part in ("(a)", "(b)"):
        rows.append(Row(f"{part} start"))
        rows += [
            Row(f"{part} FedAvg, positive only", PositiveOnly()),
            Row(f"{part} random targets", RandomTargets()),
            Row(f"{part} FedUV-511", FedUV()),
            Row(f"{part} FedAwS", FedAwS()),
            Row(f"{part} FedFace", FedFace()),
            Row(f"{part} FedFV", FedFV()),
        ]
        rows += [Row(f"{part} {label}, rate 1", method, training=hinge) for label, method in without_scale.items()]
        one_grouping = ((4, 1), (8, 1)) if part == "(a)" else ()  # the frontier is drawn in (a)
        rows += [_chorus(part, choir, groupings) for choir, groupings in (*one_grouping, (8, 4))]
        rows.append(Row(f"{part} central", central=True))
        if part == "(a)":  # 15 passes over its people are as many images as the federation sees; 12 are four fifths
            as_many = replace(ON_CELEBA, rounds=15, training=replace(ON_CELEBA.training, rate_drops=((12, 0.2),)))
            rows.append(Row("(a) central, as many images", central=True, plan=as_many))
    # After CelebA, a fresh classifier first unlearns: to be fair to central training, it has more chances.
    training = replace(ON_CELEBA.training, rate_drops=((20, 0.2),))
    longer = replace(ON_CELEBA, rounds=24, training=training)
    gently = replace(ON_CELEBA, training=replace(ON_CELEBA.training, rate=0.002))
    rows.append(Row("(b) central, twice as long", central=True, plan=longer))
    rows.append(Row("(b) central, a fifth of the rate", central=True, plan=gently))
    return rows


def _chorus(part: str, choir: int, groupings: int, noise: float = 0.0) -> Row:
    label = f"{part} chorus, choirs of {choir}"
    label += f", {groupings} groupings" if groupings > 1 else ""
    label += f", noise {noise:g}" if noise else ""
    return Row(label, Chorus(choir=choir, groupings=groupings, noise=noise, margin=0.1))


def _frontier(scale: Scale) -> Sequence[Row]:
    """Choirs of k in R groupings; with the same R/k the server can solve for the same share of each voice."""
    shapes = [(4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (16, 4), (8, 4)]
    rows = [_chorus("(a)", choir, groupings) for choir, groupings in shapes]
    rows += [_chorus("(a)", 8, 4, noise) for noise in (0.5, 1.0)]
    return [Row("(a) start"), *rows, Row("(a) FedFV", FedFV()), Row("(a) central", central=True)]


@dataclass(frozen=True)
class RealArtefact(Artefact):
    """An artefact whose people are real: it has to be told where their photographs are."""

    photographs: Path = Path()
    cache: Path = Path()  # where packs are unpacked

    def on(self, photographs: Path, cache: Path) -> RealArtefact:
        """With these photographs; if they were made small for the journey, the remarks say so."""
        packed = photographs / "packed.json"
        note = f" Photographs re-encoded at {json.loads(packed.read_text())['re_encoded']}." if packed.exists() else ""
        return replace(self, photographs=photographs, cache=cache, remarks=self.remarks + note)

    def bench(  # type: ignore[override]  # it measures as a Bench does
        self, scale: ScaleName, seed: int, out: Path, device: torch.device, progress: Progress, command: str
    ) -> RealBench:
        run = replace(self.scales[scale].run, seed=seed)
        return RealBench(run, Photographs(self.photographs, self.cache, run.data.size), out, device, progress, command)


@dataclass
class RealBench:
    """Two benches, (a) and (b); the start of the second is the first one's, trained on."""

    run: Run
    photographs: Photographs
    out: Path
    device: torch.device
    progress: Progress
    command: str

    def measure(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        measured: dict[str, dict[str, Any]] = {}
        start: Weights | None = None
        for part, people in (("(a)", ("cfp", "celeba")), ("(b)", ("cfp",))):
            mine = [row for row in rows if row.label.startswith(part)]
            faces = joined([self.photographs.people(name) for name in people])
            run = self._run(faces)
            done = {row.label: finished(self.out, row, run) for row in mine}
            if all(done.values()):
                measured |= done  # type: ignore[arg-type]  # none of them is None
                continue
            world = self._world(faces)
            if start is None:
                public = replace(world, public=self._synthetic())
                start, _ = self._experiment(self.run, self.out / "start", public).start()  # the same for (a) and (b)
            if part == "(b)":
                start = self._on_celeba(start)
            bench = Bench(
                run, self._tests, self.out, self.device, self.progress, self.command, {run.data: world}, start
            )
            measured |= bench.measure(mine)
        return measured

    def _experiment(self, run: Run, out: Path, world: World) -> Experiment:
        return Experiment(run, out, self.device, self.progress, self.command, loaded=world)

    def _on_celeba(self, start: Weights) -> Weights:
        world, folder = self._world(self.photographs.people("celeba")), self.out / "start-b"
        stages = self._experiment(self.run, folder, world).stages
        return stages.centrally("CelebA, for the server", folder, ON_CELEBA, world.clients, start).models[0]

    def _run(self, faces: FaceSet) -> Run:
        return replace(self.run, data=replace(self.run.data, clients=len(faces)))

    def _world(self, faces: FaceSet) -> World:
        """These people as clients, one each."""
        here = FaceSet(faces.images.to(self.device), faces.offsets)
        # In an order of this seed: choirs and cohorts are drawn by number.
        order = torch.randperm(len(faces), generator=seeding.generator(self.run.seed, "clients")).tolist()
        clients = tuple((person,) for person in order)
        partition = Partition((), (), (), clients, identities=len(faces))
        return World(None, Population(here, clients), None, self.photographs.held_out(), partition)

    def _synthetic(self) -> Population:
        """Whom the server trains on first."""
        seed, size = seeding.derive(self.run.seed, "faces"), self.run.data.size
        drawn = synthetic.draw_faceset(
            0, PUBLIC_PEOPLE, PUBLIC_IMAGES, size, seed, synthetic.STANDARD, str(self.device)
        )
        return Population(drawn, (tuple(range(PUBLIC_PEOPLE)),))

    def _tests(self, net: Net, device: torch.device, seed: int) -> Mapping[str, Test]:
        return {name: ListedPairs(net, *self.photographs.test(name)) for name in ("LFW", "CFP-FP")}


@dataclass
class Photographs:
    """The packs, read once. No identity of a test is among the people."""

    root: Path
    cache: Path
    size: int
    _read: dict[str, Any] = field(default_factory=dict)

    def people(self, name: str) -> FaceSet:
        """``cfp``: those not in LFW; ``celeba``: those with ten images or more."""
        if name not in self._read:
            if name == "cfp":
                folder = unpacked(self.root, "cfp112", self.cache) / "cfp112/Data/Images"
                read = read_folder(folder, self.size, exclude=self._in_lfw(), recursive=True)
            else:
                folder = unpacked(self.root, "celeba299_112", self.cache) / "celeba299_112"
                read = read_folder(folder, self.size, min_images=10)
            self._read[name] = read.faces
        faces: FaceSet = self._read[name]
        return faces

    def held_out(self) -> FaceSet:
        """The people of CFP who are in LFW."""
        if "held out" not in self._read:
            folder = unpacked(self.root, "cfp112", self.cache) / "cfp112/Data/Images"
            others = [entry.name for entry in folder.iterdir() if entry.name not in self._in_lfw()]
            self._read["held out"] = read_folder(folder, self.size, exclude=others, recursive=True).faces
        faces: FaceSet = self._read["held out"]
        return faces

    def test(self, name: str) -> tuple[torch.Tensor, PairList]:
        """The images of a list of pairs, and the list."""
        if name not in self._read:
            if name == "LFW":
                folder = unpacked(self.root, "lfw112_pairs", self.cache) / "lfw112"
                listed = pair_lists.read_lfw(folder / "pairs.txt", folder)
            else:
                listed = self._of_held_out(unpacked(self.root, "cfp112", self.cache) / "cfp112")
            paths = [image for image in listed.images if isinstance(image, Path)]
            self._read[name] = (read_images(paths, self.size), listed)
        images, listed = self._read[name]
        return images, listed

    def _of_held_out(self, folder: Path) -> PairList:
        """CFP's frontal–profile pairs of people who are held out; of each fold as many genuine ones as impostors."""
        listed, known = pair_lists.read_cfp(folder, "FP"), self._in_lfw()
        inside = torch.tensor([isinstance(image, Path) and image.parts[-3] in known for image in listed.images])
        kept = inside[listed.left] & inside[listed.right]
        for fold in listed.fold.unique():
            kinds = [
                (kept & (listed.fold == fold) & (listed.same == same)).nonzero().flatten() for same in (True, False)
            ]
            for kind in kinds:
                kept[kind[min(map(len, kinds)) :]] = False
        return replace(
            listed,
            left=listed.left[kept],
            right=listed.right[kept],
            same=listed.same[kept],
            fold=listed.fold[kept],
        )

    def _in_lfw(self) -> set[str]:
        text = (self.root / "cfp_lfw_overlap.json").read_text()
        return set(json.loads(text)["cfp_identity_also_in_lfw"])


def joined(several: Sequence[FaceSet]) -> FaceSet:
    """One set after the other."""
    counts = torch.cat([faces.counts() for faces in several])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return FaceSet(torch.cat([faces.images for faces in several]), offsets)


COLUMNS = {
    "LFW accuracy": ("LFW", "accuracy"),
    "LFW TAR@1%": ("LFW", "tar@0.01"),
    "CFP-FP accuracy, held-out people": ("CFP-FP", "accuracy"),
}
ENDS = {part: (f"{part} start", f"{part} central") for part in ("(a)", "(b)")}

ARTEFACTS: dict[str, Artefact] = {
    "real-lfw": RealArtefact(
        "Real photographs, 64×64, tested on LFW: (a) a server that saw synthetic faces only, (b) and then CelebA",
        COLUMNS,
        (),
        SCALES,
        _rows,
        "Identities of clients and tests are disjoint.",
        between=ENDS,
    ),
    "chorus-frontier": RealArtefact(
        "Chorus on real photographs: accuracy against the size of choirs, groupings and noise",
        COLUMNS,
        (),
        SCALES,
        _frontier,
        "Identities of clients and tests are disjoint.",
        rows_of="real-lfw",
        between=ENDS,
        figures=lambda result: {"frontier": figures.frontier(result, "LFW accuracy")},
    ),
    "real-lfw-112": RealArtefact(
        "Real photographs, 112×112, with a stronger network (sphere20)",
        COLUMNS,
        (),
        STRONGER,
        _rows,
        "Identities of clients and tests are disjoint. In bf16; 400 rounds, and 6 passes over synthetic faces.",
        between=ENDS,
    ),
}
