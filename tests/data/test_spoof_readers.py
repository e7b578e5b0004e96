"""Each layout with tiny videos: a frame's colour tells its number, its face is a white square where the box is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from coalface.data.recordings import ATTACKS, Recordings, hold_out
from coalface.data.spoof_readers import LAYOUTS, Clip, live_and_spoof, read_clips
from coalface.data.video_frames import BrokenVideo, Sampling, cut_out, evenly, read_video

cv2 = pytest.importorskip("cv2", reason="videos need opencv")

WIDTH, HEIGHT, FRAMES = 64, 48, 6
FACE = (20, 8, 44, 32)  # left, top, right, bottom
WHOLE = Sampling(frames=3, crop="box", margin=1.0)
CENTRE = Sampling(frames=3, crop="centre")


def write_video(path: Path, frames: int = FRAMES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    codec = "MJPG" if path.suffix == ".avi" else "mp4v"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*codec), 10, (WIDTH, HEIGHT))
    assert writer.isOpened()
    for number in range(frames):
        frame = np.full((HEIGHT, WIDTH, 3), 20 * number, dtype=np.uint8)
        frame[FACE[1] : FACE[3], FACE[0] : FACE[2]] = 255
        writer.write(frame)
    writer.release()
    return path


def write_boxes(path: Path, line: str, frames: int = FRAMES) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line.format(frame=number) + "\n" for number in range(frames)), encoding="ascii")


def summary(clips: list[Clip]) -> list[tuple[str, str, str]]:
    return sorted((clip.path.name, clip.attack, clip.subject) for clip in clips)


def oulu(root: Path) -> None:
    for kind in "12345":
        video = write_video(root / "Train_files" / f"1_3_07_{kind}.avi")
        write_boxes(video.with_suffix(".txt"), "{frame},27,16,37,16")  # 10 apart: a box of 24 around (32, 19.5)


def casia(root: Path) -> None:
    for name in ("1", "2", "3", "4", "5", "6", "7", "8", "HR_1", "HR_2", "HR_3", "HR_4"):
        write_video(root / "train_release" / "4" / f"{name}.avi")


def replay(root: Path) -> None:
    for name in (
        "devel/real/client003_session01_webcam_authenticate_adverse_1",
        "devel/attack/hand/attack_print_client003_session01_highdef_photo_adverse",
        "devel/attack/fixed/attack_mobile_client003_session01_mobile_photo_controlled",
        "devel/attack/fixed/attack_highdef_client004_session01_highdef_video_adverse",
    ):
        write_video(root / f"{name}.mov")
        write_boxes(root / "face-locations" / f"{name}.face", "{frame} 20 8 24 24")


def msu(root: Path) -> None:
    for name in (
        "real/real_client001_android_SD_scene01.mp4",
        "real/real_client002_laptop_SD_scene01.mov",
        "attack/attack_client001_android_SD_ipad_video_scene01.mp4",
        "attack/attack_client001_laptop_SD_iphone_video_scene01.mov",
        "attack/attack_client001_android_SD_printed_photo_scene01.mp4",
    ):
        write_boxes(write_video(root / "scene01" / name).with_suffix(".face"), "{frame},20,8,44,32,27,16,37,16")
    (root / "train_sub_list.txt").write_text("01\n", encoding="ascii")
    (root / "test_sub_list.txt").write_text("02\n", encoding="ascii")


def siw(root: Path) -> None:
    for name in ("live/003/003-1-1-1-1", "spoof/003/003-1-2-1-1", "spoof/003/003-2-3-4-2"):
        write_boxes(write_video(root / "Train" / f"{name}.mov").with_suffix(".face"), "20 8 44 32")


EXPECTED = {
    "oulu-npu": (oulu, "train", [(f"1_3_07_{k}.avi", a, "07") for k, a in zip(
        "12345", ("live", "print", "print", "replay", "replay"), strict=True)]),
    "casia-mfsd": (casia, "train", sorted(
        (f"{name}.avi", kind, "4")
        for kind, names in {"live": "1 2 HR_1", "print": "3 4 HR_2", "cut": "5 6 HR_3", "replay": "7 8 HR_4"}.items()
        for name in names.split())),
    "replay-attack": (replay, "dev", [
        ("attack_highdef_client004_session01_highdef_video_adverse.mov", "replay", "004"),
        ("attack_mobile_client003_session01_mobile_photo_controlled.mov", "display", "003"),
        ("attack_print_client003_session01_highdef_photo_adverse.mov", "print", "003"),
        ("client003_session01_webcam_authenticate_adverse_1.mov", "live", "003")]),
    "msu-mfsd": (msu, "train", [
        ("attack_client001_android_SD_ipad_video_scene01.mp4", "replay", "1"),
        ("attack_client001_android_SD_printed_photo_scene01.mp4", "print", "1"),
        ("attack_client001_laptop_SD_iphone_video_scene01.mov", "replay", "1"),
        ("real_client001_android_SD_scene01.mp4", "live", "1")]),
    "siw": (siw, "train", [
        ("003-1-1-1-1.mov", "live", "003"), ("003-1-2-1-1.mov", "print", "003"), ("003-2-3-4-2.mov", "replay", "003")]),
}  # fmt: skip


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_layouts(layout: str, tmp_path: Path) -> None:
    make, split, expected = EXPECTED[layout]
    make(tmp_path)
    clips = LAYOUTS[layout](tmp_path, split)
    assert summary(clips) == expected
    boxes = layout != "casia-mfsd"  # no boxes come with it
    read = read_clips(clips, 12, WHOLE if boxes else CENTRE)
    assert len(read) == 3 * len(clips) and read.size == 12
    assert read.video.bincount().tolist() == [3] * len(clips)
    assert [ATTACKS[k] for k in read.attack[::3].tolist()] == [clip.attack for clip in clips]
    assert bool((read.depth[~read.live] == 0).all()) and bool((read.depth[read.live].amax((1, 2)) == 255).all())
    middle = read.images[:, :, 4:8, 4:8].float()
    assert middle.mean() > 240  # the white face fills the crop
    if boxes:
        corners = read.images[:, :, 3, 3].float().mean()
        assert corners > 235


def test_msu_lists_say_who_belongs_where(tmp_path: Path) -> None:
    msu(tmp_path)
    assert [clip.subject for clip in LAYOUTS["msu-mfsd"](tmp_path, "test")] == ["2"]
    with pytest.raises(ValueError, match="no 'dev' split, only train, test: hold_out"):
        LAYOUTS["msu-mfsd"](tmp_path, "dev")


def test_frames_are_spread_evenly() -> None:
    assert evenly(6, 3) == [1, 3, 5]
    assert evenly(100, 4) == [12, 37, 62, 87]
    assert evenly(2, 8) == [0, 1]


def test_which_frames_are_read(tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.avi")
    frames = read_video(video, 8, Sampling(frames=3, crop="centre"))
    levels = frames[:, :, 7, 0].mean(1)  # below the face: 20 × number of the frame
    assert frames.shape == (3, 3, 8, 8) and np.abs(levels - [20, 60, 100]).max() < 6
    assert len(read_video(video, 8, Sampling(frames=50, crop="centre"))) == FRAMES


def test_colours_come_as_red_green_blue(tmp_path: Path) -> None:
    writer = cv2.VideoWriter(str(tmp_path / "red.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (32, 32))
    writer.write(np.full((32, 32, 3), (0, 0, 250), dtype=np.uint8))  # opencv writes blue, green, red
    writer.release()
    red, green, blue = read_video(tmp_path / "red.avi", 8, CENTRE)[0].mean((1, 2))
    assert red > 230 and green < 20 and blue < 20


def test_cut_out_repeats_the_edge_outside_the_frame() -> None:
    frame = np.zeros((4, 4, 3), dtype=np.uint8)
    frame[:, 0] = 200
    square = cut_out(frame, (-2, 0, 2, 4), 1.0, 4)  # half of it lies to the left of the frame
    assert square[0, 1].tolist() == [200, 200, 200, 0]
    assert cut_out(frame, (1, 1, 3, 3), 2.0, 4)[0, 1].tolist() == [200, 0, 0, 0]  # twice the box: the whole frame


def test_missing_boxes_have_a_remedy(tmp_path: Path) -> None:
    casia(tmp_path)
    clips = LAYOUTS["casia-mfsd"](tmp_path, "train")[:1]
    with pytest.raises(BrokenVideo, match="crop='centre'"):
        read_clips(clips, 8, WHOLE)
    boxes = clips[0].path.with_suffix(".face")
    boxes.write_text("0 0 0 0\n" * FRAMES, encoding="ascii")
    with pytest.raises(BrokenVideo, match="no face was found"):
        read_clips(LAYOUTS["casia-mfsd"](tmp_path, "train")[:1], 8, WHOLE)
    boxes.write_text("1 2 three 4\n", encoding="ascii")
    with pytest.raises(BrokenVideo, match="line 1"):
        read_clips(LAYOUTS["casia-mfsd"](tmp_path, "train")[:1], 8, WHOLE)


def test_what_is_no_video_of_the_set_is_refused(tmp_path: Path) -> None:
    siw(tmp_path)
    (tmp_path / "Train" / "live" / "003" / "holiday.mov").write_bytes(b"not a video")
    with pytest.raises(ValueError, match="holiday.mov is not named as in this set"):
        LAYOUTS["siw"](tmp_path, "train")
    with pytest.raises(BrokenVideo, match="cannot be decoded"):
        read_video(tmp_path / "Train" / "live" / "003" / "holiday.mov", 8, CENTRE)
    with pytest.raises(FileNotFoundError, match="Test"):
        LAYOUTS["siw"](tmp_path, "test")


def still(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((10, 10, 3), level, dtype=np.uint8))


def test_plain_folders_of_stills(tmp_path: Path) -> None:
    for level, name in enumerate(("real/a/x_1.png", "real/a/x_20.png", "real/b/y_3.png", "fake/a/z_9.png")):
        still(tmp_path / name, 10 * level)
    clips = live_and_spoof(tmp_path, "real", {"print": "fake"}, stills="sequence")
    read = read_clips(clips, 8, CENTRE)
    assert read.attack.tolist() == [0, 0, 0, 1] and read.subject.tolist() == [0, 0, 1, 0]
    assert len(read.video.unique()) == 3 and read.video[0] == read.video[1]
    assert read.images[:, 0, 0, 0].tolist() == [0, 10, 20, 30]
    alone = read_clips(live_and_spoof(tmp_path, "real", {"print": "fake"}, subjects="unknown"), 8, CENTRE)
    assert len(alone.video.unique()) == len(alone.subject.unique()) == 4
    with pytest.raises(ValueError, match="no attack 'mask'"):
        live_and_spoof(tmp_path, "real", {"mask": "fake"})
    with pytest.raises(ValueError, match="no subject's folder"):
        live_and_spoof(tmp_path / "real", "a", {"print": "b"})


def test_held_out_subjects_are_others() -> None:
    n = 10
    read = Recordings(
        torch.zeros(2 * n, 3, 2, 2, dtype=torch.uint8), torch.zeros(2 * n, dtype=torch.int64),
        torch.zeros(2 * n, 32, 32, dtype=torch.uint8), torch.arange(2 * n), torch.arange(n).repeat(2),
    )  # fmt: skip
    kept, held = hold_out(read, 0.3, seed=0)
    assert len(held.subject.unique()) == 3 and len(held) == 6 and len(kept) == 14
    assert not set(kept.subject.tolist()) & set(held.subject.tolist())
    with pytest.raises(ValueError, match="share of 1.0"):
        hold_out(read, 1.0, seed=0)


def test_sampling_says_what_it_does_and_refuses_nonsense() -> None:
    assert str(Sampling(5, "box", 1.2)) == "5 frames a video, evenly spaced; 1.2 × the face box"
    for wrong in ({"frames": 0}, {"crop": "face"}, {"margin": 0.1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Sampling(**wrong)  # type: ignore[arg-type]
