"""Attack detection at laptop size, and FedGPAD's two readings of a round."""

from __future__ import annotations

from dataclasses import replace

from coalface.algorithms.fedgpad import FedGPAD
from coalface.config import DetectionRun
from coalface.federation import Rounds
from coalface.local import Training


def detection() -> DetectionRun:
    """Three data centres, and users of a fourth domain."""
    # 18 rounds are one pass of FedMA over ResNet-18.
    return DetectionRun(width=16, rounds=Rounds(rounds=18))


def fedgpad_paper() -> DetectionRun:
    """Algorithm 2: a centre trains through its recordings, and then the server averages."""
    training = Training(rate=1e-4, batch=32, optimiser="adam", balanced=True)
    return replace(detection(), method=FedGPAD(), training=training)


def fedgpad_release() -> DetectionRun:
    """The released code: 16 live and 16 attack frames, one step of an Adam made for it, and the server averages.

    Such a step moves every weight by the rate, up or down: the server averages signs. 200 rounds are 200 steps.
    """
    training = Training(rate=1e-2, images_per_round=32, optimiser="adam", balanced=True, flip=False)
    return replace(detection(), method=FedGPAD(), training=training, rounds=Rounds(rounds=200, checkpoint_every=20))
