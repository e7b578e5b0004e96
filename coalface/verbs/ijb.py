"""``coalface ijb``: templates of several images each, compared one to one and searched for, by IJB's list files."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coalface.config import ConfigError
from coalface.data.faces import read_images
from coalface.data.template_lists import (
    MediaList,
    Subjects,
    read_comparisons,
    read_media,
    read_metadata_images,
    read_subjects,
)
from coalface.evaluation import embed
from coalface.models.net import Net, Weights
from coalface.protocols.templates import Templates, pool, search_both, verify_templates
from coalface.report.progress import Progress

TEACH = "--compare makes 1:1; --gallery and --probes make 1:N; the files are those of IJB-A, IJB-B and IJB-C."
BLOCK = 1024  # images read at a time: IJB-C has 469,375


def ijb(options: argparse.Namespace, net: Net, weights: Weights, head: Tensor | None) -> None:
    """Read the lists, pool the images into templates, and print what was asked for."""
    if options.compare is None and options.gallery is None:
        raise ConfigError("nothing to compare: add --compare FILE for 1:1, or --gallery and --probes for 1:N")
    if (options.gallery is None) != (options.probes is None):
        raise ConfigError("1:N needs both --gallery and --probes")
    listed = read_metadata_images(options.media) if options.media.suffix == ".csv" else read_media(options.media)
    # Every list is read before the images, which may take hours.
    people = read_subjects(options.subjects) if options.subjects else None
    compared = read_comparisons(options.compare) if options.compare else None
    galleries: list[Subjects] = [read_subjects(file) for file in options.gallery or ()]
    probes = read_subjects(options.probes) if options.probes else None
    with Progress(quiet=options.quiet) as progress:
        templates = pooled(net, weights, head, listed, options.images, progress)
    found: dict[str, Any] = {"images": len(listed.images), "templates": len(templates.numbers)}
    if compared is not None:
        one = verify_templates(templates, compared, options.fmr, people)
        points = [{**asdict(point), "tar": point.tar} for point in one.at_fmr]
        found["verification"] = {**asdict(one), "at_fmr": points}
    if probes is not None:
        means, each = search_both(templates, galleries, probes, options.fpir)
        found["identification"] = {"tpir": list(means), "galleries": [asdict(one) for one in each]}
    print(json.dumps(found, indent=2) if options.json else "\n".join(_lines(found, options.fpir)))


def pooled(
    net: Net, weights: Weights, head: Tensor | None, listed: MediaList, images: Path, progress: Progress
) -> Templates:
    """The templates of a list, its images read in blocks."""
    assert net.size is not None  # every recognition model has one
    paths = [images / name for name in listed.images]
    features = []
    with progress.stage("embedding", total=len(paths)) as stage:
        for first in range(0, len(paths), BLOCK):
            block = read_images(paths[first : first + BLOCK], net.size[0])
            features.append(embed(net, weights, block, head=head).cpu())
            stage.advance(len(block))
    return pool(torch.cat(features), listed)


def _lines(found: dict[str, Any], fpirs: list[float]) -> list[str]:
    lines = [f"{found['templates']:,} templates of {found['images']:,} images"]
    if "verification" in found:
        one = found["verification"]
        for point in one["at_fmr"]:
            few = "" if point["reliable"] else "  (fewer than ten false matches: mostly noise)"
            lines.append(f"1:1  TAR@FMR {point['target_fmr']:g} = {point['tar']:.4f}{few}")
        pairs = f"{one['genuine_pairs']:,} genuine, {one['impostor_pairs']:,} impostor pairs"
        lines.append(f"     AUC = {one['auc']:.4f}; {pairs}")
    if "identification" in found:
        many = found["identification"]
        for place, (fpir, tpir) in enumerate(zip(fpirs, many["tpir"], strict=True)):
            each = ", ".join(f"{one['at_fpir'][place]['tpir']:.4f}" for one in many["galleries"])
            lines.append(f"1:N  TPIR@FPIR {fpir:g} = {tpir:.4f}  (by gallery: {each})")
        lines.append("     rank one: " + ", ".join(f"{one['rank_one']:.4f}" for one in many["galleries"]))
    return lines


def arguments(sub: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    sub.add_argument("model_or_run", type=Path, help="a run's folder, or a weights file with --model")
    sub.add_argument("--images", type=Path, required=True, metavar="DIR", help="aligned crops, named as in the list")
    sub.add_argument("--media", type=Path, required=True, metavar="FILE", help="ijbc_face_tid_mid.txt, or IJB-A's CSV")
    sub.add_argument(
        "--compare", type=Path, metavar="FILE", help="1:1: ijbc_template_pair_label.txt, or a CSV of pairs"
    )
    sub.add_argument("--subjects", type=Path, metavar="FILE", help="whose templates are, for lists without the answer")
    sub.add_argument("--gallery", type=Path, nargs="+", metavar="FILE", help="1:N: ijbc_1N_gallery_G1.csv and G2")
    sub.add_argument("--probes", type=Path, metavar="FILE", help="1:N: ijbc_1N_probe_mixed.csv")
    sub.add_argument("--fmr", type=float, nargs="+", default=[1e-5, 1e-4], help="default: 1e-5 1e-4")
    sub.add_argument("--fpir", type=float, nargs="+", default=[1e-2, 1e-1], help="default: 1e-2 1e-1")
    sub.add_argument("--model", metavar="NAME", help="the network that a weights file is for")
    sub.add_argument("--size", type=int, default=112, help="its image size (default: 112); a run knows its own")
    sub.add_argument("--json", action="store_true", help="for machines")
