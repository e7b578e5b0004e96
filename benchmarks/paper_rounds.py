"""Seconds that the papers' federations take: FedFV's 15,000 rounds of 8 phones, FedFace's 200 rounds of 1,000.

    python benchmarks/paper_rounds.py --device cuda --precision bf16 --compiled

A stretch of rounds is timed after a warm-up and multiplied; start, faces and evaluation are not in it. Pixels are
noise: what is timed does not depend on them. The row of the other paper stays if it is of the same machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.engines import Work
from coalface import provenance, seeding
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.fedfv import FedFV
from coalface.engines.stacked import Stacked
from coalface.federation import Federation, Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.numerics import Numerics
from coalface.report.tables import markdown_table
from coalface.store import Stage

# name: method, network, pixels, clients, images each, cohort (0: all), rounds of the paper, warm-up, timed
PAPERS: dict[str, tuple[Method, str, int, int, int, int, int, int, int]] = {
    "FedFV": (FedFV(), "feduv_cnn", 64, 1000, 30, 8, 15_000, 600, 1000),
    "FedFace": (FedFace(), "sphere64", 112, 1000, 47, 0, 200, 1, 1),
}


def seconds(paper: str, device: torch.device, numerics: Numerics) -> dict[str, Any]:
    """Of one round, and of all."""
    method, model, size, clients, images, cohort, rounds, warm_up, timed = PAPERS[paper]
    work = Work(model, clients, images, size, device, numerics)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), method.types.server, method.types.private, "paper rounds", device)
        rules = Rounds(rounds=rounds, cohort=cohort, checkpoint_every=rounds)
        engine = Stacked(work.population, stage.private)
        federation = Federation(
            method, work.net, clients, engine, rules, Training(rate=0.01), 0, stage, lambda server: {}
        )
        run = federation.run(method.begin(work.net, work.start, work.population, seeding.generator(0, "begin")))
        for _ in range(warm_up):
            next(run)
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(timed):
            next(run)
        torch.cuda.synchronize(device)
        one = (time.perf_counter() - began) / timed
    return {"paper": paper, "rounds": rounds, "timed": timed, "ms a round": one * 1000, "minutes": one * rounds / 60}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="tf32")
    parser.add_argument("--compiled", action="store_true", help="by torch.compile")
    parser.add_argument("--papers", nargs="+", choices=tuple(PAPERS), default=list(PAPERS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    device, numerics = torch.device(options.device), Numerics(options.precision, compiled=options.compiled)
    numerics.switch_on()
    commit = {"commit": provenance.describe(device)["commit"]}
    rows = [seconds(paper, device, numerics) | commit for paper in options.papers]
    write(options.out, options.precision + ("_compiled" if options.compiled else ""), rows, provenance.describe(device))


def write(out: Path, arithmetic: str, rows: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """As numbers and as a table."""
    stem = out / f"paper_rounds_{arithmetic}"
    before = json.loads(stem.with_suffix(".json").read_text()) if stem.with_suffix(".json").exists() else {}
    now = {row["paper"] for row in rows}
    if before.get("hardware") == made["hardware"]:
        rows = sorted(rows + [row for row in before["rows"] if row["paper"] not in now], key=lambda row: row["paper"])
    out.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps({"arithmetic": arithmetic, "rows": rows, **made}, indent=1) + "\n")
    cells = [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    where = f"{arithmetic.replace('_', ', ')}; {made['hardware']}, {made['date']}."
    stem.with_suffix(".md").write_text(f"{markdown_table(cells, list(rows[0]))}\n\n{where}\n")
    print(stem.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
