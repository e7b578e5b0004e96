"""``coalface reproduce``: a paper's table or figure, ours beside theirs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coalface.config import ConfigError
from coalface.report.progress import Progress
from coalface.reproduce import ARTEFACTS, writing
from coalface.reproduce.real_lfw import RealArtefact

TEACH = (
    "Trains every row for every seed and writes result.json, table.md and the figures. A row that is finished is not "
    "trained again. smoke: seconds; cpu: minutes on two cores; paper: the paper's clients and rounds, on a GPU."
)


def reproduce(options: argparse.Namespace, command: str, device: torch.device) -> None:
    """Make a paper's table or figure again."""
    artefact = ARTEFACTS[options.artefact]
    if isinstance(artefact, RealArtefact):
        if options.data is None:
            raise ConfigError(f"{options.artefact} needs photographs: add --data FOLDER with the packs")
        artefact = replace(artefact, photographs=options.data, cache=options.cache)
    if options.scale not in artefact.scales:
        raise ConfigError(f"{options.artefact} has scales {', '.join(artefact.scales)}, not {options.scale}")
    out = options.out / f"{options.artefact}-{options.scale}"
    rows_out = options.out / f"{artefact.rows_of or options.artefact}-{options.scale}"
    rows = artefact.rows(artefact.scales[options.scale])
    if options.rows:
        rows = [row for row in rows if any(wanted.lower() in row.label.lower() for wanted in options.rows)]
        if not rows:
            raise ConfigError(f"no row of {options.artefact} is like {', '.join(options.rows)}")
    measured: dict[int, Any] = {}
    with Progress(quiet=options.quiet) as progress:
        for seed in options.seeds:
            progress.say(f"{options.artefact}, {options.scale}, seed {seed}")
            bench = artefact.bench(options.scale, seed, rows_out / f"seed{seed}", device, progress, command)
            measured[seed] = bench.measure(rows)
    print(writing.write(artefact, writing.as_result(artefact, options.scale, rows, measured, command, device), out))
    print(f"written: {out}")


def arguments(sub: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    listed = "; ".join(f"{name}: {artefact.what}" for name, artefact in ARTEFACTS.items())
    sub.add_argument("artefact", choices=ARTEFACTS, metavar="NAME", help=listed)
    sub.add_argument("--scale", choices=("smoke", "cpu", "paper"), default="cpu", help="default: cpu")
    sub.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="SEED", help="default: 0 1 2")
    sub.add_argument("--rows", nargs="+", metavar="TEXT", help="only rows whose label contains one of these")
    sub.add_argument("--data", type=Path, metavar="DIR", help="of real-lfw: the folder of the packs of photographs")
    sub.add_argument(
        "--cache", type=Path, default=Path("out/photographs"), metavar="DIR", help="where packs are unpacked"
    )
    sub.add_argument("--out", type=Path, default=Path("out/reproduce"), metavar="DIR", help="default: out/reproduce")
