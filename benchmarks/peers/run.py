"""Seconds a round of coalface and of other frameworks on one job (workload.py), as ratios to coalface, in one run.

    python benchmarks/peers/run.py [--only NAME …] [--passes 2] [--rounds 10] [--venvs scratch/peers] [--out results]

Each framework has a virtual environment of its own, made on first use with the versions below, and a script of its own.
They take turns, ``--passes`` times, on an otherwise idle machine. Only warm rounds count: start-up is not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from coalface import provenance
from coalface.report.tables import markdown_table

HERE = Path(__file__).resolve().parent
BASE = ("torch==2.13.0", "numpy", "safetensors")  # the CPU build, as in the Makefile


@dataclass(frozen=True)
class Peer:
    """Who runs, in which environment, by which script."""

    name: str
    venv: str
    script: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


PEERS = {
    "coalface": Peer("coalface", "bare", "ours.py", ("stacked",)),  # what `auto` takes
    "sequential": Peer("coalface, sequential", "bare", "ours.py", ("sequential",)),
    "bare": Peer("bare PyTorch loop", "bare", "bare.py"),
    "flower": Peer("Flower 1.41.0, simulation", "flower", "flower.py", needs=("flwr[simulation]==1.41.0",)),
    "pfl": Peer("pfl 0.6.0", "pfl", "pfl_research.py", needs=("pfl[pytorch]==0.6.0",)),
    "nvflare": Peer("NVFlare 2.9.0, simulator", "nvflare", "nvflare_simulator.py", needs=("nvflare==2.9.0",)),
}


def environment(peer: Peer, folder: Path) -> Path:
    """The Python of this framework's environment, which is made if it is not there."""
    home = folder / peer.venv
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print(f"making {home}", flush=True)
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *BASE, *peer.needs], check=True)
        (home / "ready").touch()
    return python


def seconds(peer: Peer, python: Path, rounds: int) -> list[float]:
    """Seconds of each warm round."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": folder}
        settings = {"PEER_ROUNDS": str(rounds), "PYTHONPATH": str(HERE), **quiet}
        done = subprocess.run(
            [python, HERE / peer.script, *peer.arguments],
            env={**os.environ, **settings},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    told = [line for line in done.stdout.splitlines() if line.startswith("SECONDS ")]
    if not told:
        raise SystemExit(
            f"{peer.name} ended with {done.returncode} and told no times:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    found: list[float] = json.loads(told[-1].removeprefix("SECONDS "))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(PEERS), default=list(PEERS))
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--venvs", type=Path, default=Path("scratch/peers"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    names = list(dict.fromkeys(["coalface", *options.only]))
    pythons = {name: environment(PEERS[name], options.venvs.resolve()) for name in names}
    rounds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.passes):
        for name in names:
            began = time.perf_counter()
            rounds[name] += seconds(PEERS[name], pythons[name], options.rounds)
            took = time.perf_counter() - began
            print(f"{PEERS[name].name:<28} {statistics.median(rounds[name]):8.3f} s a round ({took:.0f} s)", flush=True)
    medians = {name: statistics.median(several) for name, several in rounds.items()}
    rows = [
        {
            "who": PEERS[name].name,
            "median_seconds_a_round": round(medians[name], 4),
            "over_coalface": round(medians[name] / medians["coalface"], 3),
            "seconds": [round(value, 4) for value in rounds[name]],
        }
        for name in names
    ]
    told = (
        f"python benchmarks/peers/run.py --only {' '.join(names)} --passes {options.passes} --rounds {options.rounds}"
    )
    result = {
        "command": told,
        "what": (HERE / "workload.py").read_text().partition('"""')[2].partition("\n")[0],
        "rows": rows,
        **provenance.describe(torch.device("cpu")),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers_cpu.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    cells = [[str(row["who"]), f"{row['median_seconds_a_round']:.3f}", f"{row['over_coalface']:.2f}"] for row in rows]
    table = markdown_table(cells, ["", "seconds a round (median)", "over coalface"])
    (options.out / "peers_cpu.md").write_text(f"{result['what']}\n`{told}`\n\n{table}\n")
    print(table)


if __name__ == "__main__":
    main()
