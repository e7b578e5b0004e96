"""The spread-out step over many class embeddings, all pairs and top-k: seconds, and the share of the product's speed.

    python benchmarks/server_step.py [--device auto|cpu|cuda] [--classes 1000 10000 100000] [--out results]

One pass over all pairs (a round takes up to five), of class embeddings that are apart, as they are in most rounds, and
of ones that have collapsed, where every pair is active; and the step of a server that has looked at all pairs before,
after a round of 100 clients. The limit is the product of half the tiles, timed in the same run on the same tiles.
Monitors are timed too: every round pays for them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.revealed_embedding import Server
from coalface.models.net import Weights
from coalface.objectives.spread_out import by_row, repulsion

DIMENSIONS, BLOCK, NEAREST, MAX_COS, COHORT, ITERATIONS = 512, 4096, 10, 0.3, 100, 5


def embeddings(classes: int, cosine: float, device: torch.device) -> Tensor:
    """Unit rows whose cosines are all near ``cosine``."""
    drawn = F.normalize(torch.randn(classes + 1, DIMENSIONS, generator=torch.Generator().manual_seed(0)), dim=1)
    return F.normalize(cosine**0.5 * drawn[0] + (1 - cosine) ** 0.5 * drawn[1:], dim=1).to(device)


def products(w_CD: Tensor) -> None:
    """The limit: every tile's product, once, and nothing else."""
    for first in range(0, len(w_CD), BLOCK):
        for other in range(first, len(w_CD), BLOCK):
            w_CD[first : first + BLOCK] @ w_CD[other : other + BLOCK].T


def seconds(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measure(classes: int, device: torch.device) -> dict[str, Any]:
    apart, collapsed = (embeddings(classes, cosine, device) for cosine in (0.0, 0.8))
    server = Server(Weights({}, {}), apart, torch.ones(classes, dtype=torch.bool, device=device))
    heard_from = torch.arange(classes, device=device) % max(1, classes // COHORT) == 0
    repulsion(apart[: 2 * BLOCK], MAX_COS, block=BLOCK)  # warm-up
    took = {
        "products": seconds(lambda: products(apart), device),
        "all_pairs_apart": seconds(lambda: repulsion(apart, MAX_COS, block=BLOCK), device),
        "nearest_apart": seconds(lambda: repulsion(apart, MAX_COS, nearest=NEAREST, block=BLOCK), device),
        "all_pairs_collapsed": seconds(lambda: repulsion(collapsed, MAX_COS, block=BLOCK), device),
        "nearest_collapsed": seconds(lambda: repulsion(collapsed, MAX_COS, nearest=NEAREST, block=BLOCK), device),
        "cohort_apart": seconds(lambda: by_row(apart, MAX_COS, ITERATIONS, restless_C=heard_from, block=BLOCK), device),
        "monitors": seconds(lambda: FedAwS().monitors(server), device),
    }
    over = {f"{name}_over_products": round(value / took["products"], 3) for name, value in took.items()}
    return {"classes": classes, "seconds": {name: round(value, 4) for name, value in took.items()}, **over}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--classes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    rows = []
    for classes in options.classes:
        rows.append(measure(classes, torch.device(name)))
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "command": f"python benchmarks/server_step.py --device {name} --classes {' '.join(map(str, options.classes))}",
        "what": f"one pass over all pairs of class embeddings of {DIMENSIONS} numbers, tiles of {BLOCK}, float32, "
        f"margin {MAX_COS}; nearest: the {NEAREST} nearest of each; cohort: of {COHORT} classes beside all",
        "rows": rows,
        **provenance.describe(torch.device(name)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"server_step_{name}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
