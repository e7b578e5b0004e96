"""FedFV (Liu et al. 2022): tables 1 to 3 and figures 4 and 5. From scratch, one identity per client.

The paper's test sets are LFW, AgeDB-30 and CFP-FP; ours are the same unseen synthetic people under three conditions of
rising difficulty. Its loss has scale 1; ours trains at the scale and rate below, chosen on people of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedavg import PositiveOnly
from coalface.algorithms.fedaws import FedAwS
from coalface.algorithms.fedfv import FedFV
from coalface.algorithms.feduv import FedUV
from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training
from coalface.reproduce import figures
from coalface.reproduce.artefact import Artefact, Scale, ScaleName
from coalface.reproduce.bench import Row

TESTS = ("easy", "standard", "hard")
COLUMNS = {test: (test, "accuracy") for test in TESTS}
PRINTED = ("LFW", "AgeDB-30", "CFP-FP")
# A class embedding only ever feels its own person's pull. At the backbone's rate it runs to where all features are
# before they have parted; slowed down, it stays where it was drawn, and features come to it.
SLOW = 0.1
SOFTMAX_SCALE = 4.0  # at rate 0.1 a scale of 16 collapses a network without batch norm to one point


def _scale(run: Run, **changes: Any) -> Scale:
    return Scale(run=run, tests=TESTS, **changes)


def _run(
    clients: int,
    images: int,
    size: int,
    model: str,
    embedding: int,
    rounds: int,
    cohort: int,
    drawn: int = 0,
    batch: int = 64,
) -> Run:
    """One step a client and round, on all its images or so many ``drawn``; the paper's three rates, at the same shares
    of the rounds. Central training has its ``batch``."""
    drops = ((rounds * 2 // 3, 0.1), (rounds * 13 // 15, 0.1))
    passes = max(1, rounds * cohort * (drawn or images) // (clients * images))  # as many images as the federation sees
    falls = ((passes * 2 // 3, 0.2), (passes * 13 // 15, 0.2))
    central = Training(rate=0.02, rate_drops=falls, batch=batch, momentum=0.9)
    return Run(
        model=model,
        embedding=embedding,
        # The tests have people of their own: the run's own test people are as few as can be.
        data=Data(
            size=size,
            difficulty="standard",
            public=0,
            clients=clients,
            images_each=images,
            test=20,
            test_images=3,
            pairs=20,
        ),
        rounds=Rounds(rounds=rounds, cohort=cohort, checkpoint_every=max(1, rounds // 5)),
        training=Training(rate=0.1, rate_drops=drops, images_per_round=drawn),
        central=Central(rounds=passes, training=central),
    )


SCALES: dict[ScaleName, Scale] = {
    "smoke": _scale(_run(24, 4, 32, "feduv_cnn_small", 16, 4, 8), test_people=24, test_images=4, pairs=200),
    "cpu": _scale(_run(200, 10, 32, "feduv_cnn_small", 128, 600, 8)),
    # The paper does not give its batch. A step on ten of the thirty images costs a third of an H200's time.
    "paper": _scale(_run(1000, 30, 64, "feduv_cnn", 512, 15_000, 8, drawn=10, batch=128), test_people=200),
}


def _fedfv(equivalents: int = 100, fused: int = 2, embedding_rate: float = 1.0) -> FedFV:
    return FedFV(
        equivalents=equivalents, fused=fused, init="random", scale=SOFTMAX_SCALE, embedding_rate=embedding_rate
    )


def _table1(scale: Scale) -> Sequence[Row]:
    printed = {
        1: (63.55, 55.32, 58.56),
        5: (78.73, 59.58, 70.22),
        10: (81.18, 64.45, 73.09),
        50: (82.50, 66.48, 74.50),
        100: (82.63, 66.68, 74.10),
        500: (83.22, 66.83, 74.23),
        1000: (83.03, 67.05, 74.94),
    }
    return [Row(f"FedFV-{n}", _fedfv(equivalents=n), printed=numbers) for n, numbers in printed.items()]


def _table2(scale: Scale) -> Sequence[Row]:
    printed = {
        2: (82.63, 66.68, 74.10),
        3: (82.90, 66.23, 74.30),
        5: (83.00, 66.52, 73.76),
        10: (82.43, 66.27, 73.69),
        50: (81.30, 64.55, 73.37),
        100: (81.47, 64.87, 72.87),
    }
    fits = [k for k in printed if k <= scale.run.data.clients - scale.run.rounds.cohort]
    return [Row(f"FedFV({k})", _fedfv(fused=k), printed=printed[k]) for k in fits]


def _table3(scale: Scale) -> Sequence[Row]:
    return [
        Row("Centralized", central=True, printed=(86.68, 69.27, 77.17)),
        Row("FedAwS", FedAwS(), printed=(82.47, 59.53, 69.56)),
        Row("FedUV-127", FedUV(code_length=127), printed=(78.83, 56.35, 68.03)),
        Row("FedUV-255", FedUV(code_length=255), printed=(79.42, 57.23, 68.41)),
        Row("FedUV-511", FedUV(code_length=511), printed=(81.60, 58.93, 68.63)),
        Row("FedFV-100", _fedfv(embedding_rate=SLOW), printed=(82.63, 66.68, 74.10)),
        Row("chorus, choirs of 4", Chorus(init="random", scale=SOFTMAX_SCALE)),
        Row(
            "chorus, choirs of 4, 3 groupings",
            Chorus(groupings=3, init="random", scale=SOFTMAX_SCALE, embedding_rate=SLOW),
        ),
        Row(
            "chorus, choirs of 4, 2 groupings, enrolled",
            Chorus(groupings=2, init="random", scale=SOFTMAX_SCALE, embedding_rate=SLOW, enrol_first=True),
        ),
        Row("FedAvg, positive only", PositiveOnly()),
        # Nothing holds embeddings apart; a larger rate shows where that ends.
        Row("FedAvg, positive only, rate 1", PositiveOnly(), training=replace(scale.run.training, rate=1.0)),
    ]


def _curves(scale: Scale) -> Sequence[Row]:
    wanted = ("Centralized", "FedAwS", "FedUV-511", "FedFV-100")
    return [replace(row, printed=()) for row in _table3(scale) if row.label in wanted]


ARTEFACTS = {
    "fedfv-table1": Artefact(
        "FedFV, Table 1: accuracy against the number of equivalent class embeddings n",
        COLUMNS,
        PRINTED,
        SCALES,
        _table1,
        figures=lambda result: {"accuracy": figures.by_setting(result, "equivalent class embeddings n")},
    ),
    "fedfv-table2": Artefact(
        "FedFV, Table 2: accuracy against the number k of class embeddings fused into one",
        COLUMNS,
        PRINTED,
        SCALES,
        _table2,
        figures=lambda result: {"accuracy": figures.by_setting(result, "fused class embeddings k")},
    ),
    "fedfv-table3": Artefact(
        "FedFV, Table 3: accuracy of the methods, from scratch",
        COLUMNS,
        PRINTED,
        SCALES,
        _table3,
        "Rows of chorus and of FedAvg without negatives are ours; the paper has none. At scale paper a client steps "
        "on 10 of its 30 images.",
    ),
    "fedfv-fig4": Artefact(
        "FedFV, Figure 4: ROC curves of the methods",
        COLUMNS,
        PRINTED,
        SCALES,
        _curves,
        rows_of="fedfv-table3",
        figures=lambda result: {f"roc-{test}": figures.roc(result, test) for test in TESTS},
    ),
    "fedfv-fig5": Artefact(
        "FedFV, Figure 5: cosines between class embeddings",
        COLUMNS,
        PRINTED,
        SCALES,
        _curves,
        "The paper's cosines around −0.35 are impossible for 1,000 unit vectors (their mean is at least −1/999). "
        "FedUV has no class embeddings: its codewords are drawn by the clients and never leave them.",
        rows_of="fedfv-table3",
        figures=lambda result: {"cosines": figures.class_cosines(result)},
    ),
}
