"""How hard are the synthetic attacks? A small network on one domain, or on all but one, tested on each.

    python benchmarks/attack_difficulty.py --seeds 0 1 2 --out results

writes attack_difficulty.json and attack_difficulty.md. Thresholds are EER thresholds on the source's dev subjects.
Every seed draws its own people, rooms and initial weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coalface import provenance, seeding
from coalface.data.attacks import DOMAINS, draw_domain
from coalface.data.recordings import Recordings, join
from coalface.protocols.leave_one_out import judge, scored

SUBJECTS = {"train": 40, "dev": 15, "test": 20}
VIDEOS, FRAMES = 3, 2
EPOCHS, POOLED_EPOCHS, BATCH, RATE = 15, 8, 32, 2e-3


def small_network(generator: torch.Generator) -> nn.Module:
    layers: list[nn.Module] = []
    for inside, outside, stride in ((3, 24, 2), (24, 32, 1), (32, 64, 1), (64, 64, 1)):
        layers += [nn.Conv2d(inside, outside, 5 if stride == 2 else 3, stride, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outside), nn.ReLU(), *([nn.MaxPool2d(2)] if stride == 1 else [])]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1))
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                fan_in = layer.weight[0].numel()
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * (2 / fan_in) ** 0.5)
            if isinstance(layer, nn.Linear):
                layer.bias.zero_()
    return network


def train(recordings: Recordings, epochs: int, seed: int, device: str) -> nn.Module:
    generator = seeding.generator(seed, "attack difficulty")
    network = small_network(generator).to(device).train()
    optimiser = torch.optim.Adam(network.parameters(), RATE, weight_decay=1e-4)
    for _ in range(epochs):
        for rows in torch.randperm(len(recordings), generator=generator).split(BATCH):
            batch = recordings.select(rows)
            images = batch.images.float().div(255)
            if torch.rand((), generator=generator) < 0.5:
                images = images.flip(3)
            loss = F.binary_cross_entropy_with_logits(network(images)[:, 0], batch.live.float())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


def one_seed(seed: int, size: int, device: str) -> list[dict[str, float | str]]:
    """Rows of source, target, HTER, EER and AUC of frames and HTER of videos."""
    sets = {
        (name, split): draw_domain(name, split, SUBJECTS[split], VIDEOS, FRAMES, size, seed, device)
        for name in DOMAINS
        for split in SUBJECTS
    }
    rows = []
    for sources, targets in (
        *(((source,), tuple(DOMAINS)) for source in DOMAINS),
        *((tuple(name for name in DOMAINS if name != target), (target,)) for target in DOMAINS),
    ):
        together = join([sets[source, "train"] for source in sources])
        network = train(together, EPOCHS if len(sources) == 1 else POOLED_EPOCHS, seed, device)

        def score(images: Tensor, network: nn.Module = network) -> Tensor:
            return network(images.float().div(255))[:, 0]

        dev = {source: scored(score, sets[source, "dev"]) for source in sources}
        for target in targets:
            told = judge(target, scored(score, sets[target, "test"]), dev, seed, replicates=0)
            rates = {
                "hter": told.frame.hter,
                "eer": told.frame.eer,
                "auc": told.frame.auc,
                "video hter": told.video.hter,
            }
            rows.append({"seed": seed, "source": "&".join(sources), "target": target, **rates})
    return rows


def page(rows: list[dict[str, float | str]], size: int, command: str) -> str:
    """Tables of frame HTER by source and target, and means."""

    def cell(source: str, target: str) -> str:
        found = [100 * float(r["hter"]) for r in rows if r["target"] == target and _kind(r, source)]
        return f"{statistics.mean(found):.1f}"

    def mean(rate: str, kind: str) -> str:
        by_seed = {
            seed: statistics.mean(100 * float(r[rate]) for r in rows if r["seed"] == seed and _kind(r, kind))
            for seed in sorted({row["seed"] for row in rows})
        }
        spread = f" ± {statistics.stdev(by_seed.values()):.1f}" if len(by_seed) > 1 else ""
        return f"{statistics.mean(by_seed.values()):.1f}{spread}"

    names = list(DOMAINS)
    lines = [
        "# How hard the synthetic attacks are",
        "",
        f"A network of four convolutions, {size}×{size} pixels, trained on one domain ({SUBJECTS['train']} subjects × "
        f"{VIDEOS} live recordings and {VIDEOS} attacks × {FRAMES} frames, {EPOCHS} epochs), tested on "
        f"{SUBJECTS['test']} other subjects of each; and on the four others pooled ({POOLED_EPOCHS} epochs). "
        "HTER of frames in percent, threshold from the sources' dev subjects; "
        f"seeds: {len({row['seed'] for row in rows})}.",
        "",
        "| source | " + " | ".join(f"→ {name}" for name in names) + " |",
        "|---|" + "---|" * len(names),
        *(
            "| " + " | ".join([source, *(cell(source, target) for target in names)]) + " |"
            for source in [*names, "others"]
        ),
        "",
        "| mean | HTER | EER | AUC | HTER of videos |",
        "|---|---|---|---|---|",
        *(
            f"| {kind} | " + " | ".join(mean(rate, kind) for rate in ("hter", "eer", "auc", "video hter")) + " |"
            for kind in ("same domain", "one other domain", "others")
        ),
        "",
        f"`{command}`",
        "",
    ]
    return "\n".join(lines)


def _kind(row: dict[str, float | str], kind: str) -> bool:
    """Whether a row is of this source, or of this relation of source and target."""
    source, target = str(row["source"]), row["target"]
    kinds = {"same domain": source == target, "one other domain": source != target and "&" not in source}
    return source == kind or kinds.get(kind, "&" in source and kind == "others")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    made = provenance.describe(torch.device(options.device))
    rows = [row for seed in options.seeds for row in one_seed(seed, options.size, options.device)]
    command = (
        f"python benchmarks/attack_difficulty.py --seeds {' '.join(map(str, options.seeds))} --size {options.size}"
    )
    text = page(rows, options.size, command)
    options.out.mkdir(parents=True, exist_ok=True)
    told = {"made": made, "rows": rows}
    (options.out / "attack_difficulty.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    (options.out / "attack_difficulty.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
