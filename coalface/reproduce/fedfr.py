"""FedFR (Liu et al. 2022): tables 1 to 3, figures 3 and 4. A server's model, improved by clients with several people.

Generic numbers are of unseen people (the paper: IJB-C), personal ones of the clients' own people, in images that nobody
trained on. Rates as low as the paper's need more pairs than a small world has: columns correspond by their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coalface.algorithms.chorus_personal import ChorusPersonal
from coalface.algorithms.fedface import FedFace
from coalface.algorithms.fedfr import FedFR
from coalface.algorithms.fine_tune import FineTune
from coalface.config import Central, Run
from coalface.data.world import Data
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.reproduce import figures
from coalface.reproduce.artefact import Artefact, Column, Scale, ScaleName
from coalface.reproduce.bench import PERSONAL, Row

PRETRAINED, CENTRAL = "Centrally trained on public people (pre-training)", "Centrally trained on everyone"
FEDAVG, HARD, CONTRAST, FULL = "FedAvg", "FedAvg + HN", "FedAvg + HN + contrastive", "FedFR, all parts"
ALONE = "FedFR, one person each"
THRESHOLDS = (0.4, 0.45, 0.5, 0.6, 0.7, 0.8)  # of Figure 3

# Proxies that start as mean features need fewer rounds.
METHOD = FedFR(proxies="mean")
# A sum of four people tells more of each than one of eight.
CHOIRS_OF_8 = ChorusPersonal(choir=8, groupings=4)


def _central(passes: int, batch: int) -> Central:
    training = Training(rate=0.001, rate_drops=((max(2, passes * 4 // 5), 0.2),), batch=batch, optimiser="adam")
    return Central(rounds=passes, scale=16.0, margin=0.1, training=training)


def _data(size: int, public: tuple[int, int], clients: tuple[int, int], images: tuple[int, int], **more: Any) -> Data:
    """(people, images of each), (clients, people of each), (images to train on, images to test personally)."""
    return Data(
        size=size,
        public=public[0],
        public_images=public[1],
        clients=clients[0],
        identities_each=clients[1],
        images_each=images[0],
        probe_images=images[1],
        # The tests have people of their own: a run's own test people are as few as can be.
        test=20,
        test_images=3,
        pairs=20,
        **more,
    )


def _scale(
    data: Data, model: str, embedding: int, rounds: int, training: Training, passes: tuple[int, int], people: int,
    batch: int = 64, method: FedFR = METHOD,
) -> Scale:  # fmt: skip
    """``passes`` of pre-training, and of central training that goes on from there; ``people`` of the generic test."""
    before, central = (_central(count, batch) for count in passes)
    run = Run(
        method=method,
        model=model,
        embedding=embedding,
        data=data,
        pretrain=before,
        rounds=Rounds(rounds=rounds, checkpoint_every=max(1, rounds // 2)),
        training=training,
        central=central,
    )
    return Scale(run, (data.difficulty,), test_people=people, pairs=20 * people // 4, open_set=True)


LOCAL = Training(rate=0.008, epochs=2, batch=32, momentum=0.9, weight_decay=5e-4)
PAPERS = Training(rate=0.001, epochs=4, batch=256, weight_decay=5e-4)
SMALL = _data(32, (100, 16), (8, 10), (16, 16), difficulty="easy")
SCALES: dict[ScaleName, Scale] = {
    "smoke": _scale(_data(32, (8, 4), (4, 4), (4, 9), difficulty="easy"), "feduv_cnn_small", 16, 2, LOCAL, (1, 1), 40),
    # The rate does not fall: at the end of one that does, a client's model is hardly other than the mean.
    "cpu": _scale(SMALL, "feduv_cnn_small", 128, 28, LOCAL, (16, 8), 200),
    # A round is at most 3,000 of a client's own and hard public images.
    "gpu": _scale(
        _data(32, (6000, 5), (40, 100), (10, 6), difficulty="easy", probed_clients=8), "feduv_cnn_small", 128, 20,
        replace(LOCAL, rate=0.012, batch=64, images_per_round=3000), (20, 8), 300, batch=128,
        method=replace(METHOD, hard=0.6),
    ),
    "paper": _scale(
        _data(112, (6000, 60), (40, 100), (60, 40), difficulty="hard"), "sphere64", 512, 30, PAPERS, (12, 12), 1000,
        batch=512, method=FedFR(),
    ),
}  # fmt: skip
# With one person on each device there are ten times as many clients, each with its hard negatives: fewer of them, and
# fewer rounds.
DEALT: dict[ScaleName, Scale] = {
    "smoke": SCALES["smoke"],
    "cpu": _scale(SMALL, "feduv_cnn_small", 128, 8, LOCAL, (16, 8), 200, method=replace(METHOD, hard=0.6)),
    "paper": SCALES["paper"],
}

GENERIC: dict[str, Column] = {
    "1:1 TAR@1e-4": ("first", "tar@0.0001"),
    "1:1 TAR@1e-3": ("first", "tar@0.001"),
    "1:N TPIR@1e-2": ("first", "tpir@0.01"),
    "1:N TPIR@1e-1": ("first", "tpir@0.1"),
}
OWN: dict[str, Column] = {
    "personal 1:1 TAR@1e-4": (PERSONAL, "tar@0.0001"),
    "personal 1:1 TAR@1e-3": (PERSONAL, "tar@0.001"),
    "personal 1:N TPIR@1e-2": (PERSONAL, "tpir@0.01"),
    "personal 1:N TPIR@1e-1": (PERSONAL, "tpir@0.1"),
}
PRINTED_GENERIC = ("1:1 TAR@1e-5", "1:1 TAR@1e-4", "1:N TPIR@1e-2", "1:N TPIR@1e-1")
PRINTED_OWN = (
    "personal 1:1 TAR@1e-6",
    "personal 1:1 TAR@1e-5",
    "personal 1:N TPIR@1e-5",
    "personal 1:N TPIR@1e-4",
)


def _dealt(data: Data, each: int) -> Data:
    """The same people, so many on each device; where there are many more devices, not all are measured."""
    people = data.clients * data.identities_each
    probed = 4 * data.clients if each == 1 else data.probed_clients
    return replace(data, clients=people // each, identities_each=each, probed_clients=probed)


def _method(scale: Scale) -> FedFR:
    assert isinstance(scale.run.method, FedFR)
    return scale.run.method


def _fedavg(method: FedFR) -> FedFR:
    return replace(method, public="none", contrast=0.0, branch="none")


def _table1(scale: Scale) -> Sequence[Row]:
    method = _method(scale)
    return [
        Row(PRETRAINED, printed=(76.42, 84.58, 72.06, 80.30, 56.28, 72.50, 71.73, 82.33)),
        Row(FEDAVG, _fedavg(method), printed=(73.79, 83.71, 67.59, 78.53, 67.33, 85.70, 82.77, 92.27)),
        Row(
            HARD,
            replace(method, contrast=0.0, branch="none"),
            printed=(76.79, 84.64, 72.76, 80.76, 81.75, 91.91, 91.97, 96.09),
        ),
        Row(
            CONTRAST,
            replace(method, branch="none"),
            printed=(77.41, 85.17, 73.60, 81.25, 77.77, 89.57, 89.58, 94.60),
        ),
        Row(FULL, method, printed=(77.60, 85.21, 73.60, 81.27, 88.32, 95.46, 95.17, 97.94)),
        Row(CENTRAL, central=True, printed=(77.56, 85.99, 73.30, 82.14, 93.72, 97.39, 98.58, 99.40)),
    ]


def _alone(scale: Scale) -> Sequence[Row]:
    method, alone = _method(scale), _dealt(scale.run.data, 1)
    # Chorus is made for many rounds of one step each; at FedFR's rate the first of them overshoot.
    chorus = Row(
        "chorus/personal, one person each",
        ChorusPersonal(),
        data=alone,
        training=Training(rate=scale.run.training.rate / 2),
        rounds=8 * scale.run.rounds.rounds,
    )
    return [
        Row("Start, one person each", data=alone),
        Row(ALONE, method, data=alone),
        chorus,
        replace(chorus, label="chorus/personal, choirs of 8 in 4 groupings", method=CHOIRS_OF_8),
    ]


def _table2(scale: Scale) -> Sequence[Row]:
    method = _method(scale)
    first = next(row for row in _table1(scale) if row.label == CONTRAST)
    second = FineTune(hard=method.hard)
    # The paper gives no weight for the CosFace branch. At the other one's, 10, it takes the backbone along.
    cosface = replace(method, branch="cosface", customise=1.0)
    return [
        Row("Fine-tune", second, rounds=1, after=first, printed=(73.81, 86.21, 88.37, 93.90)),
        Row("KD", replace(second, distil=1.0), rounds=1, after=first, printed=(75.82, 87.65, 89.50, 94.67)),
        Row("Ours, Cosface branch", cosface, printed=(82.93, 91.88, 90.67, 95.59)),
        Row("Ours, BCE branch", method, trained_as=FULL, printed=(88.32, 95.46, 95.17, 97.94)),
    ]


def _table3(scale: Scale) -> Sequence[Row]:
    method = _method(scale)
    return [
        Row("Θ_g", method, trained_as=FULL, whose="generic", printed=(70.95, 84.40, 80.30, 88.98)),
        Row("Θ_l", method, trained_as=FULL, whose="local", printed=(81.46, 92.17, 91.15, 95.64)),
        Row("[Θ_l, Π_l]", method, trained_as=FULL, whose="own", printed=(88.32, 95.46, 95.17, 97.94)),
    ]


def _fig3(scale: Scale) -> Sequence[Row]:
    method = _method(scale)
    plain = replace(method, contrast=0.0, branch="none")
    trained = {method.hard: HARD}  # Table 1 has this row already
    return [
        Row("all public images", replace(plain, public="all")),
        *(Row(f"t = {at:g}", replace(plain, hard=at), trained_as=trained.get(at, "")) for at in THRESHOLDS),
        Row("no public image", _fedavg(method), trained_as=FEDAVG),
    ]


def _fig4(scale: Scale) -> Sequence[Row]:
    data, method = scale.run.data, _method(scale)
    rows = [Row("pre-trained", trained_as=PRETRAINED), Row("central", central=True, trained_as=CENTRAL)]
    for each in _people_each(data):
        dealt = _dealt(data, each)
        # With several people a client has negatives of its own; the paper's FedFace is then CosFace over them.
        theirs: Method = FedFace() if each == 1 else _fedavg(method)
        same = {"FedFace": FEDAVG, "FedFR": FULL} if each == data.identities_each else {}
        alone = {"FedFR": ALONE} if each == 1 else {}
        for name, trained in (("FedFace", theirs), ("FedFR", method)):
            shared = (same | alone).get(name, "")
            rows.append(Row(f"{name}, {each}", trained, data=None if same else dealt, trained_as=shared))
    return rows


def _people_each(data: Data) -> list[int]:
    most = data.identities_each
    return [most, *(each for each in (most // 2, most // 5) if each > 1 and (data.clients * most) % each == 0), 1]


BETWEEN = {"": (PRETRAINED, CENTRAL)}

ARTEFACTS = {
    "fedfr-table1": Artefact(
        "FedFR, Table 1: what each part adds, to the generic and to the personal model",
        {**GENERIC, **OWN},
        (*PRINTED_GENERIC, *PRINTED_OWN),
        SCALES,
        _table1,
        "Personal numbers are of Θ_l, with all parts of [Θ_l, Π_l].",
        between=BETWEEN,
    ),
    "chorus-personal": Artefact(
        "Chorus with a personal head beside FedFR, one person on each device",
        {**GENERIC, **OWN},
        (),
        DEALT,
        _alone,
        "FedFR's devices hold every public image, chorus's none. A threshold for one person is another task than one "
        "for ten: the numbers cannot be held against Table 1's.",
    ),
    "fedfr-table2": Artefact(
        "FedFR, Table 2: ways to a model of one's own",
        OWN,
        PRINTED_OWN,
        SCALES,
        _table2,
        "Fine-tune and KD go on for one round from the row with the contrast in Table 1.",
        rows_of="fedfr-table1",
    ),
    "fedfr-table3": Artefact(
        "FedFR, Table 3: which model to use on the client",
        OWN,
        PRINTED_OWN,
        SCALES,
        _table3,
        rows_of="fedfr-table1",
    ),
    "fedfr-fig3": Artefact(
        "FedFR, Figure 3: the threshold of hard negatives, and how many public images it leaves",
        {**GENERIC, **OWN, "public images used": ("public", "used")},
        (),
        SCALES,
        _fig3,
        "Without contrast and branch, as in Table 1's row of hard negatives. The paper gives a figure without numbers: "
        "at 0.4 ten times fewer images for 0.2 points.",
        rows_of="fedfr-table1",
        figures=lambda result: {"thresholds": figures.thresholds(result, "1:1 TAR@1e-3", "public images used")},
    ),
    "fedfr-fig4": Artefact(
        "FedFR, Figure 4: the generic model against the number of people of a client",
        GENERIC,
        (),
        DEALT,
        _fig4,
        "The paper gives a figure without numbers; it has 100 clients with fewer and fewer people, and here the same "
        "people are dealt out to more and more clients. FedFace takes one person; where clients have several it is "
        "CosFace over them and an average, as in the release, whose spread-out step moves nothing.",
        rows_of="chorus-personal",
        figures=lambda result: {"people": figures.people_each(result, "1:1 TAR@1e-3")},
    ),
}
