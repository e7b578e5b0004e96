"""What Flower adds to a round, per client: its simulation on Ray, and real processes behind TLS, against this process.

    python benchmarks/flower_overhead.py [--clients 8] [--rounds 12] [--out results]

The same run, by `--engine sequential`, by `--engine flower-sim`, and by `serve` and `join` with a process for each
client. All end with the same model, bit for bit, which is checked. Times are medians of warm rounds; overhead is the
difference to sequential, over the clients. Ray's processes are told not to stand back (RAY_worker_niceness=0).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from federation_load import METHOD, SETTINGS, lines, measured

from coalface import config, provenance
from coalface.config import method_named
from coalface.recipes import RECIPES
from coalface.report.tables import markdown_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    sizes = [f"data.clients={options.clients}", f"rounds.rounds={options.rounds}", "central.rounds=1"]
    run = config.override(replace(RECIPES["demo"](), method=method_named(METHOD)()), [*SETTINGS, *sizes])
    load = [os.getloadavg()[0]]
    seconds: dict[str, list[float]] = {}
    models = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config.to_json(run)))
        for engine in ("sequential", "flower-sim"):
            out = folder / engine
            command = [sys.executable, "-m", "coalface", "run", folder / "config.json", "--engine", engine, "--quiet"]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
            subprocess.run([*command, "--device", "cpu", "--out", out], env=environment, check=True)
            seconds[engine] = [row["seconds"] for row in lines(out / "rounds.jsonl")]
            models.add(json.loads((out / "result.json").read_text())["checkpoint_sha256"])
            load.append(os.getloadavg()[0])
        if len(models) > 1:
            raise SystemExit("the two engines end with different models")
        served = measured(run, options.clients, folder / "served")
        seconds["serve and join"] = [row["seconds"] for row in served["rounds"]]
        load.append(os.getloadavg()[0])
    medians = {engine: statistics.median(several[2:]) for engine, several in seconds.items()}
    told = f"python benchmarks/flower_overhead.py --clients {options.clients} --rounds {options.rounds}"
    result: dict[str, Any] = {
        "command": told,
        "what": f"{METHOD}, feduv_cnn_small at 32×32, 4 images a client, one step a round",
        "clients": options.clients,
        "median_seconds_a_round": medians,
        "over_sequential": {engine: median / medians["sequential"] for engine, median in medians.items()},
        "overhead_seconds_a_client": {
            engine: (median - medians["sequential"]) / options.clients for engine, median in medians.items()
        },
        "seconds": seconds,
        "load_average": load,
        **provenance.describe(torch.device("cpu")),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "flower_overhead.json").write_text(json.dumps(result, indent=2) + "\n")
    cells = [
        [engine, f"{median:.3f}", f"{1000 * result['overhead_seconds_a_client'][engine]:.0f}"]
        for engine, median in medians.items()
    ]
    table = markdown_table(cells, ["", "seconds a round (median)", "overhead a client, ms"])
    text = (
        f"# What Flower adds to a round\n`{told}` on {result['hardware']}, {result['date']}, commit "
        f"{result['commit']}.\n"
        f"{result['what']}; {options.clients} clients. The machine had other work (load average {min(load):.0f} to "
        f"{max(load):.0f}), so that these are upper bounds.\n\n{table}\n"
    )
    (options.out / "flower_overhead.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
