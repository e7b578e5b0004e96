"""What faster arithmetic costs in accuracy: the demo's recipe at 64 × 64 pixels, by each setting of a GPU's numbers.

    python benchmarks/numerics.py --device cuda --seeds 0 1 2

FedFV and central training from the same start of the same people. The start is pre-trained by each setting too. Every
row is a file in `--out`/numerics; what is there is not measured again, and `--collect` makes the table of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance
from coalface.algorithms.fedfv import FedFV
from coalface.experiment import Experiment
from coalface.numerics import Numerics
from coalface.recipes.demo import demo
from coalface.report.progress import Progress
from coalface.report.tables import markdown_table

SETTINGS = {
    "fp32": Numerics("fp32"),
    "tf32": Numerics("tf32"),
    "tf32, channels first": Numerics("tf32", channels_last=False),
    "tf32, not tuned": Numerics("tf32", autotune=False),
    "bf16": Numerics("bf16"),
    "bf16, compiled": Numerics("bf16", compiled=True),
}
STAGES = {"start": "start", "method": "fedfv", "central": "central"}


def measured(setting: str, seed: int, device: torch.device) -> dict[str, Any]:
    """Accuracy of each stage on unseen people, in per cent."""
    recipe = replace(demo(), method=FedFV())
    run = replace(
        recipe,
        model="feduv_cnn",
        embedding=512,
        data=replace(recipe.data, size=64),
        numerics=SETTINGS[setting],
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        result = Experiment(run, Path(folder), device, Progress(quiet=True), "benchmarks/numerics.py").execute()
    metrics = result["metrics"]
    return {
        "setting": setting,
        "seed": seed,
        **{stage: 100 * metrics[stage]["accuracy"]["accuracy"] for stage in STAGES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="a CPU has one kind of arithmetic")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--collect", type=Path, metavar="FOLDER", help="measure nothing; write the table here")
    options = parser.parse_args()
    device = torch.device(options.device)
    parts = options.out / "numerics"
    parts.mkdir(parents=True, exist_ok=True)
    for seed in () if options.collect else options.seeds:
        for setting in options.settings:
            file = parts / f"{setting.replace(', ', '-').replace(' ', '-')}-{seed}.json"
            if not file.exists():
                row = measured(setting, seed, device) | provenance.describe(device)
                file.write_text(json.dumps(row) + "\n")
                print(f"{setting}, seed {seed}: {', '.join(f'{row[stage]:.2f}' for stage in STAGES)}", flush=True)
    if options.collect:
        write(parts, options.collect)


def write(parts: Path, out: Path) -> None:
    """The table of all rows that are there."""
    rows = [json.loads(file.read_text()) for file in sorted(parts.glob("*.json"))]
    cells = []
    for setting in SETTINGS:
        mine = [row for row in rows if row["setting"] == setting]
        if mine:
            seeds = ", ".join(str(seed) for seed in sorted(row["seed"] for row in mine))
            cells.append([setting, *(_mean(row[stage] for row in mine) for stage in STAGES), seeds])
    made = sorted({f"{row['hardware']}, {row['date']}, commit {row['commit']}" for row in rows})
    told = f"Accuracy in per cent, mean ± standard deviation over the seeds; {'; '.join(made)}."
    out.mkdir(parents=True, exist_ok=True)
    (out / "numerics.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    table = markdown_table(cells, ["arithmetic", *STAGES.values(), "seeds"])
    (out / "numerics.md").write_text(f"{table}\n\n{told}\n")


def _mean(numbers: Any) -> str:
    several = list(numbers)
    spread = f" ± {statistics.stdev(several):.2f}" if len(several) > 1 else ""
    return f"{statistics.mean(several):.2f}{spread}"


if __name__ == "__main__":
    main()
