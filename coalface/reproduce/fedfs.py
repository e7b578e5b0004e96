"""FedFS (Kim, Choi, Kwak 2024): Table 1. A model for the one person of a device, from four pre-trained networks.

AUROC of comparing a person's enrolled mean with own and others' images that nobody trained on, the mean over clients.
The poster's data sets, DigiFace-1M and VGGFace, are one synthetic world here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coalface.algorithms.fedface import FedFace
from coalface.algorithms.fedfr import FedFR
from coalface.algorithms.fedfs import FedFS
from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.reproduce.artefact import Artefact, Scale, ScaleName
from coalface.reproduce.bench import PERSONAL, Row

NETWORKS = {
    "mobilefacenet": "MobileFaceNet",
    "pocketnet": "PocketNet",
    "ghostfacenet": "GhostFaceNet",
    "mobilenetv2": "MobileNetV2",
}
# AUROC in per cent on DigiFace-1M and VGGFace; digits that the print had lost are worked out from its percentages.
PRINTED = {
    "mobilefacenet": ((82.48, 89.21), (50.01, 54.88), (82.70, 94.17), (96.29, 97.94)),
    "pocketnet": ((91.28, 98.06), (49.98, 58.65), (96.37, 98.75), (97.94, 99.34)),
    "ghostfacenet": ((96.12, 98.85), (51.06, 59.05), (96.44, 99.29), (99.44, 99.43)),
    "mobilenetv2": ((93.39, 96.45), (50.55, 55.42), (95.88, 98.76), (96.47, 99.22)),
}

# With T = 2, images of a person draw together below a temperature of 1/2 only; γ above 1 ties an image to itself.
# Chosen on other people, by benchmarks/personal_search.py.
DRAWN_TOGETHER = FedFS(temperature=0.1, gamma=1.0)


def _run(data: Data, embedding: int, rounds: int, training: Training, passes: int, batch: int) -> Run:
    drops = ((max(2, passes * 4 // 5), 0.2),)
    before = Training(rate=0.05, rate_drops=drops, batch=batch, momentum=0.9, weight_decay=5e-4)
    return Run(
        method=FedFS(),
        model="mobilefacenet",
        embedding=embedding,
        data=replace(data, test=20, test_images=3, pairs=20),
        pretrain=Central(rounds=passes, training=before),
        rounds=Rounds(rounds=rounds, checkpoint_every=rounds),
        training=training,
    )


def _data(size: int, public: int, public_images: int, clients: int, images: int, probes: int, probed: int) -> Data:
    return Data(
        size=size,
        difficulty="hard",
        public=public,
        public_images=public_images,
        clients=clients,
        images_each=images,
        probe_images=probes,
        probed_clients=probed,
    )


LOCAL = Training(rate=0.01, epochs=3, momentum=0.9)
SCALES: dict[ScaleName, Scale] = {
    "smoke": Scale(
        _run(_data(32, 4, 4, 4, 4, 3, 2), 16, 1, Training(rate=0.01), 1, 16),
        ("hard",), test_people=20, test_images=3, pairs=20,
    ),
    "cpu": Scale(
        _run(_data(32, 50, 10, 16, 10, 8, 0), 128, 3, LOCAL, 8, 50),
        ("hard",), test_people=50, pairs=600,
    ),
    # FedFR's clients draw 128 of their own and hard public images each round.
    "gpu": Scale(
        _run(
            _data(64, 400, 20, 16, 20, 10, 0), 512, 3, replace(LOCAL, batch=64, images_per_round=128), 10, 256,
        ),
        ("hard",), pairs=3000,
    ),
    "paper": Scale(
        _run(_data(112, 9000, 60, 1000, 60, 12, 100), 512, 30, Training(rate=0.001), 12, 256), ("hard",),
    ),
}  # fmt: skip


def _table1(scale: Scale) -> Sequence[Row]:
    slower, slowest = (replace(scale.run.training, rate=scale.run.training.rate / part) for part in (2, 10))
    methods: dict[str, tuple[Method | None, Training | None]] = {
        "pre-trained": (None, None),
        "FedFace": (FedFace(), None),
        "FedFR": (FedFR(hard=0.6, proxies="mean"), None),
        "FedFS": (DRAWN_TOGETHER, slower),
        # From a good start the other one draws strangers together too.
        "FedFS, smaller steps": (DRAWN_TOGETHER, slowest),
    }
    return [
        Row(f"{network}, {name}", method, model=model, training=training, printed=printed)
        for model, network in NETWORKS.items()
        for (name, (method, training)), printed in zip(methods.items(), (*PRINTED[model], ()), strict=True)
    ]


ARTEFACTS = {
    "fedfs-table1": Artefact(
        "FedFS, Table 1: AUROC of each client's own model, by network",
        {"AUROC": (PERSONAL, "auroc"), "AUROC of pairs of probes": (PERSONAL, "auroc_pairs")},
        ("AUROC, DigiFace-1M", "AUROC, VGGFace"),
        SCALES,
        _table1,
        "FedFace has no personal model: its global one is "
        "measured. The poster's FedFace entries, about one half, are chance.",
    ),
}
