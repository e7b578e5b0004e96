"""Who is filmed where and by what, and how things move: a few numbers for each frame, as functions of its place.

A recording has a room (light and background), a camera, a person at a sitting and, for an attack, a paper or a screen.
All but the movement is fixed for the recording. Worked out on the CPU in float64, as ``portrait.sitting`` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import torch
from torch import Tensor

from coalface.data.portrait.counter import keys, uniforms
from coalface.data.portrait.sitting import DRAWS, Conditions, sit
from coalface.data.spoof.domains import DOMAINS, Camera, Domain, Paper, Screen

Columns = dict[str, Tensor]  # float32 [n] on the CPU

# Streams of the counter, apart from those of synthetic.py and of the people.
_SITTING, _OTHER_SITTING, _ROOM, _CHOICE, _PATH, _MEDIUM, _CAMERA = range(2_000, 2_007)
_MOVING = (
    "r00", "r01", "r02", "r10", "r11", "r12", "r20", "r21", "r22", "zoom", "shift_x", "shift_y", "nearness",
    "body_turn", "smile", "mouth_open", "smirk", "brow_raise", "frown", "lids", "gaze_x", "gaze_y",
)  # fmt: skip
LIGHT = (
    "key_x", "key_y", "key_z", "key", "fill", "key_warm", "fill_warm", "edge_x", "edge_y", "edge", "shadow",
)  # fmt: skip
BACKGROUND = (
    "gradient", "blobs", "stripes", "stripe_x", "stripe_y", "stripe_at",
    *(f"{part}_{colour}" for part in ("back", "other") for colour in ("red", "green", "blue")),
    *(f"blob{i}_{axis}" for i in range(6) for axis in "xyr"),
)  # fmt: skip


@dataclass(frozen=True)
class Shots:
    """n frames to be drawn, int64 [n] each, on the CPU."""

    subject: Tensor
    video: Tensor  # of this subject
    frame: Tensor
    attack: Tensor  # index into ATTACKS

    def __len__(self) -> int:
        return len(self.subject)

    def __getitem__(self, rows: slice | Tensor) -> Shots:
        return Shots(*(getattr(self, f.name)[rows] for f in fields(self)))


def sitting(name: str, shots: Shots, moving: bool, seed: int) -> Columns:
    """The person of each shot in the room of the recording, with no camera yet; ``moving`` from frame to frame."""
    domain = DOMAINS[name]
    conditions = _conditions(domain)
    start = uniforms(keys(seed, _SITTING, shots.subject, shots.video), DRAWS)
    end = uniforms(keys(seed, _OTHER_SITTING, shots.subject, shots.video), DRAWS)
    still, moved = sit(start, conditions), start
    if moving:
        path = uniforms(keys(seed, _PATH, shots.subject, shots.video), 2)
        turn = 2 * math.pi * (path[:, 0] + (0.12 + 0.15 * path[:, 1]) * shots.frame)
        moved = start + (0.4 + 0.4 * turn.sin()).unsqueeze(1) * (end - start)
    pose = sit(moved, conditions)
    return still | {part: pose[part] for part in _MOVING} | room(name, shots, seed, LIGHT + BACKGROUND)


def room(name: str, shots: Shots, seed: int, parts: Sequence[str]) -> Columns:
    """These numbers of the room in which each recording was made; all splits of a domain share its rooms."""
    domain = DOMAINS[name]
    chosen = _pick(choice(shots, seed)[:, 0], domain.rooms)
    drawn = uniforms(keys(seed, _ROOM, ord(name), chosen), DRAWS)
    numbers = sit(drawn, _conditions(domain))
    return {part: numbers[part] for part in parts}


def _conditions(domain: Domain) -> Conditions:
    return Conditions(
        pose=domain.pose,
        expression=domain.expression,
        light=0.9 if domain.extra_light else 0.35,
        occlusion=0.4,
        background=1.0 if domain.complex_background else 0.3,
    )


def choice(shots: Shots, seed: int) -> Tensor:
    """Uniform numbers [n, 5] of each recording: room, camera, paper, screen, whether held in the hand."""
    return uniforms(keys(seed, _CHOICE, shots.subject, shots.video), 5)


def camera(name: str, shots: Shots, seed: int) -> Columns:
    """The camera of each recording: the numbers of ``portrait.camera.develop``, and ``pixels`` and ``sharpen``."""
    domain = DOMAINS[name]
    model = _rows(domain.cameras, _pick(choice(shots, seed)[:, 1], len(domain.cameras)))
    u = uniforms(keys(seed, _CAMERA, shots.subject, shots.video), 6)
    shake = uniforms(keys(seed, _CAMERA, shots.subject, shots.video, shots.frame), 2)
    focus = 0.45 / model["pixels"] + 0.004 * u[:, 0] ** 2
    warm = model["warm"] + 0.03 * (2 * u[:, 1] - 1)
    numbers = {
        "blur_x": focus + 0.008 * (shake[:, 0] - 0.7).clamp(min=0),
        "blur_y": focus + 0.008 * (shake[:, 1] - 0.7).clamp(min=0),
        "compression": model["compression"] * (0.6 + 0.8 * u[:, 2]),
        "noise": model["noise"] * (0.6 + 0.8 * u[:, 3]),
        "exposure": model["exposure"] * (0.85 + 0.3 * u[:, 4]),
        "contrast": model["contrast"] * (0.94 + 0.12 * u[:, 5]),
        "white_red": 1 + warm,
        "white_green": torch.ones_like(warm),
        "white_blue": 1 - warm,
    } | {same: model[same] for same in ("lift", "curve", "saturation", "sharpen", "pixels")}
    return {part: number.float() for part, number in numbers.items()}


def good_camera(shots: Shots, seed: int) -> Columns:
    """What took the photograph or video that is presented: decent, for attackers choose their material."""
    u = uniforms(keys(seed, _CAMERA, shots.subject, shots.video), 9)[:, 6:]
    none, one = torch.zeros(len(u), dtype=torch.float64), torch.ones(len(u), dtype=torch.float64)
    numbers = {
        "blur_x": 0.003 + 0.002 * u[:, 0], "blur_y": 0.003 + 0.002 * u[:, 0], "compression": 0.01 + 0.02 * u[:, 1],
        "noise": 0.006 * one, "exposure": 0.9 + 0.2 * u[:, 2], "contrast": one, "lift": none, "curve": none,
        "white_red": one, "white_green": one, "white_blue": one, "saturation": one,
    }  # fmt: skip
    return {part: number.float() for part, number in numbers.items()}


def medium(name: str, shots: Shots, seed: int) -> Columns:
    """How the paper or the screen of each attack stands before the camera, and how the hand shakes it."""
    domain = DOMAINS[name]
    u = uniforms(keys(seed, _MEDIUM, shots.subject, shots.video), 28)
    s = 2 * u - 1
    held = choice(shots, seed)[:, 4].lt(domain.held).double()
    time = shots.frame.double()

    def shake(column: int, strength: float) -> Tensor:
        """Two slow waves with this recording's own rates."""
        slow, fast = 0.05 + 0.1 * u[:, column], 0.2 + 0.2 * u[:, column + 1]
        swing = (2 * math.pi * (slow * time + u[:, column + 1])).sin() + 0.4 * (2 * math.pi * fast * time).sin()
        return held * strength * swing

    turn = 0.05 * s[:, 0] + shake(1, 0.02)
    low, high = domain.reach
    photo = low + (high - low) * u[:, 3]
    numbers = {
        "photo": photo, "reach": photo * (1 + shake(4, 0.01)),
        "cos": turn.cos(), "sin": turn.sin(),
        "at_x": 0.05 * s[:, 6] + shake(7, 0.02), "at_y": 0.05 * s[:, 9] + shake(10, 0.02),
        "tilt_x": 0.10 * s[:, 12] + shake(13, 0.015), "tilt_y": 0.10 * s[:, 15] + shake(16, 0.015),
        "bend": domain.bend * s[:, 18] + shake(19, 0.05 * domain.bend),
        "glare_x": 1.2 * s[:, 21], "glare_y": 1.2 * s[:, 22], "glare": u[:, 23] ** 2,
        "moire": 0.3 + 0.7 * u[:, 24], "phase": u[:, 25], "held": held,
        "finger_y": 0.7 * s[:, 26], "finger_tone": u[:, 27],
        "roll": u[:, 25] + 0.23 * time,
    }  # fmt: skip
    return {part: number.float() for part, number in numbers.items()}


def paper(name: str, shots: Shots, seed: int) -> Columns:
    """The paper and printer of each recording, named as in ``Paper``."""
    papers = DOMAINS[name].papers
    return _floats(_rows(papers, _pick(choice(shots, seed)[:, 2], len(papers))))


def screen(name: str, shots: Shots, seed: int) -> Columns:
    """The screen of each recording, named as in ``Screen``."""
    screens = DOMAINS[name].screens
    return _floats(_rows(screens, _pick(choice(shots, seed)[:, 3], len(screens))))


def _pick(u: Tensor, count: int) -> Tensor:
    return (u * count).long().clamp(max=count - 1)


def _rows(models: Sequence[Camera] | Sequence[Paper] | Sequence[Screen], chosen: Tensor) -> Columns:
    table = torch.tensor([astuple(model) for model in models], dtype=torch.float64)[chosen]
    return {f.name: column for f, column in zip(fields(models[0]), table.unbind(1), strict=True)}


def _floats(columns: Columns) -> Columns:
    return {part: column.float() for part, column in columns.items()}
