"""How good a model is on people whom nobody trained on: LFW-style accuracy, and TAR at a fixed FMR over all pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from coalface import seeding
from coalface.data.faceset import FaceSet
from coalface.data.pairs import PairList
from coalface.metrics.collapse import effective_rank
from coalface.metrics.rates import RELIABLE_ERRORS, fnmr_at_fmr
from coalface.models.head import mapped
from coalface.models.net import Net, Weights
from coalface.protocols.verification import all_pairs, lfw_folds, pair_scores, synthetic_pairs

FMRS = (1e-3, 1e-2)


def embed(
    net: Net,
    weights: Weights,
    images: Tensor,
    batch: int = 256,
    head: Tensor | None = None,
    progress: Callable[[int], object] | None = None,
) -> Tensor:
    """Embeddings [n, d] of uint8 images, by the running statistics, without gradients; through ``head`` if given.

    ``progress`` is told how many more images are done.
    """
    device = next(iter(weights.parameters.values())).device
    blocks = []
    with torch.no_grad():
        for chunk in images.split(batch):
            blocks.append(net(weights, chunk.to(device)))
            if progress is not None:
                progress(len(chunk))
        embeddings = torch.cat(blocks)
        return embeddings if head is None else mapped(embeddings, head)


class Verification:
    """One test set and its pairs, fixed for the run, for every model that the run compares."""

    def __init__(self, net: Net, test: FaceSet, pairs: int, seed: int, fmrs: Sequence[float] = FMRS) -> None:
        self._net, self._fmrs = net, fmrs
        self._images = test.images
        self._identities = torch.repeat_interleave(torch.arange(len(test)), test.counts())
        generator = seeding.generator(seed, "pairs")
        self._pairs, self._same, self._folds = synthetic_pairs(self._identities, pairs, 10, generator)

    def scores(self, models: Iterable[Weights], head: Tensor | None = None) -> dict[str, float]:
        """The curve's numbers, quick to make: the mean over the models."""
        rows = [self._quick(weights, head) for weights in models]
        return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}

    def report(self, weights: Weights, head: Tensor | None = None) -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
        """Everything with counts and intervals, and the (impostor, genuine) scores behind it."""
        embeddings = embed(self._net, weights, self._images, head=head).cpu()
        pairs = all_pairs(embeddings, self._identities, self._fmrs, keep_scores=True)
        folds = lfw_folds(pair_scores(embeddings, self._pairs), self._same, self._folds)
        assert pairs.impostor_scores is not None and pairs.genuine_scores is not None  # keep_scores was asked for
        metrics = {"accuracy": folds.as_dict(), **pairs.as_dict(), "effective_rank": effective_rank(embeddings)}
        return metrics, (pairs.impostor_scores, pairs.genuine_scores)

    def _quick(self, weights: Weights, head: Tensor | None) -> dict[str, float]:
        embeddings = embed(self._net, weights, self._images, head=head)
        pairs = all_pairs(embeddings, self._identities.to(embeddings.device), self._fmrs, replicates=0)
        folds = lfw_folds(pair_scores(embeddings, self._pairs), self._same, self._folds)
        tars = {f"tar@{point.target_fmr:g}": point.tar for point in pairs.at_fmr}
        return {"accuracy": folds.accuracy, **tars, "effective_rank": effective_rank(embeddings)}


class ListedPairs:
    """The pairs of a published list."""

    def __init__(self, net: Net, images: Tensor, listed: PairList) -> None:
        self._net, self._images, self._listed = net, images, listed

    def report(self, weights: Weights, head: Tensor | None = None) -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
        """As ``Verification.report``; FMRs that the list's pairs do not support are left out."""
        embeddings = embed(self._net, weights, self._images, head=head).cpu()
        scores, same = pair_scores(embeddings, self._listed.pairs), self._listed.same
        impostor, genuine = scores[~same], scores[same]
        supported = [fmr for fmr in FMRS if fmr * len(impostor) >= RELIABLE_ERRORS]
        points = [{"target_fmr": fmr, "tar": fnmr_at_fmr(impostor, genuine, fmr).tar} for fmr in supported]
        folds = lfw_folds(scores, same, self._listed.fold)
        metrics = {"accuracy": folds.as_dict(), "at_fmr": points, "effective_rank": effective_rank(embeddings)}
        return metrics, (impostor, genuine)
