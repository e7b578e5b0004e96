"""Real stills: FedGPAD's Tables III and V on two sets of photographs, each a data centre and each in turn the users'.

N   NUAA: live people and printed photographs before a webcam, its own split (other sessions and some other people)
L   "LCC-like": live and spoof crops of mixed cameras and kinds of attack, without subjects; split at random
C S two synthetic domains, which anybody can add to a federation, so that there are three centres as in the paper
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from coalface import seeding
from coalface.algorithms.all import AllCentres
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.fedma import FedMA
from coalface.algorithms.fedpad import FedPAD
from coalface.algorithms.fused import Fused
from coalface.algorithms.relief import Relief
from coalface.algorithms.single import Single
from coalface.config import DetectionRun
from coalface.data.attacks import draw_domain
from coalface.data.centres import DomainData
from coalface.data.packs import unpacked
from coalface.data.recordings import Recordings, hold_out
from coalface.data.spoof_readers import live_and_spoof, read_clips
from coalface.data.video_frames import Sampling
from coalface.federation import Rounds
from coalface.local import Training
from coalface.method import Method
from coalface.reproduce.artefact import ScaleName
from coalface.reproduce.detectors import DetectorArtefact, Row

SYNTHETIC = ("C", "S")
CENTRES = {"N": ("L", *SYNTHETIC), "L": ("N", *SYNTHETIC)}  # user -> who trains
WHOLE = Sampling(frames=1, crop="centre")  # a still is taken whole
DEV, TEST = 0.25, 0.5  # shares of the people that are held out of training; of N the test is its own


def _scale(size: int, width: int, rate: float) -> DetectionRun:
    return DetectionRun(
        width=width,
        data=DomainData(target="N", centres=CENTRES["N"], size=size, subjects=40, dev_subjects=20, videos=2, frames=2),
        rounds=Rounds(rounds=18, checkpoint_every=18),
        training=Training(rate=rate, batch=32, optimiser="adam", balanced=True),
        ends=(),
    )


SCALES: dict[ScaleName, DetectionRun] = {"cpu": _scale(32, 8, 1e-3), "gpu": _scale(64, 32, 3e-4)}


@dataclass
class Stills:
    """The two packs, read once; nobody is in two splits, as far as the sets tell people apart."""

    root: Path
    cache: Path
    read: dict[tuple[str, str, int, int], Recordings] = field(default_factory=dict)

    def __call__(
        self,
        name: str,
        split: str,
        subjects: int,
        videos: int,
        frames: int,
        size: int,
        seed: int,
        device: torch.device | str,
    ) -> Recordings:
        if name in SYNTHETIC:
            return draw_domain(name, split, subjects, videos, frames, size, seed, device)
        if (name, split, size, seed) not in self.read:
            parts = self._nuaa(size, seed) if name == "N" else self._lcc_like(size, seed)
            for part, recordings in parts.items():
                self.read[name, part, size, seed] = recordings
        return self.read[name, split, size, seed].to(device)

    def _nuaa(self, size: int, seed: int) -> dict[str, Recordings]:
        folder = unpacked(self.root, "nuaa128_every4th", self.cache) / "nuaa128"
        both = {}
        for split in ("train", "test"):
            clips = live_and_spoof(folder, f"client_{split}", {"print": f"imposter_{split}"}, stills="sequence")
            both[split] = read_clips(clips, size, WHOLE)
        train, dev = hold_out(both["train"], DEV, seeding.derive(seed, "dev"))
        return {"train": train, "dev": dev, "test": both["test"]}

    def _lcc_like(self, size: int, seed: int) -> dict[str, Recordings]:
        folder = unpacked(self.root, "lcc_like128_balanced", self.cache) / "lcc_like128"
        clips = live_and_spoof(folder, "real", {"unknown": "fake"}, subjects="unknown")
        rest, test = hold_out(read_clips(clips, size, WHOLE), TEST, seeding.derive(0, "test"))
        train, dev = hold_out(rest, DEV, seeding.derive(seed, "dev"))
        return {"train": train, "dev": dev, "test": test}


@dataclass(frozen=True)
class StillsArtefact(DetectorArtefact):
    """It needs the packs of photographs: ``on`` says where they are."""

    def on(self, photographs: Path, cache: Path) -> DetectorArtefact:
        """The artefact with its photographs."""
        packed = photographs / "packed.json"
        note = f" Photographs re-encoded at {json.loads(packed.read_text())['re_encoded']}." if packed.exists() else ""
        return replace(self, draw=Stills(photographs, cache), remarks=self.remarks + note)


def _by_user(name: str, method: Method) -> tuple[Row, ...]:
    return tuple(Row(name, method, centres, user) for user, centres in CENTRES.items())


TOGETHER = (  # trained over all centres of a protocol
    *_by_user("Fused", Fused()),
    *_by_user("FedPAD", FedPAD()),
    *_by_user("FedMA", FedMA()),
    *_by_user("FedGPAD", FedGPAD()),
    *_by_user("FedGPAD without disentanglement", FedGPAD(disentangle=False)),
    *_by_user("All", AllCentres()),
    *_by_user("relief (ours)", Relief()),
)
ROWS = (
    *(Row("Single", Single(), (centre,), user) for user, centres in CENTRES.items() for centre in centres),
    *TOGETHER,
    *(replace(row, at_home=True) for row in TOGETHER),
)

ARTEFACTS = {
    "real-stills": StillsArtefact(
        "Real stills: NUAA (N) and LCC-like (L), each left out in turn; C and S are synthetic",
        SCALES,
        ROWS,
        ("N", "L"),
        "real-stills",
        draw_domain,
        "N: every fourth frame of NUAA, its own split, a quarter of its nine training people as dev. L: stills of "
        "unknown people, half of them test, so that a person may be in two splits. Stills are taken whole, loose "
        "square crops of 128 pixels, resized; depth of live faces is one oval for all. The paper has no such table.",
        keep_features=False,
    )
}
