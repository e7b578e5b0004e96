"""Recordings from nothing: synthetic people filmed live, and attacks on them, in five domains like C, I, M, O and S.

A live frame is the portrait's light through the domain's camera. An attack is a photograph or video of the subject,
taken with a decent camera in one of the domain's rooms, printed or shown on a screen, and filmed by the same cameras
as live people are. Every frame is a function of (seed, subject, video, frame); subjects of domains and splits differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.data.portrait.camera import develop
from coalface.data.portrait.counter import keys
from coalface.data.portrait.paint import blend
from coalface.data.portrait.people import Identities, draw_identities
from coalface.data.portrait.render import numbers, scene
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.stage import backdrop, lamps
from coalface.data.recordings import ATTACKS, DEPTH, Recordings
from coalface.data.spoof import filming
from coalface.data.spoof.cut import look_through
from coalface.data.spoof.domains import DOMAINS
from coalface.data.spoof.filming import BACKGROUND, LIGHT, Columns, Shots
from coalface.data.spoof.lens import film
from coalface.data.spoof.print_ import fingers, lit_sheet, printed
from coalface.data.spoof.screen import shown
from coalface.data.spoof.sheet import lay, within

__all__ = ["DOMAINS", "SPLITS", "draw_domain"]

SPLITS = ("train", "dev", "test")
SUBJECTS = 100_000  # at most, of one split of one domain
_NOISE, _PHOTO_NOISE, _TEXTURE = range(2_100, 2_103)
_FIRST_ATTACKER, _ATTACKERS = 50_000_000, 64  # whose eyes look through cut photographs
_PIXELS_AT_ONCE = {"cpu": 64 * 64 * 32, "cuda": 64 * 64 * 1024}


def draw_domain(
    name: str,
    split: str,
    subjects: int,
    videos: int,
    frames: int,
    size: int,
    seed: int,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Recordings:
    """Live recordings and attacks of one domain: ``videos`` of each for every subject, each of ``frames`` frames.

    The domain's kinds of attack take turns, and begin with another one for each subject. Recordings come subject by
    subject, live ones first. ``progress`` is called with (frames done, frames in all).
    """
    shots = _shots(name, split, subjects, videos, frames)
    if size < 8:
        raise ValueError(f"a face needs at least 8 pixels, not {size}")
    first = int(shots.subject[0])
    people = draw_identities(first, subjects, seed, device)
    images = torch.empty(len(shots), 3, size, size, dtype=torch.uint8, device=device)
    depth = torch.zeros(len(shots), DEPTH, DEPTH, dtype=torch.uint8, device=device)
    at_once = max(1, _PIXELS_AT_ONCE["cuda" if images.is_cuda else "cpu"] // size**2)
    done = 0
    for kind in shots.attack.unique().tolist():
        for rows in (shots.attack == kind).nonzero().squeeze(1).split(at_once):
            some = shots[rows]
            who = people[(some.subject - first).to(device)]
            here = rows.to(device)
            if ATTACKS[kind] == "live":
                images[here], depth[here] = _live(name, some, who, size, seed)
            else:
                images[here] = _attack(name, ATTACKS[kind], some, who, size, seed)
            done += len(rows)
            if progress is not None:
                progress(done, len(shots))
    video = shots.subject * (2 * videos) + shots.video
    return Recordings(images, shots.attack.to(device), depth, video.to(device), shots.subject.to(device))


def _shots(name: str, split: str, subjects: int, videos: int, frames: int) -> Shots:
    if name not in DOMAINS or split not in SPLITS:
        raise ValueError(f"there is no {name}/{split}: domains are {', '.join(DOMAINS)}, splits {', '.join(SPLITS)}")
    if not 1 <= subjects <= SUBJECTS or videos < 1 or frames < 1:
        raise ValueError(f"need 1 … {SUBJECTS} subjects, videos ≥ 1, frames ≥ 1; got {subjects}, {videos}, {frames}")
    first = (list(DOMAINS).index(name) * len(SPLITS) + SPLITS.index(split)) * SUBJECTS
    subject, video, frame = torch.meshgrid(
        torch.arange(subjects), torch.arange(2 * videos), torch.arange(frames), indexing="ij"
    )
    kinds = torch.tensor([ATTACKS.index(attack) for attack in DOMAINS[name].attacks])
    attack = torch.where(video < videos, 0, kinds[(subject + video) % len(kinds)])
    return Shots((subject + first).flatten(), video.flatten(), frame.flatten(), attack.flatten())


def _live(name: str, shots: Shots, who: Identities, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images and depth maps of people before the camera."""
    sitting = filming.sitting(name, shots, True, seed) | filming.camera(name, shots, seed)
    sitting["zoom"] = sitting["zoom"] * DOMAINS[name].loose
    f = numbers(who, sitting)
    light, depth = scene(who, f, size)
    return film(f, light, _keys(shots, seed, _NOISE, light.device)), _depth_map(depth)


def _attack(name: str, kind: str, shots: Shots, who: Identities, size: int, seed: int) -> Tensor:
    device = who.index.device
    parts = [
        filming.medium(name, shots, seed), filming.camera(name, shots, seed), filming.room(name, shots, seed, LIGHT),
    ]  # fmt: skip
    m = _numbers({part: column for columns in parts for part, column in columns.items()}, device)
    if kind in ("display", "replay"):
        m = m | {"bend": torch.zeros_like(m["bend"])}
    sheet, lamp = lay(m, size), lamps(m)
    photo, taken = _photograph(name, shots, who, kind == "replay", size, seed)
    behind = _behind(name, shots, size, seed, device)
    if kind in ("print", "cut"):
        paper = _numbers(filming.paper(name, shots, seed), device)
        light = printed(m, paper, lamp, sheet, photo, _keys(shots, seed, _TEXTURE, device, of_frame=False))
        if kind == "cut":
            light = look_through(light, sheet, m, taken, *_attackers(name, shots, m, seed, device))
        margin = paper["margin"]
    else:
        screen = _numbers(filming.screen(name, shots, seed), device)
        light, margin = shown(m, screen, lamp, sheet, photo), screen["frame"]
    light = blend(light, 1 - within(sheet, margin), behind)
    cover, skin = fingers(m, sheet, margin)
    light = blend(light, cover, lit_sheet(m, lamp, sheet, skin))
    return film(m, light, _keys(shots, seed, _NOISE, device))


def _photograph(name: str, shots: Shots, who: Identities, moving: bool, size: int, seed: int) -> tuple[Tensor, Numbers]:
    """What the attacker shows: photographs in 0 … 1, [n, 3, h, w], larger than the crop, and their numbers.

    Frames that show the same photograph share one: it is drawn once.
    """
    place = torch.stack([shots.subject, shots.video, shots.frame if moving else torch.zeros_like(shots.frame)])
    (subject, video, frame), which = place.unique(dim=1, return_inverse=True)
    first = torch.zeros(len(subject), dtype=torch.int64).scatter_(0, which, torch.arange(len(which)))  # any will do
    taken = Shots(subject, video, frame, shots.attack[first])
    sitting = filming.sitting(name, taken, moving, seed) | filming.good_camera(taken, seed)
    sitting["zoom"] = sitting["zoom"] * (DOMAINS[name].loose * filming.medium(name, taken, seed)["photo"])
    people = who[first.to(who.index.device)]
    f = numbers(people, sitting)
    light, _ = scene(people, f, -(-size * 3 // 16) * 8)  # 1½ times as fine as the crop
    photo = develop(f, light, _keys(taken, seed, _PHOTO_NOISE, light.device)).float() / 255
    which = which.to(light.device)
    return photo[which], {part: number[which] for part, number in f.items()}


def _behind(name: str, shots: Shots, size: int, seed: int, device: torch.device) -> Tensor:
    """The room around the paper or the screen, [n, 3, H, W]."""
    f = _numbers(filming.room(name, shots, seed, BACKGROUND), device)
    return backdrop(f | {"zoom": f["stripe_at"]}, size)


def _attackers(name: str, shots: Shots, m: Numbers, seed: int, device: torch.device) -> tuple[Identities, Numbers]:
    """Who looks through the holes of cut photographs, in the light of the recording."""
    attacker = (shots.subject + shots.video) % _ATTACKERS
    who = draw_identities(_FIRST_ATTACKER, _ATTACKERS, seed, device)[attacker.to(device)]
    looking = Shots(_FIRST_ATTACKER + attacker, shots.video, shots.frame, shots.attack)
    f = numbers(who, filming.sitting(name, looking, True, seed) | filming.camera(name, shots, seed))
    return who, f | {part: m[part] for part in LIGHT} | {"glasses": torch.zeros_like(f["glasses"])}


def _depth_map(depth: Tensor) -> Tensor:
    """Depth [n, H, W] as uint8 [n, 32, 32]: the mean over each cell, the nearest cell of a face 255."""
    cells = F.adaptive_avg_pool2d(depth[:, None], DEPTH)[:, 0]
    return (cells / cells.amax((1, 2), keepdim=True).clamp(min=1e-6) * 255 + 0.5).to(torch.uint8)


def _numbers(columns: Columns, device: torch.device) -> Numbers:
    return {part: column.to(device).view(-1, 1, 1) for part, column in columns.items()}


def _keys(shots: Shots, seed: int, stream: int, device: torch.device, of_frame: bool = True) -> Tensor:
    """Names of noise, int64 [n]: for each frame, or one for all frames of a recording."""
    frame = (shots.frame,) if of_frame else ()
    return torch.from_numpy(keys(seed, stream, shots.subject, shots.video, *frame).view(np.int64)).to(device)
