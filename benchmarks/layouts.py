"""How fast a CPU trains each network with an image's channels last in memory, as a ratio to channels first, in one run.

    python benchmarks/layouts.py --threads 1 2

A step of plain SGD on a client's images: weights laid out, forward, backward, weights moved. Both ways take turns, and
the second fastest of each counts. Networks that gain stand in coalface/models/__init__.py:CHANNELS_LAST_ON_CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance
from coalface.models import CHANNELS_LAST_ON_CPU
from coalface.models.net import Net, scaled
from coalface.numerics import channels_last
from coalface.report.tables import markdown_table

# network: pixels, images of a step
STEPS = {
    "feduv_cnn_small": ((32, 10), (32, 64)),
    "feduv_cnn": ((64, 10), (64, 30)),
    "mobilefacenet": ((32, 20), (64, 20)),
    "mobilenetv2": ((32, 20), (64, 10)),
    "pocketnet": ((32, 20), (64, 10)),
    "ghostfacenet": ((32, 20), (64, 20)),
    "fedgpad": ((32, 32),),
    "fedgpad_relief": ((32, 32),),
    "fedgpad_specific": ((32, 32),),
    "sphere20": ((32, 20), (112, 8)),
    "iresnet18": ((32, 20), (112, 4)),
    "resnet18": ((32, 32), (64, 16)),
}
TURNS = 7


def seconds(net: Net, images: torch.Tensor, last: bool) -> float:
    """Of one step."""
    weights = net.fresh(0)
    learnt = {name: leaf.requires_grad_() for name, leaf in weights.parameters.items()}
    module = net.module(weights)
    began = time.perf_counter()
    laid = channels_last(learnt) if last else learnt
    others = (images.new_zeros(len(images), 512, dtype=torch.float32),) if net.name == "fedgpad_specific" else ()
    outputs = functional_call(module, (laid, weights.statistics), (scaled(images), *others))
    features = outputs[0] if isinstance(outputs, tuple) else outputs
    gradients = torch.autograd.grad(features.square().mean(), list(learnt.values()), allow_unused=True)
    with torch.no_grad():
        for leaf, gradient in zip(learnt.values(), gradients, strict=True):
            if gradient is not None:
                leaf.sub_(gradient, alpha=0.01)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", choices=tuple(STEPS), default=list(STEPS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in options.models:
        for size, count in STEPS[model]:
            net = Net(model) if model == "resnet18" else Net(model, size=size)
            images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
            for threads in options.threads:
                torch.set_num_threads(threads)
                took: dict[bool, list[float]] = {False: [], True: []}
                for turn in range(2 * TURNS):
                    took[bool(turn % 2)].append(seconds(net, images, bool(turn % 2)))
                first, last = (sorted(several)[1] for several in took.values())
                about = {"model": model, "pixels": size, "images": count, "threads": threads}
                rows.append(about | {"first": first, "last": last, "ratio": first / last})
                print(rows[-1], flush=True)
    made = provenance.describe(torch.device("cpu"))
    cells = [
        [*(str(row[part]) for part in ("model", "pixels", "images", "threads")), f"{row['ratio']:.2f}", _taken(row)]
        for row in rows
    ]
    table = markdown_table(cells, ["network", "pixels", "images", "threads", "channels first / last", "taken"])
    told = f"Seconds of a step, channels first over last; {made['hardware']}, {made['date']}, commit {made['commit']}."
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "layouts_cpu.json").write_text(json.dumps({"rows": rows, **made}, indent=1) + "\n")
    (options.out / "layouts_cpu.md").write_text(f"{table}\n\n{told}\n")


def _taken(row: dict[str, Any]) -> str:
    return "last" if row["model"] in CHANNELS_LAST_ON_CPU else "first"


if __name__ == "__main__":
    main()
