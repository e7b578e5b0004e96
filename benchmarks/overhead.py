"""What the sequential engine costs beside a bare PyTorch loop that does the same steps. Ratios from one run.

    python benchmarks/overhead.py [--device auto|cpu|cuda] [--out results]

Same network, images, layout in memory, cohort, order of batches and optimiser; the bare loop has no federation, wire,
checks, ledger or checkpoint: it trains and averages. Both are timed in turn, several times, after one warm-up.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import models, provenance, seeding
from coalface.algorithms.fedavg import SharedHead
from coalface.allocator import keep_freed_memory
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.engines.sequential import Sequential
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.models.net import Net, scaled
from coalface.store import Stage

CLIENTS, IMAGES, SIZE, BATCH, REPEATS = 8, 30, 64, 10, 7
CHECKPOINT_EVERY = 4
RATE, SCALE = 0.01, 16.0
LAYOUT = torch.channels_last  # which coalface takes for this network, on a CPU and on a GPU


def faces(device: torch.device) -> Population:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (CLIENTS * IMAGES, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    return Population(
        FaceSet(pixels.to(device), torch.arange(0, len(pixels) + 1, IMAGES)), tuple((i,) for i in range(CLIENTS))
    )


def bare_round(model: torch.nn.Module, head: torch.Tensor, population: Population) -> None:
    """A hand-written FedAvg round: copy, train, add up, average."""
    total: dict[str, torch.Tensor] = {}
    for client in range(CLIENTS):
        held = population[client]
        local, own = copy.deepcopy(model), head.clone().requires_grad_()
        optimiser = torch.optim.SGD([*local.parameters(), own], lr=RATE)
        for rows in torch.randperm(IMAGES).split(BATCH):
            chosen = rows.to(held.images.device)
            images = held.images[chosen]
            flip = torch.rand(len(rows)).to(images.device) < 0.5
            images = torch.where(flip[:, None, None, None], images.flip(-1), images)
            features = F.normalize(local(scaled(images).contiguous(memory_format=LAYOUT)), dim=1)
            loss = F.cross_entropy(SCALE * features @ F.normalize(own, dim=1).T, held.classes[held.labels[chosen]])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        state = {**dict(local.named_parameters()), "head": own}
        for name, value in state.items():
            total[name] = value.detach() + total[name] if name in total else value.detach().clone()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(total[name] / CLIENTS)
        head.copy_(total["head"] / CLIENTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)
    keep_freed_memory()  # as the command line does
    population, net, method = faces(device), Net("feduv_cnn", size=SIZE), SharedHead(scale=SCALE)
    model = models.build("feduv_cnn", size=SIZE).to(device, memory_format=LAYOUT)
    head = torch.randn(CLIENTS, 512, device=device)
    seconds: dict[str, list[float]] = {"bare": [], "coalface": []}
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), method.types.server, method.types.private, "overhead", device)
        engine = Sequential(population, stage.private)
        rules = Rounds(rounds=REPEATS + 1, checkpoint_every=CHECKPOINT_EVERY)
        training = Training(rate=RATE, batch=BATCH)
        federation = Federation(method, net, CLIENTS, engine, rules, training, 0, stage, lambda server: {})
        weights = net.fresh(0).map(lambda leaf: leaf.to(device))
        rounds = federation.run(method.begin(net, weights, population, seeding.generator(0, "begin")))
        for _ in range(REPEATS + 1):
            seconds["bare"].append(timed(lambda: bare_round(model, head, population), device))
            seconds["coalface"].append(timed(lambda: next(rounds), device))
    means = {who: statistics.mean(several[1:]) for who, several in seconds.items()}  # a mean: it pays for checkpoints
    result: dict[str, Any] = {
        "command": f"python benchmarks/overhead.py --device {name}",
        "what": f"{CLIENTS} clients × {IMAGES} images of {SIZE}×{SIZE}, feduv_cnn, batches of {BATCH}, one epoch; "
        f"coalface with checks, ledger and a checkpoint every {CHECKPOINT_EVERY} rounds",
        "mean_seconds_a_round": means,
        "seconds": {who: several[1:] for who, several in seconds.items()},
        "coalface_over_bare": means["coalface"] / means["bare"],
        **provenance.describe(device),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"overhead_{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"coalface / bare = {result['coalface_over_bare']:.3f}  {means}")


def timed(work: Any, device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
