"""FedFace (Aggarwal, Zhou, Jain 2021): Table 1 and Figure 4. Fine-tuning a network that already knows faces.

The paper's test sets are LFW (accuracy), IJB-A and IJB-C (TAR at 0.1 % FAR); ours are unseen synthetic people: accuracy
over balanced pairs, and TAR over all pairs under two conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coalface.algorithms.chorus import Chorus
from coalface.algorithms.fedavg import PrivateHead
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.fedfv import FedFV
from coalface.algorithms.random_targets import RandomTargets
from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training
from coalface.reproduce import figures
from coalface.reproduce.artefact import Artefact, Scale, ScaleName
from coalface.reproduce.bench import Row

# Central training has momentum, and goes four times as far in as many steps as plain ones would allow.
HASTENED: dict[str, Any] = {"momentum": 0.9, "margin": 0.1, "enrol_first": True}
FEW_CHORDS = (50, 25, 10)  # of the hundred that there are at scale cpu
HINGE_RATE = 1.0  # FedFace's hinge has no scale, where a softmax has 16: at the softmax's rate it hardly moves


def _data(**settings: Any) -> Data:
    """The tests have people of their own: a run's own test people are as few as can be."""
    return Data(test=20, test_images=3, pairs=20, **settings)


def _central(passes: int, rate: float, batch: int) -> Central:
    drops = ((max(2, passes * 4 // 5), 0.2),)
    return Central(rounds=passes, training=Training(rate=rate, rate_drops=drops, batch=batch, momentum=0.9))


def equal_images(run: Run) -> Central:
    """Central fine-tuning with as many images as a federation of this run sees."""
    people, plain = run.data.clients, run.central.training
    called, drawn = run.rounds.cohort or people, run.training.images_per_round or run.data.images_each
    passes = max(1, run.rounds.rounds * called * drawn // (people * run.data.images_each))
    larger = 1 if run.rounds.cohort else 2  # everybody in every round is many images: steps twice as large, not as many
    return _central(passes, larger * plain.rate, larger * plain.batch)


def _longer(run: Run, times: int) -> Run:
    drops = tuple((times * round_, factor) for round_, factor in run.training.rate_drops)
    rounds = replace(run.rounds, rounds=times * run.rounds.rounds)
    return replace(run, rounds=rounds, training=replace(run.training, rate_drops=drops))


def _fine_tuning(
    data: Data,
    model: str,
    embedding: int,
    rounds: int,
    cohort: int,
    pretrain: Central,
    central: Central,
    drawn: int = 0,
) -> Run:
    return Run(
        model=model,
        embedding=embedding,
        data=data,
        pretrain=pretrain,
        rounds=Rounds(rounds=rounds, cohort=cohort, checkpoint_every=max(1, rounds // 5)),
        training=Training(rate=0.05, rate_drops=((max(2, rounds * 4 // 5), 0.2),), images_per_round=drawn),
        central=central,
    )


SCALES: dict[ScaleName, Scale] = {
    "smoke": Scale(
        _fine_tuning(
            _data(size=32, difficulty="hard", public=8, public_images=4, clients=24, images_each=4),
            "feduv_cnn_small", 16, 4, 8, _central(2, 0.02, 32), _central(2, 0.01, 32),
        ),
        ("standard", "hard"), test_people=24, test_images=4, pairs=200,
    ),
    "cpu": Scale(
        _fine_tuning(
            _data(size=32, difficulty="easy", public=40, public_images=20, clients=200, images_each=10),
            "feduv_cnn_small", 128, 500, 16, _central(24, 0.02, 32), _central(16, 0.01, 32),
        ),
        ("easy", "standard"),
    ),
    # A fifth of the paper's people, in its proportions; on two cores of a CPU it takes a quarter of an hour a seed.
    "gpu": Scale(
        _fine_tuning(
            _data(
                size=32, difficulty="standard", public_difficulty="easy",
                public=1800, public_images=5, clients=200, images_each=10,
            ),
            "feduv_cnn_small", 128, 500, 16, _central(20, 0.02, 128), _central(16, 0.01, 32),
        ),
        ("standard", "hard"),
    ),
    # The paper's people and rounds. It has 47 photographs of a client's person at 112 × 112 and trains Sphere64: 9.4
    # million images a row, 22 minutes of an H200.
    "paper": Scale(
        _fine_tuning(
            _data(
                size=64, difficulty="standard", public_difficulty="easy",
                public=9000, public_images=5, clients=1000, images_each=10,
            ),
            "feduv_cnn", 512, 200, 0, _central(20, 0.02, 128), _central(16, 0.01, 64), drawn=5,
        ),
        ("standard", "hard"), test_people=400,
    ),
}  # fmt: skip


def _table1(scale: Scale) -> Sequence[Row]:
    # With all clients in each round, gradients are of all their images: fewer steps, and larger ones.
    hastened = replace(scale.run.training, rate=0.02 if scale.run.rounds.cohort else 0.05)
    longer = _longer(scale.run, 3)
    return [
        Row("Baseline", printed=(99.15, 81.43, 84.78)),
        Row("Fine-tuning baseline in a non-federated manner", central=True, printed=(99.32, 84.18, 88.76)),
        Row("The same with as many images as the federation", central=True, plan=equal_images(scale.run)),
        Row("The same with as many images as in three times the rounds", central=True, plan=equal_images(longer)),
        Row("Randomly initialized class embeddings", RandomTargets(), printed=(94.61, 70.13, 69.30)),
        Row("FedFace", FedFace(), printed=(99.28, 83.79, 88.21)),
        Row(f"FedFace, rate {HINGE_RATE:g}", FedFace(), training=replace(scale.run.training, rate=HINGE_RATE)),
        Row("FedFV", FedFV()),
        Row("chorus, choirs of 4", Chorus()),
        Row("FedFace, momentum", FedFace(momentum=0.9), training=replace(scale.run.training, rate=0.3 * HINGE_RATE)),
        Row(
            "FedFace, momentum, class embeddings further apart",
            FedFace(momentum=0.9, spread_max_cos=0.1),
            training=replace(scale.run.training, rate=0.6 * HINGE_RATE),
        ),
        Row("FedFV, momentum", FedFV(**HASTENED), training=hastened),
        Row("chorus, choirs of 8, 4 groupings, momentum", Chorus(choir=8, groupings=4, **HASTENED), training=hastened),
        Row(
            "chorus, choirs of 8, 4 groupings, momentum, anchors",
            Chorus(choir=8, groupings=4, anchors=min(1000, scale.run.data.public), **HASTENED),
            training=hastened,
        ),
        *(
            Row(
                f"chorus, choirs of 8, 4 groupings, momentum, {chords} chords a round",
                Chorus(choir=8, groupings=4, chords=chords, **HASTENED),
                training=hastened,
            )
            for chords in FEW_CHORDS
        ),
        Row("chorus, choirs of 4, 2 groupings, momentum", Chorus(choir=4, groupings=2, **HASTENED), training=hastened),
        Row(
            "chorus, choirs of 8, 4 groupings, momentum, three times the rounds",
            Chorus(choir=8, groupings=4, **(HASTENED | {"margin": 0.2})),
            training=replace(longer.training, rate=hastened.rate),
            rounds=longer.rounds.rounds,
        ),
    ]


FIGURE = Training(rate=0.02, batch=16, momentum=0.9)  # a pass in small batches: clients with many people need steps


def _from_scratch(scale: Scale, rounds: int, people: int) -> Scale:
    data = replace(scale.run.data, public=0, clients=people)
    return replace(scale, run=replace(scale.run, rounds=Rounds(rounds=rounds), data=data, training=FIGURE))


FIGURE_SCALES: dict[ScaleName, Scale] = {
    "smoke": _from_scratch(SCALES["smoke"], rounds=1, people=24),
    "cpu": _from_scratch(SCALES["cpu"], rounds=24, people=192),
    "paper": _from_scratch(SCALES["paper"], rounds=40, people=10_000),
}


def _fig4(scale: Scale) -> Sequence[Row]:
    """The same people, dealt out to more and more clients, from scratch: with one each FedAvg has no negatives."""
    data = scale.run.data
    people = data.clients
    counts = [count for count in (1, 4, 8, 16, 64) if people % count == 0 and people // count > 1] + [people]
    rows = [
        Row(f"FedAvg, {count}", PrivateHead(), data=replace(data, clients=count, identities_each=people // count))
        for count in counts
    ]
    # Its loss has no scale, and a client here takes one step a round: it needs a higher rate.
    return [*rows, Row(f"FedFace, {people}", FedFace(init="random"), training=replace(FIGURE, rate=0.3))]


ARTEFACTS = {
    "fedface-table1": Artefact(
        "FedFace, Table 1: fine-tuning a pre-trained network on people who keep their photographs",
        {
            "accuracy": ("first", "accuracy"),
            "TAR@0.1%": ("first", "tar@0.001"),
            "TAR@0.1%, harder": ("second", "tar@0.001"),
        },
        ("LFW accuracy", "IJB-A TAR@0.1%", "IJB-C TAR@0.1%"),
        SCALES,
        _table1,
        "Rows of FedFace at another rate, of FedFV and of chorus are ours, from the same start; the paper has none. "
        "At scale paper a client's person has 10 photographs of 64×64, of which a step takes 5; a public person has 5, "
        "under easier conditions, so that there is something to gain; the network is FedUV's. The paper has about 47 "
        "of 112×112, of the same kind for both, and Sphere64.",
        between={"": ("Baseline", "Fine-tuning baseline in a non-federated manner")},
    ),
    "fedface-fig4": Artefact(
        "FedFace, Figure 4: FedAvg against the number of clients that the same people are dealt out to",
        {"accuracy": ("first", "accuracy"), "TAR@0.1%": ("first", "tar@0.001")},
        (),
        FIGURE_SCALES,
        _fig4,
        "From scratch. The paper gives a curve without numbers. With one identity per client FedAvg's private head has "
        "one class: its loss is constant, and the network stays as it began.",
        figures=lambda result: {"clients": figures.by_setting(result, "clients")},
    ),
}
