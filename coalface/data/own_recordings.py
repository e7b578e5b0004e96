"""What a data centre holds on its own machine: recordings in folders, or as one file of frames with their depth."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from coalface.data.recordings import ATTACKS, Recordings
from coalface.data.spoof_readers import LAYOUTS, live_and_spoof, read_clips
from coalface.data.video_frames import Sampling


def read_own(place: Path, size: int, layout: str = "", frames: int = 10) -> Recordings:
    """A centre's training recordings, as frames of size×size.

    ``place`` is a file that ``save`` wrote; or the root of a published set, in its ``layout``; or a folder with
    sub-folders live and, for the attacks there are, print, cut, display and replay, of stills and videos.
    """
    if place.suffix == ".safetensors":
        return _loaded(place, size)
    if layout:
        if layout not in LAYOUTS:
            raise ValueError(f"no layout {layout!r}; there are {', '.join(LAYOUTS)}, or none for plain folders")
        clips = LAYOUTS[layout](place, "train")
    else:
        spoof = {kind: kind for kind in ATTACKS[1:] if (place / kind).is_dir()}
        if not spoof:
            raise ValueError(f"{place} holds no attacks: it needs sub-folders live and {' or '.join(ATTACKS[1:])}")
        clips = live_and_spoof(place, "live", spoof, subjects="unknown")
    return read_clips(clips, size, Sampling(frames=frames))


def save(recordings: Recordings, file: Path) -> None:
    """Frames that are decoded already, with whatever depth maps they came with."""
    columns = {field.name: getattr(recordings, field.name).cpu().contiguous() for field in fields(recordings)}
    safetensors.torch.save_file(columns, file)


def _loaded(file: Path, size: int) -> Recordings:
    try:
        recordings = Recordings(**safetensors.torch.load_file(file))
    except (SafetensorError, TypeError) as error:
        raise ValueError(f"{file} is not a file of recordings: {error}") from error
    if recordings.size != size:
        raise ValueError(f"{file} holds frames of {recordings.size} pixels, and the detector takes {size}")
    return recordings
