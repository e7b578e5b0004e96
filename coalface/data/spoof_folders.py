"""Domains of real recordings from folders, for runs of attack detection.

    ROOT/DOMAIN/KIND/[SUBJECT/]FILE                    people are dealt out to train, dev and test
    ROOT/DOMAIN/{train,dev,test}/KIND/[SUBJECT/]FILE   as they lie; without dev, some of train are held out
    ROOT/DOMAIN/…                                      a published set, as it is handed out (``spoof_readers.LAYOUTS``)

Kinds are live, print, cut, display, replay and unknown; files are stills or videos. Without folders of subjects, every
recording is taken for another person's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from coalface import seeding
from coalface.data.listing import hash_of_files
from coalface.data.recordings import ATTACKS, Recordings, hold_out
from coalface.data.spoof_readers import LAYOUTS, WITH_DEV, Clip, layout_of, live_and_spoof, read_clips
from coalface.data.video_frames import Sampling

SPLITS = ("train", "dev", "test")
TEST, DEV = 0.3, 0.25  # share of the people that are test; and of the others, dev


@dataclass
class FolderDomains:
    """Reads each domain once, and deals its people out by the seed; called as ``attacks.draw_domain`` is."""

    root: Path
    crop: str = ""  # as in ``DomainData``
    margin: float = 1.3
    each: Callable[[int], None] = lambda one: None  # called after every clip that is read
    read: dict[tuple[str, int, int], dict[str, Recordings]] = field(default_factory=dict)

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
        if (name, size, frames) not in self.read:
            clips = self._clips(name)
            how = self._sampling(clips, frames)
            self.read[name, size, frames] = {
                part: read_clips(c, size, how, each=self.each) for part, c in clips.items()
            }
        try:
            parts = dealt_out(self.read[name, size, frames], seed)
        except ValueError as few:
            raise ValueError(f"{self.root / name}: {few}; it needs recordings of three people or more") from few
        if split not in parts:
            raise ValueError(f"{self.root / name} has no {split} recordings")
        return parts[split].to(device)

    def how(self, names: Sequence[str], frames: int) -> str:
        """Which frames of these domains' videos count, and what is cut out of them: to be printed with results."""
        each = {name: str(self._sampling(self._clips(name), frames)) for name in names}
        texts = {text: [name for name in names if each[name] == text] for text in each.values()}
        where = "; ".join(f"{'&'.join(mine)}: {text}" if len(texts) > 1 else text for text, mine in texts.items())
        return f"real; {where}; stills whole"

    def clips(self, names: Sequence[str]) -> int:
        """How many there are to read."""
        return sum(len(mine) for name in names for mine in self._clips(name).values())

    def hash_of_clips(self, names: Sequence[str]) -> str:
        """One value over what there is to read, and whose it is."""
        return hash_of_files(
            (f"{split} {clip.attack} {clip.subject} {clip.path.relative_to(self.root)}", clip.path.stat().st_size)
            for name in names
            for split, mine in self._clips(name).items()
            for clip in mine
        )

    def _sampling(self, clips: Mapping[str, Sequence[Clip]], frames: int) -> Sampling:
        boxes = all(clip.boxes is not None for mine in clips.values() for clip in mine)
        return Sampling(frames, self.crop or ("box" if boxes else "centre"), self.margin)

    def _clips(self, name: str) -> dict[str, list[Clip]]:
        folder = self.root / name
        if not folder.is_dir():
            known = sorted(entry.name for entry in self.root.iterdir() if entry.is_dir())
            raise FileNotFoundError(f"there is no domain {name!r} in {self.root}, only {', '.join(known) or 'nothing'}")
        return _by_split(folder)


def dealt_out(parts: Mapping[str, Recordings], seed: int) -> dict[str, Recordings]:
    """What is not split yet: everything into train and test, and train into train and dev."""
    found = dict(parts)
    if "all" in found:
        rest, test = hold_out(found["all"], TEST, seeding.derive(seed, "test"))
        found = {"train": rest, "test": test}
    if "train" in found and "dev" not in found:
        found["train"], found["dev"] = hold_out(found["train"], DEV, seeding.derive(seed, "dev"))
    return found


def _by_split(folder: Path) -> dict[str, list[Clip]]:
    """Of a published set, or of plain folders; "all" if people are still to be dealt out."""
    if layout := layout_of(folder):
        return {split: LAYOUTS[layout](folder, split) for split in SPLITS if split != "dev" or layout in WITH_DEV}
    return {s: _plain(folder / s) for s in SPLITS if (folder / s).is_dir()} or {"all": _plain(folder)}


def _plain(folder: Path) -> list[Clip]:
    kinds = [kind for kind in ATTACKS if (folder / kind).is_dir()]
    if "live" not in kinds or len(kinds) < 2:
        raise ValueError(f"{folder} needs a folder live and one of {', '.join(ATTACKS[1:])}; it has {kinds or 'none'}")
    by_person = all(entry.is_dir() for kind in kinds for entry in (folder / kind).iterdir())
    return live_and_spoof(
        folder, "live", {kind: kind for kind in kinds[1:]}, subjects="folder" if by_person else "unknown"
    )
