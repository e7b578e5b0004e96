"""The main job at laptop size: minutes on two cores."""

from __future__ import annotations

from coalface.algorithms.fedfv import FedFV
from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training


def demo() -> Run:
    """Pre-train on a few public people, then learn from 200 phones with one person each."""
    return Run(
        method=FedFV(momentum=0.8),
        model="feduv_cnn_small",
        embedding=128,
        data=Data(
            size=32,
            difficulty="easy",
            public=40,
            public_images=20,
            clients=200,
            images_each=10,
            test=100,
            test_images=10,
        ),
        pretrain=Central(rounds=24, training=Training(rate=0.02, rate_drops=((20, 0.2),), batch=32, momentum=0.9)),
        # One step a round, so that the stacked engine serves a cohort in one pass; momentum and the lower rate at the
        # end settle the noise of small cohorts.
        rounds=Rounds(rounds=500, cohort=16, evaluate_every=50, checkpoint_every=50),
        training=Training(rate=0.05, rate_drops=((400, 0.2),)),
        central=Central(rounds=16, training=Training(rate=0.01, rate_drops=((13, 0.2),), batch=32, momentum=0.9)),
    )
