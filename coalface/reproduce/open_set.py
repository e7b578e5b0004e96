"""Unseen people as IJB-C tests them: 1:1 over all pairs, and 1:N against two galleries that half of the probes miss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coalface.data.faceset import FaceSet
from coalface.evaluation import Verification, embed
from coalface.models.net import Net, Weights
from coalface.protocols.personal import enrol, identify

FMRS, FPIRS = (1e-4, 1e-3, 1e-2), (1e-2, 1e-1)


class OpenSet:
    """The first half of each person's images enrols, the other half is searched for; every other person is enrolled."""

    def __init__(self, net: Net, test: FaceSet, pairs: int, seed: int) -> None:
        self._net, self._test = net, test
        self._verification = Verification(net, test, pairs, seed, FMRS)

    def report(self, weights: Weights, head: Tensor | None = None) -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
        """As ``Verification.report``, with TPIR at each FPIR, the mean over the two galleries."""
        metrics, scores = self._verification.report(weights, head)
        features = embed(self._net, weights, self._test.images, head=head).cpu()
        people = torch.repeat_interleave(torch.arange(len(self._test)), self._test.counts())
        place = torch.arange(len(people)) - self._test.offsets[people]
        enrolled = place < self._test.counts()[people] // 2
        found = []
        for half in (0, 1):
            known = people % 2 == half
            gallery = enrol(
                features[known & enrolled], people[known & enrolled] // 2, int((people[known] // 2).max()) + 1
            )
            mated, strangers = known & ~enrolled, ~known & ~enrolled
            found.append(identify(gallery, features[mated], people[mated] // 2, features[strangers], FPIRS))
        points = [
            {"target_fpir": one.target_fpir, "tpir": (one.tpir + other.tpir) / 2}
            for one, other in zip(*found, strict=True)
        ]
        return {**metrics, "at_fpir": points}, scores
