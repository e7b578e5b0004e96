"""Domains of real recordings from plain folders, for runs of attack detection.

    ROOT/DOMAIN/KIND/[SUBJECT/]FILE               people are dealt out to train, dev and test
    ROOT/DOMAIN/{train,dev,test}/KIND/[SUBJECT/]FILE   as they lie; without dev, some of train are held out

Kinds are live, print, cut, display, replay and unknown; files are stills or videos. Without folders of subjects, every
recording is taken for another person's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from coalface import seeding
from coalface.data.recordings import ATTACKS, Recordings, hold_out
from coalface.data.spoof_readers import live_and_spoof, read_clips
from coalface.data.video_frames import Sampling

SPLITS = ("train", "dev", "test")
TEST, DEV = 0.3, 0.25  # share of the people that are test; and of the others, dev


@dataclass
class FolderDomains:
    """Reads each domain once for a seed; called as ``attacks.draw_domain`` is."""

    root: Path
    read: dict[tuple[str, str], Recordings] = field(default_factory=dict)

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
        """``subjects`` and ``videos`` are for drawn domains: a folder gives what it has."""
        if (name, split) not in self.read:
            for part, recordings in self._domain(name, size, sampling(frames), seed).items():
                self.read[name, part] = recordings.to(device)
        if (name, split) not in self.read:
            raise ValueError(f"{self.root / name} has no {split} recordings")
        return self.read[name, split]

    def _domain(self, name: str, size: int, how: Sampling, seed: int) -> dict[str, Recordings]:
        folder = self.root / name
        if not folder.is_dir():
            known = sorted(entry.name for entry in self.root.iterdir() if entry.is_dir())
            raise FileNotFoundError(f"there is no domain {name!r} in {self.root}, only {', '.join(known) or 'nothing'}")
        found = {split: _recordings(folder / split, size, how) for split in SPLITS if (folder / split).is_dir()}
        if not found:
            rest, test = hold_out(_recordings(folder, size, how), TEST, seeding.derive(seed, "test"))
            found = {"train": rest, "test": test}
        if "train" in found and "dev" not in found:
            found["train"], found["dev"] = hold_out(found["train"], DEV, seeding.derive(seed, "dev"))
        return found


def sampling(frames: int) -> Sampling:
    """Which frames of a video count, and what is cut out of them: there are no face boxes, so crop videos before."""
    return Sampling(frames=frames, crop="centre")


def _recordings(folder: Path, size: int, how: Sampling) -> Recordings:
    kinds = [kind for kind in ATTACKS if (folder / kind).is_dir()]
    if "live" not in kinds or len(kinds) < 2:
        raise ValueError(f"{folder} needs a folder live and one of {', '.join(ATTACKS[1:])}; it has {kinds or 'none'}")
    by_person = all(entry.is_dir() for kind in kinds for entry in (folder / kind).iterdir())
    clips = live_and_spoof(
        folder, "live", {kind: kind for kind in kinds[1:]}, subjects="folder" if by_person else "unknown"
    )
    return read_clips(clips, size, how)
