"""What sphere64's convolutions alone take on a GPU: one model with 256 images, and 16 models with 16 images each.

    python benchmarks/convolutions.py

All else that a round does comes on top. So one model's time bounds how fast FedFace's rounds can be, and what 16 models
take more bounds the share of central throughput where clients take several steps, each with weights of its own. The 60
convolutions of the residual blocks are timed, stage by stage; the four that halve the image are left out. The models
go side by side as the engine has them: a stream for each, recorded as one CUDA graph.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance
from coalface.numerics import Numerics
from coalface.report.tables import markdown_table

STAGES = ((64, 56, 6), (128, 28, 16), (256, 14, 32), (512, 7, 6))  # channels, pixels, convolutions
MODELS, IMAGES = 16, 16
PASSES = ("forward", "by input", "by weight")
PRECISIONS = {"tf32": torch.float32, "bf16": torch.bfloat16}
FEDFACE_IMAGES = 200 * 1000 * 47
REPLAYS, WARM_UPS = 20, 3


def milliseconds(work: Callable[[], object]) -> float:
    """Of the work, recorded as a graph."""
    for _ in range(WARM_UPS):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for _ in range(REPLAYS):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(begun.elapsed_time(ended)) / REPLAYS


def side_by_side(works: list[Callable[[], object]]) -> Callable[[], object]:
    """Each in a stream of its own."""
    streams = [torch.cuda.Stream() for _ in works]

    def run() -> None:
        main = torch.cuda.current_stream()
        for stream, work in zip(streams, works, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                work()
        for stream in streams:
            main.wait_stream(stream)

    return run


def passes(images: Tensor, weight: Tensor, gradient: Tensor) -> list[Callable[[], object]]:
    """Forward, and the two halves of a backward pass."""

    def back(by_input: bool) -> object:
        wanted = [by_input, not by_input, False]
        return torch.ops.aten.convolution_backward(
            gradient, images, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted
        )

    return [lambda: F.conv2d(images, weight, padding=1), lambda: back(True), lambda: back(False)]


def stage(channels: int, pixels: int, dtype: torch.dtype) -> dict[str, float]:
    """Milliseconds of one convolution in each pass, for one model and for several."""
    last = torch.channels_last
    shape = (MODELS * IMAGES, channels, pixels, pixels)
    images = torch.randn(shape, device="cuda", dtype=dtype).contiguous(memory_format=last)
    gradient = torch.randn_like(images)
    weights = [torch.randn(channels, channels, 3, 3, device="cuda", dtype=dtype) for _ in range(MODELS)]
    weights = [weight.contiguous(memory_format=last) for weight in weights]
    parts = zip(images.split(IMAGES), weights, gradient.split(IMAGES), strict=True)
    several = list(zip(*(passes(*part) for part in parts), strict=True))  # pass -> one work for each model
    one = passes(images, weights[0], gradient)
    found = {f"one, {name}": milliseconds(work) for name, work in zip(PASSES, one, strict=True)}
    return found | {
        f"several, {name}": milliseconds(side_by_side(list(works))) for name, works in zip(PASSES, several, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this times a GPU's convolutions, and there is no GPU")
    rows: list[dict[str, Any]] = []
    for precision, dtype in PRECISIONS.items():
        Numerics(precision).switch_on()  # type: ignore[arg-type]
        for channels, pixels, count in STAGES:
            about = {"precision": precision, "channels": channels, "pixels": pixels, "convolutions": count}
            rows.append(about | stage(channels, pixels, dtype))
            print(rows[-1], flush=True)
    write(options.out, rows, provenance.describe(torch.device("cuda")))


def write(out: Path, rows: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """The measurements, and what they come to."""
    cells, told = [], []
    for row in rows:
        flop = 2 * 9 * row["channels"] ** 2 * row["pixels"] ** 2 * MODELS * IMAGES
        rates = (f"{flop / row[f'{who}, {name}'] / 1e9:.0f}" for name in PASSES for who in ("one", "several"))
        cells.append([row["precision"], f"{row['channels']}, {row['pixels']} × {row['pixels']}", *rates])
    totals: dict[str, dict[str, float]] = {}
    for precision in dict.fromkeys(row["precision"] for row in rows):
        mine = [row for row in rows if row["precision"] == precision]
        one, several = (
            sum(row["convolutions"] * row[f"{who}, {name}"] for row in mine for name in PASSES)
            for who in ("one", "several")
        )
        each = one / (MODELS * IMAGES)  # milliseconds an image
        totals[precision] = {
            "us an image, one model": 1000 * each,
            "share of one model's speed": one / several,
            "minutes of FedFace": each * FEDFACE_IMAGES / 60_000,
        }
        minutes = totals[precision]["minutes of FedFace"]
        told.append(
            f"{precision}: {1000 * each:.1f} µs an image with one model; 16 models side by side have "
            f"{one / several:.2f} of its speed; FedFace's 9.4 million images take {minutes:.1f} minutes."
        )
    heads = ["", "channels, pixels", *(f"{name}, {who}" for name in PASSES for who in ("1 × 256", "16 × 16"))]
    about = f"TFLOP/s of one convolution. {made['hardware']}, {made['date']}, commit {made['commit']}."
    out.mkdir(parents=True, exist_ok=True)
    (out / "convolutions_cuda.json").write_text(json.dumps({"rows": rows, "totals": totals, **made}, indent=1) + "\n")
    (out / "convolutions_cuda.md").write_text("\n\n".join([markdown_table(cells, heads), *told, about]) + "\n")


if __name__ == "__main__":
    main()
