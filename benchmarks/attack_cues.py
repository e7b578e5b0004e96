"""What tells live frames from attacks before anything is learnt? One number of a frame at a time, domain by domain.

    python benchmarks/attack_cues.py --data PHOTOS

writes attack_cues.json, attack_cues.md and attack_cues.png: for each domain and number the AUC, in percent, with which
the number alone is larger in live frames. 50 says nothing, 0 tells as well as 100: but where two domains lie on
different sides of 50, what a detector learns in one misleads it in the other.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from coalface import provenance
from coalface.data.attacks import DOMAINS, draw_domain
from coalface.data.recordings import Recordings
from coalface.metrics.rates import auc
from coalface.models.colour import hsv
from coalface.report.drawing import Figure, canvas
from coalface.reproduce.real_stills import Stills

SIZE, SUBJECTS, VIDEOS, FRAMES, SEED = 64, 40, 2, 2, 0


def cues(images: Tensor) -> dict[str, Tensor]:
    """Name -> one number for each uint8 image."""
    rgb = images.float() / 255
    grey = rgb.mean(dim=1)
    spread = grey.flatten(1).std(dim=1)
    edges = 4 * grey[:, 1:-1, 1:-1] - grey[:, :-2, 1:-1] - grey[:, 2:, 1:-1] - grey[:, 1:-1, :-2] - grey[:, 1:-1, 2:]
    power = torch.fft.fft2(grey - grey.mean(dim=(1, 2), keepdim=True)).abs().square()
    steps = torch.fft.fftfreq(images.shape[-1])
    radius = (steps[:, None].square() + steps.square()).sqrt()
    total = power[:, radius < 0.5].sum(dim=1)
    saturation = hsv(rgb)[:, 1]
    return {
        "brightness": grey.mean(dim=(1, 2)),
        "contrast": spread,
        "nearly white": (grey > 0.9).float().mean(dim=(1, 2)),
        "nearly black": (grey < 0.1).float().mean(dim=(1, 2)),
        "sharpness": edges.abs().mean(dim=(1, 2)) / spread,
        "fine detail": power[:, (radius >= 0.25) & (radius < 0.5)].sum(dim=1) / total,
        "middling detail": power[:, (radius >= 0.1) & (radius < 0.25)].sum(dim=1) / total,
        "saturation": saturation.mean(dim=(1, 2)),
        "red over green": (rgb[:, 0] - rgb[:, 1]).mean(dim=(1, 2)),
        "green over blue": (rgb[:, 1] - rgb[:, 2]).mean(dim=(1, 2)),
    }


def told(recordings: Recordings) -> dict[str, float]:
    """Name -> AUC of live over attacks."""
    live = recordings.live
    return {name: 100 * auc(value[~live], value[live]) for name, value in cues(recordings.images).items()}


def drawn(found: dict[str, dict[str, float]]) -> Figure:
    """A square for each number and domain: one colour where it is larger in live frames, another where in attacks."""
    names = list(next(iter(found.values())))
    values = [[told[cue] for told in found.values()] for cue in names]
    with canvas(7.2, 4.0) as (figure, [axes]):
        axes.imshow(values, cmap="PuOr", vmin=0, vmax=100, aspect="auto")
        axes.set_xticks(range(len(found)), [name.replace(", ", "\n") for name in found], fontsize=7.5)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.grid(visible=False)
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                shade = "white" if abs(value - 50) > 30 else "black"
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8, color=shade)
        axes.set_title("larger in live frames: violet; larger in attacks: orange (AUC, %)", loc="left", fontsize=9)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="packs of real stills; without them, synthetic only")
    parser.add_argument("--cache", type=Path, default=Path("out/photographs"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    if options.data:
        stills = Stills(options.data, options.cache)
        for name, title in (("N", "NUAA"), ("L", "LCC-like")):
            for split in ("train", "test"):
                found[f"{title}, {split}"] = told(stills(name, split, SUBJECTS, VIDEOS, FRAMES, SIZE, SEED, "cpu"))
    for name in DOMAINS:
        found[f"{name}, synthetic"] = told(draw_domain(name, "train", SUBJECTS, VIDEOS, FRAMES, SIZE, SEED, "cpu"))
    names = list(next(iter(found.values())))
    lines = [
        "# What tells live frames from attacks, one number at a time",
        "",
        f"AUC in percent with which a number is larger in live frames than in attacks, {SIZE} × {SIZE} pixels. "
        "50 says nothing; domains on different sides of 50 mislead each other.",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "---|" * len(found),
        *("| " + " | ".join([cue, *(f"{told[cue]:.0f}" for told in found.values())]) + " |" for cue in names),
        "",
        "`python benchmarks/attack_cues.py --data PHOTOS`",
        "",
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    made = {"made": provenance.describe(torch.device("cpu")), "auc": found}
    (options.out / "attack_cues.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    (options.out / "attack_cues.md").write_text("\n".join(lines), encoding="utf-8")
    drawn(found).savefig(options.out / "attack_cues.png", dpi=160)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
