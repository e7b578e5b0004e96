"""The ε that an attacker can show with canary clients, beside the ε that the account states.

    python benchmarks/dp_canaries.py [--trials 1500] [--out results]

Each trial is a small federation, everybody in every round, run by the code that protects real rounds. The attacker
knows everything but which of two updates the canary sends, and sees every released sum.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coalface import provenance
from coalface.privacy.account import Account
from coalface.privacy.audits.canaries import epsilon_shown, releases
from coalface.privacy.settings import DP
from coalface.report.tables import markdown_table

CELLS = [(2.0, 1), (4.0, 1), (8.0, 1), (8.0, 10)]  # noise, rounds
CLIENTS, DELTA = 3, 1e-5


def cell(noise: float, rounds: int, trials: int) -> dict[str, Any]:
    settings = DP(noise=noise, delta=DELTA)
    pair = [releases(settings, CLIENTS, rounds, trials, sign, seed) for sign, seed in ((1.0, 0), (-1.0, 10**8))]
    account = Account(noise, DELTA, CLIENTS, CLIENTS, sample_is_secret=False)
    for _ in range(rounds):
        account.charge(range(CLIENTS))
    return {"noise": noise, "rounds": rounds, "stated": account.readers(), "shown": epsilon_shown(*pair, DELTA)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    cells = [cell(noise, rounds, options.trials) for noise, rounds in CELLS]
    result = {
        "command": f"python benchmarks/dp_canaries.py --trials {options.trials}",
        "what": f"δ = {DELTA:g}; shown at 95 % confidence with {options.trials} trials in each of two federations",
        "cells": cells,
        **provenance.describe(torch.device("cpu")),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "dp_canaries.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    rows = [[f"{c['noise']:g}", str(c["rounds"]), f"{c['stated']:.2f}", f"{c['shown']:.2f}"] for c in cells]
    table = markdown_table(rows, ["noise, in clips", "rounds", "ε stated", "ε shown, at least"])
    made = f"on {result['hardware']}, {result['date']}, commit {result['commit']}"
    text = f"# Canaries against the account\n\n{result['what']}.\n\n{table}\n\n`{result['command']}` {made}.\n"
    (options.out / "dp_canaries.md").write_text(text)
    print(table)


if __name__ == "__main__":
    main()
