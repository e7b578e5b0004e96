"""How well clients' models know those clients' own people: the personal protocol, for every model of a run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from coalface.data.faceset import FaceView
from coalface.data.population import Population
from coalface.method import Method
from coalface.models.head import mapped
from coalface.models.net import Net, Weights
from coalface.private_store import PrivateStore
from coalface.protocols.personal import (
    Identified,
    Verified,
    enrol,
    enrolled_auc,
    identify,
    identify_as_released,
    verify,
)

RATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # of these, the ones that a client's pairs can carry
BATCH = 256

ModelOf = Callable[[int], tuple[Weights, Tensor | None]]  # a client's weights, and the head behind them


def same_for_all(weights: Weights) -> ModelOf:
    """One model for every client."""
    return lambda _: (weights, None)


def models_of(method: Method, server: Any, private: PrivateStore) -> dict[str, ModelOf]:
    """What a federation leaves each client with: the generic model, its own, and its own without what comes behind."""

    def own(client: int) -> tuple[Weights, Tensor | None]:
        kept = private.load(client, 1 << 62)  # of a client that was never called: nothing, and the global model
        return method.embedder(server, kept), method.head(server, kept)

    of_all: dict[str, ModelOf] = {}
    if method.generic:
        of_all["generic"] = lambda _: (method.embedder(server), method.head(server))
    if method.personal:
        of_all["own"] = own
        if any(own(client)[1] is not None for client in private.clients()[:1]):
            of_all["local"] = lambda client: (own(client)[0], None)
    return of_all


class PersonalEvaluation:
    """The clients' enrolment images and everybody's probes, fixed for the run, for every model that it compares."""

    def __init__(self, net: Net, clients: Population, probes: FaceView, most: int) -> None:
        """``most`` clients are measured, evenly spread; 0 measures all."""
        self._net, self._clients, self._probes = net, clients, probes
        count = len(clients) if most == 0 else min(most, len(clients))
        self._chosen = [len(clients) * place // count for place in range(count)]
        self._last: tuple[Weights, Tensor] | None = None  # a model that all clients share sees the probes once

    def report(self, model_of: ModelOf) -> dict[str, Any]:
        """Means and spreads over clients of every rate, with the counts of one client's pairs and the speed."""
        self._last = None
        seconds = 0.0
        verified: list[dict[str, Verified]] = []
        found: list[dict[str, tuple[Identified, ...]]] = []
        enrolled: list[float] = []
        for client in self._chosen:
            gallery, own, labels, others = self._features(client, *model_of(client))
            crossed = len(own) * len(others)
            began = time.perf_counter()
            verified.append(verify(own, labels, others, [rate for rate in RATES if rate * crossed >= 1]))
            seconds += time.perf_counter() - began
            fpirs = [rate for rate in RATES if rate * len(others) >= 1]
            found.append(
                {
                    "standard": identify(gallery, own, labels, others, fpirs),
                    "release": identify_as_released(gallery, own, labels, others, fpirs),
                }
            )
            enrolled.append(enrolled_auc(gallery, own, labels, others))
        pairs = sum(one["release"].genuine_pairs + one["release"].impostor_pairs for one in verified)
        return {
            "clients": len(self._chosen),
            "verification": {reading: _verified([one[reading] for one in verified]) for reading in verified[0]},
            "identification": {reading: _identified([one[reading] for one in found]) for reading in found[0]},
            "enrolled_auc": _over_clients(enrolled),
            "pairs_per_second": pairs / seconds,  # of 1:1, without the network
        }

    def _features(self, client: int, weights: Weights, head: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gallery, the client's probes with their people, and all others' probes."""
        faces, first = self._clients[client], self._clients.first_class(client)
        enrolment = torch.cat([self._embed(weights, head, block) for block in faces.images.split(BATCH)])
        if self._last is None or self._last[0] is not weights:
            blocks = self._probes.blocks(BATCH)
            self._last = weights, torch.cat([self._embed(weights, head, images) for images, _ in blocks])
        probes, labels = self._last[1], self._probes.labels.to(self._last[1].device) - first
        mine = (labels >= 0) & (labels < len(faces.classes))
        return enrol(enrolment, faces.labels, len(faces.classes)), probes[mine], labels[mine], probes[~mine]

    def _embed(self, weights: Weights, head: Tensor | None, images: Tensor) -> Tensor:
        device = next(iter(weights.parameters.values())).device
        with torch.no_grad():
            features = self._net(weights, images.to(device))
            return features if head is None else mapped(features, head)


def _verified(clients: Sequence[Verified]) -> dict[str, Any]:
    # Clients with few people cannot carry every rate: those that all of them carry are averaged.
    rates = set.intersection(*({point.target_fmr for point in one.at_fmr} for one in clients))
    points = [[point for point in one.at_fmr if point.target_fmr in rates] for one in clients]
    return {
        "at_fmr": [
            {
                "target_fmr": several[0].target_fmr,
                "tar": _over_clients([point.tar for point in several]),
                "reliable": all(point.reliable for point in several),
            }
            for several in zip(*points, strict=True)
        ],
        "auc": _over_clients([one.auc for one in clients]),
        "genuine_pairs": min(one.genuine_pairs for one in clients),
        "impostor_pairs": min(one.impostor_pairs for one in clients),
    }


def _identified(clients: Sequence[tuple[Identified, ...]]) -> list[dict[str, Any]]:
    rates = set.intersection(*({point.target_fpir for point in one} for one in clients))
    points = [[point for point in one if point.target_fpir in rates] for one in clients]
    return [
        {
            "target_fpir": several[0].target_fpir,
            "tpir": _over_clients([point.tpir for point in several]),
            "mated": min(point.mated for point in several),
            "strangers": min(point.strangers for point in several),
            "reliable": all(point.reliable for point in several),
        }
        for several in zip(*points, strict=True)
    ]


def _over_clients(values: Sequence[float]) -> dict[str, float]:
    """The mean, every client alike, and the standard deviation between clients."""
    return {"mean": statistics.fmean(values), "spread": statistics.pstdev(values)}
