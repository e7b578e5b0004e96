"""A table or figure of a paper, made again by command: what is trained, on what, and what the paper printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from coalface import config, seeding
from coalface.config import Run
from coalface.data import synthetic
from coalface.data.world import CONDITIONS
from coalface.evaluation import Verification
from coalface.models.net import Net
from coalface.reproduce.bench import Bench, Row, Test
from coalface.reproduce.open_set import OpenSet

ScaleName = Literal["smoke", "cpu", "gpu", "paper"]  # gpu: what ten minutes of one GPU allow
ORDINALS = ("first", "second", "third")
UNSEEN = 1_000_000  # test people have numbers from here on, which no run ever deals out

Column = tuple[str, str]  # (test, or "first", "second", … of the scale's; score): which number of a row
Figures = Callable[[dict[str, Any]], Mapping[str, Any]]  # a result -> name of the file -> figure


@dataclass(frozen=True)
class Scale:
    """How large."""

    run: Run
    tests: tuple[str, ...]  # conditions under which the test people are photographed, the first one first
    test_people: int = 100
    test_images: int = 10
    pairs: int = 6000
    open_set: bool = False  # 1:N too, and 1:1 at lower rates


@dataclass(frozen=True)
class Artefact:
    """``coalface reproduce NAME``."""

    what: str  # the paper, its number there, and what it shows
    columns: Mapping[str, Column]  # our heading -> where the number comes from
    printed_columns: tuple[str, ...]  # the paper's headings, in the order of each row's printed numbers
    scales: Mapping[ScaleName, Scale]
    rows: Callable[[Scale], Sequence[Row]]
    remarks: str = ""  # how ours differs from the paper's, in a sentence or two
    figures: Figures | None = None
    rows_of: str = ""  # another artefact whose rows these are too: they are trained once for both
    between: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # rows that begin with this -> start, central

    def changed(self, scale: ScaleName, settings: Sequence[str]) -> Artefact:
        """This artefact with ``a.b=c`` settings of the scale's run."""
        chosen = self.scales[scale]
        changed = replace(chosen, run=config.override(chosen.run, settings))
        return replace(self, scales={**self.scales, scale: changed})

    def bench(self, scale: ScaleName, seed: int, out: Path, device: torch.device, progress: Any, command: str) -> Bench:
        """The bench of one seed."""
        chosen = self.scales[scale]
        return Bench(
            replace(chosen.run, seed=seed), lambda *about: unseen(chosen, *about), out, device, progress, command
        )

    def column(self, scale: ScaleName, heading: str) -> Column:
        """Where the numbers of one of our columns stand in a row's measurements."""
        test, score = self.columns[heading]
        return dict(zip(ORDINALS, self.scales[scale].tests, strict=False)).get(test, test), score


def unseen(scale: Scale, net: Net, device: torch.device, seed: int) -> dict[str, Test]:
    """The same people, whom nobody trained on, photographed under each of the scale's conditions."""
    tests: dict[str, Test] = {}
    for name in scale.tests:
        faces = synthetic.draw_faceset(
            UNSEEN,
            scale.test_people,
            scale.test_images,
            scale.run.data.size,
            seeding.derive(seed, "faces"),
            CONDITIONS[name],
            str(device),
        )
        kind = OpenSet if scale.open_set else Verification
        tests[name] = kind(net, faces, scale.pairs, seed)
    return tests
