"""IJB-style templates: several images of one person are one face. 1:1 over listed pairs, 1:N against two galleries.

A template's feature is the sum, normalised, of the means of its media: a video with a hundred frames weighs as much as
one still. A comparison is accepted when cosine ≥ threshold; the rules for thresholds are those of `metrics.rates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coalface.data.template_lists import Comparisons, MediaList, Subjects, places
from coalface.metrics.cosine import unit_rows
from coalface.metrics.rates import OperatingPoint, auc, fnmr_at_fmr
from coalface.protocols.personal import Identified, identify


@dataclass(frozen=True)
class Templates:
    """One unit feature for each template, in rising order of their numbers."""

    numbers: Tensor  # int64 [t], on the CPU
    features: Tensor  # [t, d]

    def of(self, numbers: Tensor) -> Tensor:
        """Features of these templates, [m, d]."""
        return self.features[places(self.numbers, numbers).to(self.features.device)]


@dataclass(frozen=True)
class Verification:
    """1:1 over a list; ``at_fmr`` follows the order of the FMRs asked for."""

    at_fmr: tuple[OperatingPoint, ...]
    auc: float
    genuine_pairs: int
    impostor_pairs: int


@dataclass(frozen=True)
class Search:
    """1:N, open set, against one gallery."""

    at_fpir: tuple[Identified, ...]
    rank_one: float  # of the probes who are in the gallery: share whose best match is right, at any score
    gallery: int


def pool(features: Tensor, listed: MediaList, quality: Tensor | None = None) -> Templates:
    """Templates of image features [n, d]: normalised, weighed by ``quality`` [n] if given, averaged by medium, summed.

    ``quality`` is for detector scores, where a list has them.
    """
    if len(features) != len(listed.templates):
        raise ValueError(f"{len(features)} features for {len(listed.templates)} listed images")
    unit = unit_rows(features)
    if quality is not None:
        unit = unit * quality.to(unit)[:, None]
    media, medium = torch.stack([listed.templates, listed.media], dim=1).unique(dim=0, return_inverse=True)
    numbers, template = media[:, 0].unique(return_inverse=True)
    medium, template = medium.to(unit.device), template.to(unit.device)
    counts = torch.bincount(medium, minlength=len(media))
    means = unit.new_zeros(len(media), unit.shape[1]).index_add_(0, medium, unit) / counts[:, None]
    sums = unit.new_zeros(len(numbers), unit.shape[1]).index_add_(0, template, means)
    return Templates(numbers, unit_rows(sums))


def verify_templates(
    templates: Templates,
    listed: Comparisons,
    fmrs: Sequence[float],
    subjects: Subjects | None = None,
    block: int = 100_000,
) -> Verification:
    """TAR at each FMR over the listed pairs; ``subjects`` answers where the list does not."""
    same = listed.same
    if same is None:
        if subjects is None:
            raise ValueError(
                "this list does not say which pairs are the same person: give the subjects of its metadata"
            )
        same = subjects.of(listed.left) == subjects.of(listed.right)
    scores = torch.cat(
        [
            (templates.of(left) * templates.of(right)).sum(dim=1)
            for left, right in zip(listed.left.split(block), listed.right.split(block), strict=True)
        ]
    )
    same = same.to(scores.device)
    impostor, genuine = scores[~same], scores[same]
    points = tuple(fnmr_at_fmr(impostor, genuine, fmr) for fmr in fmrs)
    return Verification(points, auc(impostor, genuine), len(genuine), len(impostor))


def search(templates: Templates, gallery: Subjects, probes: Subjects, fpirs: Sequence[float]) -> Search:
    """TPIR at each FPIR: probes whose subject is in the gallery must find it first; the others must find nobody."""
    people, place = gallery.subjects.sort()
    if len(people.unique()) < len(people):
        twice = int(people[:-1][people.diff() == 0][0])
        raise ValueError(f"subject {twice} is in the gallery twice: a gallery has one template of each person")
    where = torch.searchsorted(people, probes.subjects).clamp(max=len(people) - 1)
    mated = people[where] == probes.subjects
    if bool(mated.all()) or not bool(mated.any()):
        raise ValueError(f"{int(mated.sum())} of {len(mated)} probes are in the gallery: an open set needs both kinds")
    enrolled = templates.of(gallery.templates)
    known, strangers = templates.of(probes.templates[mated]), templates.of(probes.templates[~mated])
    whose = place[where[mated]].to(enrolled.device)
    first = torch.cat([(block @ enrolled.T).argmax(dim=1) for block in known.split(1024)])
    rank_one = float((first == whose).double().mean())
    return Search(identify(enrolled, known, whose, strangers, fpirs), rank_one, len(people))


def search_both(
    templates: Templates, galleries: Sequence[Subjects], probes: Subjects, fpirs: Sequence[float]
) -> tuple[tuple[float, ...], tuple[Search, ...]]:
    """TPIR at each FPIR, the mean over the galleries as IJB-B and IJB-C report it; and each gallery's own."""
    found = tuple(search(templates, gallery, probes, fpirs) for gallery in galleries)
    means = tuple(sum(one.at_fpir[i].tpir for one in found) / len(found) for i in range(len(fpirs)))
    return means, found
