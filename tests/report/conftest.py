"""A made-up run: 4 rounds, one of them void once, 5 clients a round."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coalface.report.page import PageContent


def measured(accuracy: float, tar: float) -> dict[str, Any]:
    return {
        "accuracy": {"mean": accuracy, "spread": 0.02, "pairs": 6000, "low": accuracy - 0.01, "high": accuracy + 0.01},
        "tar": [
            {"fmr": fmr, "tar": rate, "low": rate - 0.03, "high": rate + 0.02, "genuine": 3000, "impostor": 1_900_000}
            | {"reliable": fmr > 1e-6, "threshold": 0.4}
            for fmr, rate in ((0.01, tar + 0.2), (0.001, tar), (1e-6, tar / 4))
        ],
        "eer": {"value": 1 - accuracy, "low": float("nan"), "high": 0.2},
        "auc": {"value": accuracy + 0.02, "low": accuracy, "high": accuracy + 0.03},
    }


@pytest.fixture
def result() -> dict[str, Any]:
    """Start 0.41, method 0.63, central 0.66: (0.63 − 0.41) / (0.66 − 0.41) = 88 %."""
    return {
        "title": "Synthetic faces, one identity per client",
        "method": "fedavg/shared-head",
        "model": "feduv_cnn",
        "seed": 1234567,
        "rounds": 4,
        "clients": 50,
        "cohort": 5,
        "command": "coalface run fedavg/shared-head --seed 1234567",
        "metrics": {"start": measured(0.80, 0.41), "method": measured(0.87, 0.63), "central": measured(0.88, 0.66)},
        "gain_recovered": {"accuracy": 0.875, "tar@0.001": 0.88, "tar@0.01": None, "eer": float("nan")},
        "bytes": {"up": 12_345_678, "down": 2_000_000_000, "up_per_client": 617_284, "down_per_client": 950},
        "seconds": {"pretrain": 65.2, "federated": 8.25, "central": 3.0, "evaluation": None},
        "engine": "stacked",
        "engine_form": "one step for many clients",
        "images_per_second": 1834.4,
        "central_images_per_second": 2038.2,
        "share_of_central_speed": 0.9,
        "outside_training": 0.07,
        "peak_memory": {"host": 512_000_000},
        "device": "cpu",
        "hardware": "2 cores",
        "date": "2026-01-05",
        "commit": "0f3a9c1",
        "versions": {"torch": "2.13.0", "coalface": "0.1.0"},
        "checkpoint_sha256": "9f" * 32,
        "private_sha256": None,
        "partition_sha256": "71" * 32,
        "disclosure": {
            "up": [
                {"field": "backbone", "seen": "summed", "what": "change of the backbone", "type": "Weights"},
                {"field": "class_embedding", "seen": "REVEALED", "what": "a face template", "type": "Tensor"},
                {"field": "images", "seen": "count", "what": "how many images", "type": "int"},
            ],
            "down": [{"field": "head", "what": "all class embeddings", "type": "Tensor"}],
            "once": [{"field": "mean_feature", "seen": "REVEALED", "what": "where it starts", "type": "Tensor"}],
        },
    }


@pytest.fixture
def rounds() -> list[dict[str, Any]]:
    rows = []
    for number, attempt, void in ((1, 0, False), (2, 0, True), (2, 1, False), (3, 0, False), (4, 0, False)):
        scores = {"tar@0.001": 0.41 + 0.055 * number, "accuracy": 0.8 + 0.0175 * number, "mean_cosine": 0.1 / number}
        rows.append(
            {"round": number, "attempt": attempt, "void": void, "counted": 1 if void else 3, "seconds": 2.0}
            | {"losses": {} if void else {"loss": 2.0 / number, "bad": float("nan")}, "scores": {} if void else scores}
        )
    return rows


@pytest.fixture
def ledger(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each attempt: client 0 counted, 1 late, 2 dropped out, 3 refused for its size, 4 refused by name."""
    outcomes = ["counted", "late", "dropped out", "refused: # bytes, expected 5000", "refused: head is not finite"]
    return [
        {"round": row["round"], "attempt": row["attempt"], "client": client}
        | {"outcome": outcome.replace("#", str(100 + place)), "bytes_up": 5000, "bytes_down": 950}
        for place, row in enumerate(rounds)
        for client, outcome in enumerate(outcomes)
    ]


@pytest.fixture
def scores() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: (torch.randn(3000, generator=generator) * 0.1, torch.randn(600, generator=generator) * 0.1 + centre)
        for name, centre in (("start", 0.2), ("fedavg/shared-head", 0.35), ("central", 0.4))
    }


@pytest.fixture
def faces() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (2, 3, 3, 16, 16), dtype=torch.uint8, generator=generator)


@pytest.fixture
def content(
    result: dict[str, Any],
    rounds: list[dict[str, Any]],
    ledger: list[dict[str, Any]],
    scores: dict[str, tuple[torch.Tensor, torch.Tensor]],
    faces: torch.Tensor,
) -> PageContent:
    return PageContent(result, rounds, ledger, scores, faces)
