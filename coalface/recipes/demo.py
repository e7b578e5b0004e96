"""The main job at laptop size: minutes on two cores."""

from __future__ import annotations

from coalface.algorithms.fedavg import SharedHead
from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training


def demo() -> Run:
    """Pre-train on public people, then learn from 100 phones with one person each."""
    return Run(
        method=SharedHead(scale=16.0),
        data=Data(size=64, difficulty="hard", public=100, public_images=20, clients=100, images_each=20, test=100),
        pretrain=Central(rounds=6, training=Training(rate=0.02, batch=64, momentum=0.9)),
        rounds=Rounds(rounds=30, cohort=20, evaluate_every=5),
        training=Training(rate=0.05, batch=10, epochs=1),
        central=Central(rounds=6, training=Training(rate=0.02, batch=64, momentum=0.9)),
    )
