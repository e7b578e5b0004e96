"""The run on which a method is audited: small enough for a laptop, large enough for a secure sum over 16 clients."""

from __future__ import annotations

from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.numerics import Numerics


def audit(method: Method, seed: int = 0, rounds: int = 20) -> Run:
    """One person per client; in a round a client takes seven of its ten photographs, in one step."""
    return Run(
        method=method,
        model="feduv_cnn_small",
        embedding=128,
        seed=seed,
        data=Data(
            size=32,
            difficulty="easy",
            public=200,
            public_images=8,
            clients=64,
            images_each=10,
            test=100,
            test_images=4,
            pairs=600,
        ),
        pretrain=Central(rounds=12, training=Training(rate=0.02, batch=32, momentum=0.9)),
        rounds=Rounds(rounds=rounds, cohort=16),
        training=Training(rate=0.05, images_per_round=7),
        # Attacks take small differences apart, and differentiate twice under vmap, which knows one layout only.
        numerics=Numerics(precision="fp32", channels_last=False),
    )
