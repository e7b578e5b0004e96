"""``coalface reproduce``: a paper's table or figure, ours beside theirs."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from coalface.config import ConfigError
from coalface.report.progress import Progress
from coalface.reproduce import ARTEFACTS, detector_tables, writing
from coalface.reproduce.artefact import ScaleName
from coalface.reproduce.bench import Row
from coalface.reproduce.detectors import DetectorArtefact
from coalface.reproduce.joining import Earlier
from coalface.reproduce.real_lfw import RealArtefact
from coalface.reproduce.real_stills import StillsArtefact

TEACH = (
    "Trains every row for every seed and writes result.json, table.md and the figures. A row that is finished is not "
    "trained again. smoke: seconds; cpu: minutes on two cores; gpu: minutes on a GPU, where there is such a scale; "
    "paper: the paper's clients and rounds, on a GPU."
)


def reproduce(options: argparse.Namespace, command: str, device: torch.device) -> None:
    """Make a paper's table or figure again."""
    artefact = ARTEFACTS[options.artefact]
    if isinstance(artefact, RealArtefact | StillsArtefact):
        if options.data is None:
            raise ConfigError(f"{options.artefact} needs photographs: add --data FOLDER with the packs")
        artefact = artefact.on(options.data, options.cache)
    if options.scale not in artefact.scales:
        raise ConfigError(f"{options.artefact} has scales {', '.join(artefact.scales)}, not {options.scale}")
    if options.set:
        artefact = artefact.changed(options.scale, options.set)
    name = options.artefact
    if options.data and isinstance(artefact, DetectorArtefact) and not isinstance(artefact, StillsArtefact):
        artefact, name = artefact.on_sets(options.data, options.scale), f"{name}-sets"
    out = options.out / f"{name}-{options.scale}"
    rows_out = options.out / f"{artefact.rows_of or name}-{options.scale}"
    rows: Any = artefact.rows(artefact.scales[options.scale])  # type: ignore[arg-type]  # a scale of its own kind
    if options.rows:
        rows = _chosen(rows, options.rows)
        if not rows:
            raise ConfigError(f"no row of {options.artefact} is like {', '.join(options.rows)}")
    earlier: Earlier | None = None
    if options.beside:
        earlier = Earlier.read(options.beside, artefact, options.scale, rows, options.seeds)  # type: ignore[arg-type]
    measured: dict[int, Any] = {}
    write: Any = detector_tables if isinstance(artefact, DetectorArtefact) else writing
    with Progress(quiet=options.quiet) as progress:
        for seed in options.seeds:
            progress.say(f"{options.artefact}, {options.scale}, seed {seed}")
            bench = artefact.bench(options.scale, seed, rows_out / f"seed{seed}", device, progress, command)
            measured[seed] = bench.measure(rows)
    result = write.as_result(artefact, options.scale, rows, measured, command)
    result = earlier.joined(result) if earlier else result
    print(write.write(artefact, result, out))
    print(f"written: {out}")


def _chosen(rows: Sequence[Row], wanted: Sequence[str]) -> list[Row]:
    """Rows of exactly these labels; a text that is no label takes every row that contains it."""
    labels = {row.label.lower() for row in rows}
    texts = [text.lower() for text in wanted]
    return [row for row in rows if any(_fits(row.label.lower(), text, labels) for text in texts)]


def _fits(label: str, text: str, labels: set[str]) -> bool:
    return label == text if text in labels else text in label


def _listed() -> list[str]:
    """A line for each artefact: its name, what it is, and how large it can be made."""
    width = max(map(len, ARTEFACTS))
    return [f"  {name:{width}}  {artefact.what} ({', '.join(artefact.scales)})" for name, artefact in ARTEFACTS.items()]


def arguments(sub: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    sub.formatter_class = argparse.RawDescriptionHelpFormatter
    sub.description = textwrap.fill(str(sub.description), 100)
    sub.epilog = "\n".join(["tables and figures", *_listed()])
    sub.add_argument("artefact", choices=ARTEFACTS, metavar="NAME", help="which: see below")
    sub.add_argument("--scale", choices=get_args(ScaleName), default="cpu", help="default: cpu")
    sub.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="SEED", help="default: 0 1 2")
    sub.add_argument("--rows", nargs="+", metavar="TEXT", help="only rows of these labels, or that contain these words")
    sub.add_argument(
        "--beside",
        type=Path,
        metavar="FILE",
        help="a result.json of the same rows and settings with other seeds, from another machine say: one table of all",
    )
    sub.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change a setting of the scale's run")
    sub.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="of real-…: the folder of the packs of photographs; of fedgpad-…: published sets instead of synthetic "
        "domains, in sub-folders O, C, I, M, S",
    )
    sub.add_argument(
        "--cache", type=Path, default=Path("out/photographs"), metavar="DIR", help="where packs are unpacked"
    )
    sub.add_argument("--out", type=Path, default=Path("out/reproduce"), metavar="DIR", help="default: out/reproduce")
