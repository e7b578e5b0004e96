"""Faces from videos: which frames are taken, and which part of them, as explicit settings. Needs opencv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the frame
Boxes = Mapping[int, Box]  # by number of the frame, from 0
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class BrokenVideo(ValueError):
    """A video that cannot be decoded, or whose frames are not what its boxes say."""


@dataclass(frozen=True)
class Sampling:
    """Which frames of a recording count, and what is cut out of them. Results depend on it: print it beside them."""

    frames: int = 8  # of each video, evenly spaced over it
    crop: str = "box"  # box: around the face box; centre: the central square of the frame
    margin: float = 1.3  # side of the crop, in longer sides of the box

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ValueError(f"frames must be at least 1, not {self.frames}")
        if self.crop not in ("box", "centre"):
            raise ValueError(f"crop is 'box' or 'centre', not {self.crop!r}")
        if not 0.5 <= self.margin <= 4:
            raise ValueError(f"margin is the crop's side in sides of the box, 0.5 … 4, not {self.margin}")

    def __str__(self) -> str:
        where = f"{self.margin:g} × the face box" if self.crop == "box" else "central square"
        return f"{self.frames} frames a video, evenly spaced; {where}"


def read_video(path: Path, size: int, sampling: Sampling, boxes: Callable[[], Boxes] | None = None) -> Pixels:
    """RGB frames uint8 [at most ``sampling.frames``, 3, size, size] of one video; a shorter one gives all it has."""
    if sampling.crop == "box" and boxes is None:
        raise BrokenVideo(f"{path} has no face boxes beside it: add them, or take Sampling(crop='centre')")
    known = boxes() if boxes is not None and sampling.crop == "box" else {}
    if boxes is not None and sampling.crop == "box" and not known:
        raise BrokenVideo(f"no face was found in any frame of {path}, says the file beside it: leave the video out")
    opencv = _opencv()
    frames = []
    for number, frame in _chosen_frames(opencv, path, sampling.frames):
        box = _nearest(known, number) if known else _central(frame)
        frames.append(cut_out(frame, box, sampling.margin if known else 1.0, size))
    return np.stack(frames)


def cut_out(frame: Pixels, box: Box, margin: float, size: int) -> Pixels:
    """The square around ``box`` of a frame [H, W, 3], as [3, size, size]; edges are repeated past themselves."""
    left, top, right, bottom = box
    if not (right > left and bottom > top):
        raise BrokenVideo(f"a face box runs from left to right and from top to bottom, not {box}")
    side = max(2, round(margin * max(right - left, bottom - top)))
    x, y = round((left + right - side) / 2), round((top + bottom - side) / 2)
    rows = np.clip(np.arange(y, y + side), 0, frame.shape[0] - 1)
    columns = np.clip(np.arange(x, x + side), 0, frame.shape[1] - 1)
    opencv = _opencv()
    square = np.ascontiguousarray(frame[rows[:, None], columns[None]])
    method = opencv.INTER_AREA if side > size else opencv.INTER_LINEAR
    small: Pixels = opencv.resize(square, (size, size), interpolation=method)
    return np.ascontiguousarray(small.transpose(2, 0, 1))


def evenly(count: int, wanted: int) -> list[int]:
    """Numbers of at most ``wanted`` different frames out of ``count``, each in the middle of its share."""
    wanted = min(wanted, count)
    return [int((i + 0.5) * count / wanted) for i in range(wanted)]


def _chosen_frames(opencv: ModuleType, path: Path, wanted: int) -> list[tuple[int, Pixels]]:
    """Frames are read in order: seeking is not exact in the codecs of these sets."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no video {path}")
    video = opencv.VideoCapture(str(path))
    try:
        stated = int(video.get(opencv.CAP_PROP_FRAME_COUNT))
        if not video.isOpened() or stated < 1:
            raise BrokenVideo(f"{path} cannot be decoded: remove it, or convert it")
        frames = []
        take = set(evenly(stated, wanted))
        for number in range(max(take) + 1):
            if not video.grab():
                break  # the header promised more frames than there are
            if number in take:
                _, frame = video.retrieve()
                frames.append((number, opencv.cvtColor(frame, opencv.COLOR_BGR2RGB)))
    finally:
        video.release()
    if not frames:
        raise BrokenVideo(f"{path} cannot be decoded: none of its {stated} frames came out; remove it, or convert it")
    return frames


def _nearest(boxes: Boxes, frame: int) -> Box:
    """The box of this frame, or of the nearest one that has one, the earlier of two."""
    return boxes[min(boxes, key=lambda number: (abs(number - frame), number))]


def _central(frame: Pixels) -> Box:
    height, width = frame.shape[:2]
    side = min(height, width)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def _opencv() -> ModuleType:
    try:
        return import_module("cv2")
    except ImportError as reason:
        raise ImportError("reading videos needs opencv: pip install 'coalface[video]'") from reason
