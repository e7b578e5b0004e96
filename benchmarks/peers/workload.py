"""The same job for every framework: 8 clients × 30 images of 64×64, feduv_cnn and a softmax, 3 steps of 10 images each.

Needs torch, numpy and safetensors; of coalface it takes the network only. FedAvg over every parameter, equal weights.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from coalface import models
from coalface.models.net import scaled

CLIENTS, IMAGES, SIZE, BATCH = 8, 30, 64, 10
RATE, SCALE = 0.01, 16.0
WARM_UP, ROUNDS = 2, int(os.environ.get("PEER_ROUNDS", "10"))


class Classifier(nn.Module):
    """A face network, and the cosine softmax over everybody."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = models.build("feduv_cnn", size=SIZE)
        self.head = nn.Parameter(torch.randn(CLIENTS, 512))

    def forward(self, images: Tensor) -> Tensor:
        features = F.normalize(self.backbone(scaled(images)), dim=1)
        return SCALE * features @ F.normalize(self.head, dim=1).T


def faces(client: int) -> tuple[Tensor, Tensor]:
    """Images uint8 [n, 3, H, W] and labels [n] of one client: noise, which costs as much as a face."""
    generator = torch.Generator().manual_seed(client)
    images = torch.randint(0, 256, (IMAGES, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    return images, torch.full((IMAGES,), client)


def train(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """One local epoch."""
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for rows in torch.randperm(len(labels)).split(BATCH):
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def tell(stamps: list[float]) -> None:
    """Print seconds a round, without the warm-up, from the clock at the start and after each round."""
    seconds = [after - before for before, after in pairwise(stamps)]
    print("\nSECONDS " + json.dumps(seconds[WARM_UP:]))


def now() -> float:
    return time.time()  # the same clock for all processes of a framework
