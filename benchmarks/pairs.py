"""Verification over a thousand million pairs: pairs a second, beside the matrix products alone, and memory.

    python benchmarks/pairs.py [--device auto|cpu|cuda] [--images 44722] [--out results]

44,722 images make 10⁹ pairs. ``all_pairs`` gives TAR at fixed FMRs, EER and AUC, all exact; the limit is the product of
the same blocks, with nothing done to the scores. Both in one run, after a warm-up on a tenth of the images.
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

from coalface import provenance, speed
from coalface.protocols.pairwise import BLOCK_SCORES, all_pairs

DIMENSIONS, IMAGES_EACH = 512, 10
FMRS = (1e-6, 1e-4, 1e-3)


def faces(images: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Embeddings around a direction for each person, as a good model gives, and whose they are."""
    generator = torch.Generator().manual_seed(0)
    identities = torch.arange(images) // IMAGES_EACH
    people = F.normalize(torch.randn(int(identities[-1]) + 1, DIMENSIONS, generator=generator), dim=1)
    noise = F.normalize(torch.randn(images, DIMENSIONS, generator=generator), dim=1)
    return (people[identities] + 1.2 * noise).to(device), identities.to(device)


def products(unit: Tensor) -> None:
    """The blocks of ``all_pairs``, multiplied and forgotten."""
    rows = max(1, BLOCK_SCORES[unit.device.type] // len(unit))
    for start in range(0, len(unit), rows):
        unit[start : start + rows] @ unit[start:].T


def seconds(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--images", type=int, default=44_722)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)
    embeddings, identities = faces(options.images, device)
    unit = F.normalize(embeddings, dim=1)
    tenth = options.images // 10
    all_pairs(embeddings[:tenth], identities[:tenth], FMRS[1:], replicates=0)
    products(unit[:tenth])
    before = speed.peak_memory(device)
    limit = seconds(lambda: products(unit), device)
    found: list[Any] = []
    whole = seconds(lambda: found.append(all_pairs(embeddings, identities, FMRS, replicates=0)), device)
    pairs = options.images * (options.images - 1) // 2
    result = {
        "command": f"python benchmarks/pairs.py --device {name} --images {options.images}",
        "what": f"{pairs:,} pairs, {DIMENSIONS} numbers an embedding, float32: TAR at FMR {FMRS}, EER and AUC, exact",
        "pairs": pairs,
        "seconds": {"products": limit, "all_pairs": whole},
        "pairs_per_second": {"products": pairs / limit, "all_pairs": pairs / whole},
        "share_of_products": limit / whole,
        "peak_mib_above_warm_up": {k: (v - before[k]) / 2**20 for k, v in speed.peak_memory(device).items()},
        "found": found[0].as_dict(),
        **provenance.describe(device),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"pairs_{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{pairs / whole:.3g} pairs/s, {limit / whole:.2f} of the products' speed; {found[0]}")


if __name__ == "__main__":
    main()
