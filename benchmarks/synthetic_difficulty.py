"""How hard are the synthetic faces? Pixels, a small network and a large one, trained centrally, on unseen people.

    python benchmarks/synthetic_difficulty.py --scale full --device cuda --out results

writes synthetic_difficulty.json and synthetic_difficulty.md after every cell; cells that the JSON file already holds
are not run again. Every seed draws its own people, so the spread over seeds holds both the people and the training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coalface import provenance, seeding
from coalface.data.faceset import FaceSet
from coalface.data.synthetic import EASY, HARD, STANDARD, draw_faceset
from coalface.models.net import Net, scaled
from coalface.protocols.verification import all_pairs, lfw_folds, pair_scores, synthetic_pairs

DIFFICULTIES = {"easy": EASY, "standard": STANDARD, "hard": HARD}
TEST_FROM = 1_000_000  # training people are numbered from 0, test people from here: never the same person
FMR = 1e-3
SOFTMAX_SCALE = 16.0
RATES = {"feduv_cnn": 0.15, "iresnet18": 0.3}
MOST_EPOCHS = 40


@dataclass(frozen=True)
class Scale:
    size: int
    networks: tuple[tuple[str, int], ...]  # which, and on how many identities
    images_each: int
    shown: int  # images shown in training, at most
    batch: int
    test_people: int
    test_images: int
    pairs: int
    seeds: int


SCALES = {
    "smoke": Scale(32, (("feduv_cnn", 20), ("iresnet18", 20)), 8, 160, 32, 60, 6, 200, 1),
    "full": Scale(
        64, (("feduv_cnn", 300), ("feduv_cnn", 2000), ("iresnet18", 2000)), 20, 500_000, 512, 400, 10, 6000, 3
    ),
}


@dataclass(frozen=True)
class Cell:
    """One trained network (or none), tested."""

    difficulty: str
    model: str
    people: int
    seed: int
    accuracy: float
    tar: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--scale", choices=tuple(SCALES), default="smoke")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    gpu = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if gpu else "cpu")
    scale = SCALES[options.scale]
    cells = read(options.out, scale)
    for seed in range(1, scale.seeds + 1):  # the people of seed 0 served to set the difficulties and the rates
        for difficulty in DIFFICULTIES:
            for cell in measure(difficulty, scale, seed, device, cells):
                cells.append(cell)
                write(options.out, cells, scale, options.scale, device)
                print(cell, flush=True)


def measure(difficulty: str, scale: Scale, seed: int, device: torch.device, done: list[Cell]) -> Iterator[Cell]:
    """The cells of one difficulty and one seed that are not done."""
    have = {(cell.model, cell.people) for cell in done if (cell.difficulty, cell.seed) == (difficulty, seed)}
    missing = [network for network in (("pixels", 0), *scale.networks) if network not in have]
    if not missing:
        return
    conditions, faces = DIFFICULTIES[difficulty], seeding.derive(seed, "faces")
    test = draw_faceset(TEST_FROM, scale.test_people, scale.test_images, scale.size, faces, conditions, device)
    train = draw_faceset(0, max(n for _, n in missing), scale.images_each, scale.size, faces, conditions, device)
    for model, people in missing:
        start = time.perf_counter()
        if model == "pixels":
            embeddings = test.images.flatten(1).float()
            embeddings -= embeddings.mean(0)
        else:
            images = train.images[: people * scale.images_each]
            embeddings = embedded(trained(model, images, people, scale, seed, device), test)
        seconds = time.perf_counter() - start
        yield Cell(difficulty, model, people, seed, *tested(embeddings, test, scale, seed), seconds)


def trained(model: str, images: Tensor, people: int, scale: Scale, seed: int, device: torch.device) -> nn.Module:
    """A network trained by a softmax over cosines, on images mirrored and shifted by chance."""
    net = Net(model, size=scale.size)
    network = net.module(net.fresh(seeding.derive(seed, "weights"))).to(device).train()
    generator = seeding.generator(seed, "batches")
    proxies = nn.Parameter(torch.randn(people, net.embedding, generator=generator).to(device))
    labels = torch.arange(people, device=device).repeat_interleave(scale.images_each)
    steps = min(scale.shown, MOST_EPOCHS * len(images)) // scale.batch
    optimiser = torch.optim.SGD(
        [*network.parameters(), proxies], lr=RATES[model], momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATES[model], total_steps=steps, cycle_momentum=False)
    for _ in range(steps):
        rows = torch.randint(len(images), (scale.batch,), generator=generator).to(device)
        batch = augmented(scaled(images[rows]), generator).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            embeddings = network(batch)
        cosines = F.normalize(embeddings.float(), dim=1) @ F.normalize(proxies, dim=1).T
        loss = F.cross_entropy(SOFTMAX_SCALE * cosines, labels[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def augmented(batch: Tensor, generator: torch.Generator) -> Tensor:
    """Each image mirrored half of the time; the batch shifted by up to a sixteenth of its side."""
    mirrored = (torch.rand(len(batch), generator=generator) < 0.5).view(-1, 1, 1, 1).to(batch.device)
    batch = torch.where(mirrored, batch.flip(3), batch)
    size = batch.shape[-1]
    most = size // 16
    down, right = torch.randint(2 * most + 1, (2,), generator=generator).tolist()
    return F.pad(batch, (most,) * 4, mode="replicate")[..., down : down + size, right : right + size]


@torch.no_grad()
def embedded(network: nn.Module, test: FaceSet) -> Tensor:
    return torch.cat([network(scaled(chunk)) for chunk in test.images.split(500)])


def tested(embeddings: Tensor, test: FaceSet, scale: Scale, seed: int) -> tuple[float, float]:
    """Ten-fold pair accuracy, and TAR at FMR 1e-3 over all pairs."""
    people = torch.repeat_interleave(torch.arange(len(test)), test.counts())
    pairs, same, folds = synthetic_pairs(people, scale.pairs, 10, seeding.generator(seed, "pairs"))
    unit = F.normalize(embeddings, dim=1)
    everyone = all_pairs(unit, people.to(unit.device), (FMR,), replicates=0)
    return lfw_folds(pair_scores(unit, pairs), same, folds).accuracy, everyone.at(FMR).tar


def read(out: Path, scale: Scale) -> list[Cell]:
    """Cells of an earlier run at the same scale."""
    path = out / "synthetic_difficulty.json"
    if not path.exists():
        return []
    earlier = json.loads(path.read_text())
    if earlier["scale"] != json.loads(json.dumps(asdict(scale))):
        raise SystemExit(f"{path} holds a run at another scale: move it away, or give another --out")
    return [Cell(**cell) for cell in earlier["cells"]]


def write(out: Path, cells: list[Cell], scale: Scale, name: str, device: torch.device) -> None:
    out.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/synthetic_difficulty.py --scale {name} --device {device.type}"
    report: dict[str, Any] = {"command": command, "scale": asdict(scale), "made": provenance.describe(device)}
    report["cells"] = [asdict(cell) for cell in cells]
    (out / "synthetic_difficulty.json").write_text(json.dumps(report, indent=2) + "\n")
    (out / "synthetic_difficulty.md").write_text(as_markdown(cells, scale, command, report["made"]["hardware"]))


def as_markdown(cells: list[Cell], scale: Scale, command: str, hardware: str) -> str:
    """Mean and standard deviation over seeds, in percent."""
    lines = [
        "# How hard the synthetic faces are",
        "",
        f"{scale.size}×{scale.size} pixels; {scale.images_each} images of each training identity, at most "
        f"{scale.shown:,} shown in all; tested on {scale.test_people} unseen people × {scale.test_images} images. "
        f"Accuracy: {scale.pairs:,} pairs in ten folds, the threshold from the other nine. TAR: all pairs, "
        f"at FMR {FMR:g}. Mean ± standard deviation over seeds, in percent; each seed has its own people.",
        "",
        "| difficulty | model | training identities | pair accuracy | TAR | seeds |",
        "|---|---|---|---|---|---|",
    ]
    groups = dict.fromkeys((cell.difficulty, cell.model, cell.people) for cell in cells)
    order = list(DIFFICULTIES)
    for difficulty, model, people in sorted(groups, key=lambda group: order.index(group[0])):
        same = [c for c in cells if (c.difficulty, c.model, c.people) == (difficulty, model, people)]
        accuracy, tar = ([100 * getattr(c, name) for c in same] for name in ("accuracy", "tar"))
        lines.append(
            f"| {difficulty} | {model} | {people or '–'} | {_spread(accuracy)} | {_spread(tar)} | {len(same)} |"
        )
    return "\n".join([*lines, "", f"`{command}` on {hardware}.", ""])


def _spread(values: list[float]) -> str:
    mean = f"{statistics.mean(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.1f}"


if __name__ == "__main__":
    main()
