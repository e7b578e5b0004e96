from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from coalface.data.attacks import SPLITS, draw_domain
from coalface.data.recordings import ATTACKS
from coalface.data.spoof.cut import eye_holes, eyes
from coalface.data.spoof.domains import DOMAINS
from coalface.data.spoof.filming import Shots, camera, medium, room, sitting
from coalface.data.spoof.sheet import beat, lay, within

FLAT = {
    "reach": 1.0, "cos": 1.0, "sin": 0.0, "at_x": 0.0, "at_y": 0.0, "tilt_x": 0.0, "tilt_y": 0.0, "bend": 0.0,
}  # fmt: skip


def numbers(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value).view(1, 1, 1) for name, value in (FLAT | values).items()}


def shots(videos: int = 4, frames: int = 1, subjects: int = 5) -> Shots:
    subject, video, frame = torch.meshgrid(
        torch.arange(subjects), torch.arange(videos), torch.arange(frames), indexing="ij"
    )
    return Shots(subject.flatten(), video.flatten(), frame.flatten(), torch.ones_like(frame).flatten())


def test_domains_follow_table_one_of_the_paper() -> None:
    table = {name: (d.extra_light, d.complex_background, d.attacks, len(d.screens)) for name, d in DOMAINS.items()}
    assert table == {
        "C": (False, True, ("print", "cut", "replay"), 1),
        "I": (True, True, ("print", "display", "replay"), 2),
        "M": (False, True, ("print", "replay"), 2),
        "O": (True, False, ("print", "display", "replay"), 2),
        "S": (True, True, ("print", "display", "replay"), 5),
    }


def test_what_is_drawn_is_what_was_asked_for() -> None:
    drawn = draw_domain("C", "train", subjects=3, videos=3, frames=2, size=16, seed=0)
    assert len(drawn) == 3 * 6 * 2 and drawn.size == 16
    assert drawn.live.tolist() == ([True] * 6 + [False] * 6) * 3  # subject by subject, live ones first
    assert len(drawn.video.unique()) == 18 and drawn.video.bincount()[drawn.video[0] :].unique().tolist() == [2]
    for subject in drawn.subject.unique():  # three attacks on each: one of every kind
        mine = drawn.select((drawn.subject == subject) & ~drawn.live)
        assert sorted(ATTACKS[k] for k in mine.attack[::2].tolist()) == ["cut", "print", "replay"]


def test_the_same_arguments_give_the_same_bytes_and_another_seed_others() -> None:
    once, twice = (draw_domain("S", "dev", 2, 2, 1, 16, seed=3) for _ in range(2))
    for f in fields(once):
        assert torch.equal(getattr(once, f.name), getattr(twice, f.name)), f.name
    assert not torch.equal(once.images, draw_domain("S", "dev", 2, 2, 1, 16, seed=4).images)


def test_a_frame_does_not_depend_on_what_else_is_drawn() -> None:
    many = draw_domain("C", "test", subjects=3, videos=3, frames=2, size=24, seed=1)
    few = draw_domain("C", "test", subjects=2, videos=3, frames=1, size=24, seed=1)
    same = many.select(torch.arange(0, 24, 2))
    assert torch.equal(few.subject, same.subject) and torch.equal(few.attack, same.attack)
    assert int((few.images.int() - same.images.int()).abs().max()) <= 1
    assert torch.equal(few.depth, same.depth)


def test_subjects_of_splits_and_domains_are_different_people() -> None:
    seen: set[int] = set()
    for name in DOMAINS:
        for split in SPLITS:
            subjects = set(draw_domain(name, split, 2, 1, 1, 8, seed=0).subject.tolist())
            assert len(subjects) == 2 and not subjects & seen
            seen |= subjects


def test_depth_is_round_for_live_people_and_zero_for_attacks() -> None:
    drawn = draw_domain("O", "train", subjects=3, videos=2, frames=1, size=64, seed=0)
    assert int(drawn.depth[~drawn.live].max()) == 0
    depth = drawn.depth[drawn.live].float()
    assert depth.amax((1, 2)).tolist() == [255] * 6
    middle, corner = depth[:, 12:22, 12:20].mean(), depth[:, :3, :3].mean()
    assert middle > 180 and corner < 10
    nose, cheek = depth[:, 17:20, 15:17].mean(), depth[:, 17:20, 8:10].mean()
    assert nose > cheek + 20


def test_fixed_photographs_stay_still_and_people_and_replays_move() -> None:
    drawn = draw_domain("I", "train", subjects=12, videos=3, frames=2, size=64, seed=0)
    fixed = medium("I", Shots(drawn.subject, drawn.video % 6, torch.zeros_like(drawn.video), drawn.attack), 0)
    still = (fixed["held"] == 0)[::2]

    def change(kind: str) -> float:
        chosen = (drawn.attack[::2] == ATTACKS.index(kind)) & (still if kind != "live" else torch.tensor(True))
        smooth = torch.nn.functional.avg_pool2d(drawn.images.float(), 8)  # noise averaged away
        return float((smooth[1::2] - smooth[::2]).abs().mean((1, 2, 3))[chosen].mean())

    assert change("print") < 1.0  # noise of 6 grey levels over 8 × 8 pixels leaves 6 / 8
    assert change("live") > 1.5 * change("print") and change("replay") > 1.1 * change("display")


def test_splits_of_a_domain_share_cameras_and_rooms_and_domains_do_not() -> None:
    rooms = {name: set(room(name, shots(9, 1, 9), 0, ["back_red"])["back_red"].tolist()) for name in "CO"}
    assert len(rooms["C"]) == DOMAINS["C"].rooms and not rooms["C"] & rooms["O"]
    assert set(camera("I", shots(), 0)["pixels"].tolist()) == {64.0}
    assert set(camera("O", shots(9), 0)["pixels"].tolist()) == {380.0, 320.0, 260.0}


def test_only_pose_and_expression_move_within_a_recording() -> None:
    one = Shots(torch.zeros(4).long(), torch.zeros(4).long(), torch.arange(4), torch.zeros(4).long())
    numbers_ = sitting("S", one, moving=True, seed=0)
    moving = {name for name, values in numbers_.items() if len(values.unique()) > 1}
    assert {"r00", "shift_x", "smile", "lids"} <= moving
    assert not moving & {"key_x", "fill", "back_red", "cloth_red", "beard_growth", "hat"}
    still = sitting("S", one, moving=False, seed=0)
    assert all(len(values.unique()) == 1 for values in still.values())


def test_a_flat_sheet_before_the_camera_is_the_picture_itself() -> None:
    sheet = lay(numbers(), 8)
    assert torch.equal(sheet.p, sheet.x) and torch.equal(sheet.q, sheet.y)
    assert sheet.x[0, 0].tolist() == [-0.875, -0.625, -0.375, -0.125, 0.125, 0.375, 0.625, 0.875]
    assert float(within(sheet).min()) == 1.0
    farther = lay(numbers(reach=0.5), 8)  # the photograph fills the middle half of the picture
    assert within(farther)[0, 4].tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    assert within(farther, 0.5)[0, 4].tolist() == [0, 1, 1, 1, 1, 1, 1, 0]


def test_moire_is_the_difference_of_two_gratings() -> None:
    sheet = lay(numbers(), 64)
    # 203 lines over the picture before a sensor of 100 pixels: folded twice, 3 waves remain.
    seen = beat(torch.tensor(203.0).view(1, 1, 1), (1.0, 0.0), sheet, numbers(pixels=100.0))[0, 32]
    spectrum = torch.fft.rfft(seen).abs()
    assert int(spectrum.argmax()) == 3
    # 1.25 − 0.4 × 2.03 = 0.438 is left of the contrast, and a little less for 3 / 64 waves a pixel
    assert float(seen.abs().max()) == pytest.approx(0.438, abs=0.02)
    # Turned by 45°: 103 √2 lines are 103 along either side, and 3 remain along each.
    slanted = torch.tensor(103 * 2**0.5).view(1, 1, 1)
    seen = beat(slanted, (0.5**0.5, 0.5**0.5), sheet, numbers(pixels=100.0))[0]
    assert divmod(int(torch.fft.rfft2(seen).abs()[:33].argmax()), 33) == (3, 3)
    fine = beat(torch.tensor(40.0).view(1, 1, 1), (1.0, 0.0), sheet, numbers(pixels=100.0))
    assert float(fine[:, :, :-1].abs().max()) == 0.0  # the sensor sees 40 waves, 64 pixels cannot show them


def test_holes_are_where_the_eyes_are() -> None:
    turned = {f"r{i}{j}": float(i == j) for i in range(3) for j in range(3)}
    face = numbers(
        **turned, eye_height=-0.1, head_height=1.0, eye_gap=0.4, head_width=0.75, head_depth=0.9,
        shift_x=0.1, shift_y=0.0, zoom=2.0,
    )  # fmt: skip
    places = {name: round(float(value), 4) for name, value in eyes(face).items()}
    # eyes at ±0.3, moved by 0.1, in a picture that reaches to ±2
    assert places == {
        "left_x": -0.1, "right_x": 0.2, "left_y": -0.05, "right_y": -0.05, "wide": 0.1163, "high": 0.06,
    }  # fmt: skip
    cut, shade = eye_holes(lay(numbers(), 40), eyes(face))
    row, left, right, between = 19, 18, 23, 21  # y = −0.025; x = −0.075, 0.175, 0.075
    assert cut[0, row, [left, right, between]].tolist() == [1.0, 1.0, 0.0]
    assert float(shade.min()) < 0.9 and float(cut[0, 25:].max()) == 0.0


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no X/train"):
        draw_domain("X", "train", 1, 1, 1, 16, 0)
    with pytest.raises(ValueError, match="there is no C/valid"):
        draw_domain("C", "valid", 1, 1, 1, 16, 0)
    with pytest.raises(ValueError, match="got 1, 0, 1"):
        draw_domain("C", "train", 1, 0, 1, 16, 0)
    with pytest.raises(ValueError, match="at least 8 pixels"):
        draw_domain("C", "train", 1, 1, 1, 4, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_cpu_and_gpu_draw_the_same_frames() -> None:
    here, there = (draw_domain("C", "train", 2, 3, 1, 32, 0, device) for device in ("cpu", "cuda"))
    assert float((here.images.int() - there.images.cpu().int()).abs().float().mean()) < 0.05
    assert torch.equal(here.attack, there.attack.cpu())
