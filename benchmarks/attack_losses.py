"""How much each of FedGPAD's losses weighs in the sum that is minimised, from the rounds of its detectors.

    coalface reproduce fedgpad-table3 --scale cpu --rows "FedGPAD, "
    python benchmarks/attack_losses.py out/reproduce

Reads ``rounds.jsonl`` of every FedGPAD row below the folder; a scale has a line for each of some rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from coalface.algorithms.fedgpad import FedGPAD
from coalface.report.tables import markdown_table
from coalface.reproduce.writing import places

ROUNDS = (1, 2, 4, 9, 18)
PLAIN = FedGPAD()
WEIGHTS = {
    "classification": 1.0,
    "depth": PLAIN.depth_weight,
    "reconstruction": PLAIN.reconstruction_weight,
    "difference": PLAIN.difference_weight,
}


def shares(losses: dict[str, float]) -> dict[str, float]:
    """Each part's share of the weighted sum."""
    return {part: weight * losses[part] / losses["loss"] for part, weight in WEIGHTS.items()}


def page(root: Path) -> str:
    scales: dict[str, list[Path]] = {}
    for file in sorted(root.glob("*/seed*/fedgpad-?-?-?/rounds.jsonl")):
        scales.setdefault(file.parts[-4], []).append(file)
    lines, made = [], []
    for scale, files in scales.items():
        made += [json.loads(file.with_name("measured.json").read_text())["made"] for file in files]
        runs = [[json.loads(line)["losses"] for line in file.read_text().splitlines()] for file in files]
        for number in ROUNDS:
            here = [run[number - 1] for run in runs]
            sizes = [f"{statistics.mean(losses[part] for losses in here):.4f}" for part in WEIGHTS]
            mean = {part: 100 * statistics.mean(shares(losses)[part] for losses in here) for part in WEIGHTS}
            cells = [f"{size} ({mean[part]:.1f})" for part, size in zip(WEIGHTS, sizes, strict=True)]
            lines.append([scale, str(len(files)), str(number), *cells])
    header = ["rows of", "detectors", "round", *(f"{part}, × {weight:g}" for part, weight in WEIGHTS.items())]
    about = "Mean over detectors and centres, before the weight; in brackets, after it, percent of the sum."
    command = f"`python benchmarks/attack_losses.py out/reproduce` on rows of {'; '.join(places(made))}."
    return "\n\n".join(["# What FedGPAD's losses weigh", about, markdown_table(lines, header), command]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="the folder that coalface reproduce wrote into")
    parser.add_argument("--out", type=Path, default=Path("results/attack_losses.md"))
    options = parser.parse_args()
    text = page(options.rows)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
