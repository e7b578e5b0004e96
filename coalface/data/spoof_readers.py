"""Sets of real presentation attacks, in the layouts in which they are handed out, and plain folders of live and spoof.

    clips = LAYOUTS["replay-attack"](root, "train")
    recordings = read_clips(clips, 256, Sampling(frames=10))

A layout lists clips: which file is what kind of attack on whom. Subjects leave here as numbers, never as names. Sets
that come without a dev split (all but OULU-NPU and Replay-Attack) get one by ``recordings.hold_out``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from coalface.data.faces import SUFFIXES as STILLS
from coalface.data.faces import read_images
from coalface.data.pseudo_depth import oval_depth
from coalface.data.recordings import ATTACKS, DEPTH, Recordings
from coalface.data.video_frames import Box, Boxes, BrokenVideo, Sampling, read_video

VIDEOS = frozenset({".avi", ".mov", ".mp4", ".mkv"})


@dataclass(frozen=True, repr=False)
class Clip:
    """One file to read: a video, or one still of a sequence."""

    path: Path
    attack: str  # one of ATTACKS
    subject: str
    recording: str  # stills of one recording share it
    boxes: Callable[[], Boxes] | None = None

    def __repr__(self) -> str:
        return f"Clip({self.attack}, names not shown)"


def read_clips(
    clips: Sequence[Clip],
    size: int,
    sampling: Sampling,
    depth: Callable[[Tensor], Tensor] = oval_depth,
    each: Callable[[int], None] = lambda one: None,
) -> Recordings:
    """All clips as frames of size×size; stills are cropped to their central square and taken whole.

    ``depth`` makes depth maps uint8 [n, 32, 32] of live frames [n, 3, size, size]; attacks are flat, hence zero.
    ``each`` is called after every clip, with 1: a set of videos takes minutes to read.
    """
    if not clips:
        raise ValueError("no clips to read: is the folder the one that holds the set?")
    subjects = {name: number for number, name in enumerate(sorted({clip.subject for clip in clips}))}
    recordings = {name: number for number, name in enumerate(sorted({clip.recording for clip in clips}))}
    stills = iter(read_images([clip.path for clip in clips if _is_still(clip.path)], size))  # all at once is faster
    images = []
    for clip in clips:
        still = _is_still(clip.path)
        read = next(stills)[None] if still else torch.from_numpy(read_video(clip.path, size, sampling, clip.boxes))
        images.append(read)
        each(1)
    counts = [len(frames) for frames in images]

    def column(values: Iterable[int]) -> Tensor:
        return torch.tensor(list(values)).repeat_interleave(torch.tensor(counts))

    frames, attack = torch.cat(images), column(ATTACKS.index(clip.attack) for clip in clips)
    maps = torch.zeros(len(frames), DEPTH, DEPTH, dtype=torch.uint8)
    if bool((attack == 0).any()):
        maps[attack == 0] = depth(frames[attack == 0])
    video, subject = column(recordings[clip.recording] for clip in clips), column(subjects[c.subject] for c in clips)
    return Recordings(frames, attack, maps, video, subject)


# ---- layouts


def oulu_npu(root: Path | str, split: str) -> list[Clip]:
    """ROOT/{Train,Dev,Test}_files/PHONE_SESSION_USER_KIND.avi, with eye positions in a .txt of the same name.

    Kinds: 1 live, 2 and 3 prints, 4 and 5 replays.
    """
    folder = _folder(root, {"train": "Train_files", "dev": "Dev_files", "test": "Test_files"}, split)
    kinds = {"1": "live", "2": "print", "3": "print", "4": "replay", "5": "replay"}
    return [
        _video(path, kinds[found[2]], found[1], _eye_boxes, path.with_suffix(".txt"))
        for path, found in _matching(folder, r"\d+_\d+_(\d+)_([1-5])")
    ]


def casia_mfsd(root: Path | str, split: str) -> list[Clip]:
    """ROOT/{train,test}_release/SUBJECT/{1 … 8, HR_1 … HR_4}.avi; no face boxes come with it.

    Live: 1, 2, HR_1. Bent prints: 3, 4, HR_2. Cut photographs: 5, 6, HR_3. Replays: 7, 8, HR_4.
    """
    folder = _folder(root, {"train": "train_release", "test": "test_release"}, split)
    order = ("live", "print", "cut", "replay")
    clips = []
    for path, found in _matching(folder, r"(HR_)?([1-8])"):
        number = int(found[2])
        if found[1] and number > 4:
            raise ValueError(f"{path.name} is no recording of CASIA-MFSD: there are HR_1 … HR_4")
        kind = order[number - 1] if found[1] else order[(number - 1) // 2]
        clips.append(_video(path, kind, path.parent.name, _left_top_right_bottom, path.with_suffix(".face")))
    return clips


def replay_attack(root: Path | str, split: str) -> list[Clip]:
    """ROOT/{train,devel,test}/{real,attack/{fixed,hand}}/*.mov, with boxes below ROOT/face-locations."""
    names = {"train": "train", "dev": "devel", "test": "test"}
    folder = _folder(root, names, split)
    clips = []
    for path, found in _matching(
        folder, r"(?:attack_(print|mobile|highdef)_)?client(\d+)_.*?(photo|video|authenticate).*"
    ):
        kind = "live" if found[1] is None else "print" if found[1] == "print" else _SHOWN[found[3]]
        boxes = Path(root) / "face-locations" / path.relative_to(root).with_suffix(".face")
        clips.append(_video(path, kind, found[2], _left_top_width_height, boxes))
    return clips


def msu_mfsd(root: Path | str, split: str) -> list[Clip]:
    """ROOT/scene01/{real,attack}/*.{mp4,mov}, boxes in a .face beside each; ROOT/{train,test}_sub_list.txt says who."""
    if split not in ("train", "test"):
        raise _no_split(split, ("train", "test"))
    listed = Path(root) / f"{split}_sub_list.txt"
    if not listed.is_file():
        raise FileNotFoundError(f"there is no {listed}: MSU-MFSD says there who belongs to {split}")
    wanted = {int(number) for number in listed.read_text(encoding="ascii").split()}
    clips = []
    for path, found in _matching(
        _folder(root, {split: "scene01"}, split), r"(?:real|attack)_client(\d+)_[^_]+_SD_(?:[^_]+_(photo|video)_)?.*"
    ):
        if int(found[1]) in wanted:
            kind = "live" if found[2] is None else {"photo": "print", "video": "replay"}[found[2]]
            clips.append(_video(path, kind, str(int(found[1])), _left_top_right_bottom, path.with_suffix(".face")))
    return clips


def siw(root: Path | str, split: str) -> list[Clip]:
    """ROOT/{Train,Test}/{live,spoof}/SUBJECT/SUBJECT-SENSOR-KIND-MEDIUM-SESSION.mov, boxes in a .face beside each.

    Kinds: 1 live, 2 print, 3 replay.
    """
    folder = _folder(root, {"train": "Train", "test": "Test"}, split)
    kinds = {"1": "live", "2": "print", "3": "replay"}
    return [
        _video(path, kinds[found[2]], found[1], _left_top_right_bottom, path.with_suffix(".face"))
        for path, found in _matching(folder, r"(\d+)-\d+-([123])-\d+-\d+")
    ]


LAYOUTS: dict[str, Callable[[Path | str, str], list[Clip]]] = {
    "oulu-npu": oulu_npu,
    "casia-mfsd": casia_mfsd,
    "replay-attack": replay_attack,
    "msu-mfsd": msu_mfsd,
    "siw": siw,
}
SIGNS = {  # a folder in it, by which a layout is known
    "oulu-npu": "Train_files",
    "casia-mfsd": "train_release",
    "replay-attack": "devel",
    "msu-mfsd": "scene01",
    "siw": "Train/spoof",
}
WITH_DEV = frozenset({"oulu-npu", "replay-attack"})  # the others have train and test


def layout_of(root: Path) -> str | None:
    """The layout of a folder that holds one of the published sets."""
    return next((name for name, sign in SIGNS.items() if (root / sign).is_dir()), None)


def live_and_spoof(
    root: Path | str, live: str, spoof: Mapping[str, str], *, subjects: str = "folder", stills: str = "single"
) -> list[Clip]:
    """Plain folders of stills or videos: ROOT/``live`` and, for each kind of attack, ROOT/``spoof[kind]``.

    ``subjects``: "folder" if files lie in a sub-folder for each subject, "unknown" if every recording is taken for
    another person's. ``stills``: "single" if each is a recording by itself, "sequence" if those of a folder whose names
    differ in the last number only belong together.
    """
    if subjects not in ("folder", "unknown") or stills not in ("single", "sequence"):
        raise ValueError(
            f"subjects is 'folder' or 'unknown', stills 'single' or 'sequence', not {subjects!r}, {stills!r}"
        )
    clips = []
    for kind, name in {"live": live, **spoof}.items():
        if kind not in ATTACKS:
            raise ValueError(f"there is no attack {kind!r}: kinds are {', '.join(ATTACKS[1:])}")
        folder = _folder(root, {kind: name}, kind)
        for path in _files(folder, STILLS | VIDEOS):
            below = path.relative_to(root).with_suffix("")
            recording = str(below)
            if stills == "sequence" and _is_still(path):
                recording = re.sub(r"[^A-Za-z0-9]*\d+$", "", recording)
            if subjects == "folder" and path.parent == folder:
                raise ValueError(f"{path} lies in no subject's folder: move it, or say subjects='unknown'")
            subject = path.relative_to(folder).parts[0] if subjects == "folder" else recording
            clips.append(Clip(path, kind, subject, recording))
    return clips


# ---- files

_SHOWN = {"photo": "display", "video": "replay"}  # on a screen


def _folder(root: Path | str, names: Mapping[str, str], split: str) -> Path:
    if split not in names:
        raise _no_split(split, tuple(names))
    folder = Path(root) / names[split]
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    return folder


def _is_still(path: Path) -> bool:
    return path.suffix.lower() in STILLS


def _no_split(split: str, there: tuple[str, ...]) -> ValueError:
    remedy = ": hold_out gives some of the train subjects" if split == "dev" else ""
    return ValueError(f"this set has no {split!r} split, only {', '.join(there)}{remedy}")


def _files(folder: Path, suffixes: frozenset[str]) -> list[Path]:
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in suffixes and not p.name.startswith("."))
    if not found:
        raise ValueError(f"{folder} holds no {', '.join(sorted(suffixes))} files")
    return found


def _matching(folder: Path, pattern: str) -> list[tuple[Path, re.Match[str]]]:
    """Videos below the folder; a name that the layout does not know is refused, for it could be anything."""
    matched = []
    for path in _files(folder, VIDEOS):
        found = re.fullmatch(pattern, path.stem)
        if found is None:
            raise ValueError(f"{path} is not named as in this set: expected a name like {pattern}")
        matched.append((path, found))
    return matched


def _video(path: Path, attack: str, subject: str, parse: Callable[[Path], Boxes], boxes: Path) -> Clip:
    return Clip(path, attack, subject, str(path), partial(parse, boxes) if boxes.is_file() else None)


def _rows(path: Path, at_least: int) -> list[list[float]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        fields = line.replace(",", " ").split()
        if not fields:
            continue
        try:
            rows.append([float(field) for field in fields])
        except ValueError as reason:
            raise BrokenVideo(f"{path}, line {number}: {reason}") from reason
        if len(fields) < at_least:
            raise BrokenVideo(f"{path}, line {number}: {len(fields)} numbers, at least {at_least} are needed")
    return rows


def _left_top_width_height(path: Path) -> Boxes:
    """Lines of: frame, left, top, width, height; width 0 where no face was found."""
    return {int(f): (x, y, x + w, y + h) for f, x, y, w, h in (row[:5] for row in _rows(path, 5)) if w > 0 and h > 0}


def _left_top_right_bottom(path: Path) -> Boxes:
    """Lines of: [frame,] left, top, right, bottom[, eyes]; zeros where no face was found."""
    boxes: dict[int, Box] = {}
    for number, row in enumerate(_rows(path, 4)):
        frame, (left, top, right, bottom) = (number, row[:4]) if len(row) == 4 else (int(row[0]), row[1:5])
        if right > left and bottom > top:
            boxes[frame] = (left, top, right, bottom)
    return boxes


def _eye_boxes(path: Path) -> Boxes:
    """Lines of: frame, x and y of one eye, x and y of the other; a face is taken as 2.4 eye distances wide and high."""
    boxes: dict[int, Box] = {}
    for frame, ax, ay, bx, by in (row[:5] for row in _rows(path, 5)):
        apart = ((ax - bx) ** 2 + (ay - by) ** 2) ** 0.5
        if apart > 0:
            x, y = (ax + bx) / 2, (ay + by) / 2 + 0.35 * apart  # the middle of a face lies below the eyes
            boxes[int(frame)] = (x - 1.2 * apart, y - 1.2 * apart, x + 1.2 * apart, y + 1.2 * apart)
    return boxes
