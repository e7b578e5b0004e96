"""Pair lists made by hand, whole and damaged, and a pickle that tries to run code."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from coalface.data.pair_bin import read_bin
from coalface.data.pairs import contiguous_folds, load_images, read_cfp, read_csv, read_lfw, write_csv

LFW = ["2\t1", "ann\t1\t2", "ann\t1\tbea\t1", "bea\t1\t2", "bea\t2\tann\t2"]


def _lfw(folder: Path, lines: list[str]) -> Path:
    for name in ("ann", "bea"):
        (folder / name).mkdir(exist_ok=True)
        for number in (1, 2):
            (folder / name / f"{name}_{number:04d}.jpg").touch()
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n")
    return folder / "pairs.txt"


def _jpeg(shade: int, size: int = 4) -> bytes:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.new("RGB", (size, size), (shade, shade, shade)).save(out, "JPEG", quality=95)
    return out.getvalue()


def test_lfw_folds_and_labels(tmp_path: Path) -> None:
    found = read_lfw(_lfw(tmp_path, LFW), tmp_path)
    assert found.same.tolist() == [True, False, True, False]
    assert found.fold.tolist() == [0, 0, 1, 1]
    names = [(image.name if isinstance(image, Path) else "") for image in found.images]
    assert [names[i] for i in found.left.tolist()] == ["ann_0001.jpg", "ann_0001.jpg", "bea_0001.jpg", "bea_0002.jpg"]
    assert [names[i] for i in found.right.tolist()] == ["ann_0002.jpg", "bea_0001.jpg", "bea_0002.jpg", "ann_0002.jpg"]
    assert len(names) == 4
    assert found.identities is not None
    assert torch.equal(found.identities[found.left] == found.identities[found.right], found.same)
    assert found.pairs.shape == (4, 2)


def test_lfw_view_one_has_one_fold(tmp_path: Path) -> None:
    lines = ["2", "ann\t1\t2", "bea\t1\t2", "ann\t1\tbea\t1", "ann\t2\tbea\t2"]
    found = read_lfw(_lfw(tmp_path, lines), tmp_path)
    assert found.same.tolist() == [True, True, False, False]
    assert found.fold.tolist() == [0] * 4


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (LFW[:-1], r"pairs\.txt:4: the file holds 3 pairs, its header promises 4"),
        ([*LFW, "ann\t1\t2"], r"pairs\.txt:6: the file holds 5 pairs"),
        ([*LFW[:4], "bea\t2"], r"pairs\.txt:5: expected 'name number name number', got 2 fields"),
        ([LFW[0], "ann\tx\t2", *LFW[2:]], r"pairs\.txt:2: expected 'name number number'"),
        (["ten\t1", *LFW[1:]], r"pairs\.txt:1: header must be"),
        ([], r"pairs\.txt:1: header must be"),
    ],
)
def test_damaged_lfw_list_is_refused_with_its_line(tmp_path: Path, lines: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_lfw(_lfw(tmp_path, lines), tmp_path)


def test_missing_images_are_counted(tmp_path: Path) -> None:
    file = _lfw(tmp_path, LFW)
    for name in ("bea_0001.jpg", "bea_0002.jpg"):
        (tmp_path / "bea" / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"2 of 4 images are missing, the first is .*bea_0001\.jpg: unpack"):
        read_lfw(file, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt is missing"):
        read_lfw(tmp_path / "nothing.txt", tmp_path)


def _cfp(root: Path) -> None:
    for person in ("001", "002"):
        for pose in ("frontal", "profile"):
            (root / "Data" / "Images" / person / pose).mkdir(parents=True)
            for number in ("01", "02"):
                (root / "Data" / "Images" / person / pose / f"{number}.jpg").touch()
    for letter, pose in (("F", "frontal"), ("P", "profile")):
        lines = [f"{2 * p + n - 2} ../Data/Images/00{p}/{pose}/0{n}.jpg" for p in (1, 2) for n in (1, 2)]
        (root / "Protocol").mkdir(exist_ok=True)
        (root / "Protocol" / f"Pair_list_{letter}.txt").write_text("\n".join(lines) + "\n")
    for kind in ("FF", "FP"):
        for split, same, different in (("01", "1,2", "1,3"), ("02", "3,4", "4,1")):
            folder = root / "Protocol" / "Split" / kind / split
            folder.mkdir(parents=True)
            (folder / "same.txt").write_text(same + "\n")
            (folder / "diff.txt").write_text(different + "\n")


def test_cfp_frontal_profile(tmp_path: Path) -> None:
    _cfp(tmp_path)
    found = read_cfp(tmp_path, "FP")
    assert found.same.tolist() == [True, False, True, False]
    assert found.fold.tolist() == [0, 0, 1, 1]
    first, second = found.images[int(found.left[1])], found.images[int(found.right[1])]
    assert first == tmp_path / "Data/Images/001/frontal/01.jpg"
    assert second == tmp_path / "Data/Images/002/profile/01.jpg"
    assert found.identities is not None
    assert torch.equal(found.identities[found.left] == found.identities[found.right], found.same)
    assert len(read_cfp(tmp_path, "FF").images) == 4


def test_cfp_number_outside_the_list(tmp_path: Path) -> None:
    _cfp(tmp_path)
    (tmp_path / "Protocol/Split/FP/02/diff.txt").write_text("4,1\n4,9\n")
    with pytest.raises(ValueError, match=r"diff\.txt:2: '4,9' is not two numbers"):
        read_cfp(tmp_path, "FP")
    with pytest.raises(ValueError, match="no split folders"):
        (tmp_path / "Protocol/Split/FF").rename(tmp_path / "elsewhere")
        read_cfp(tmp_path, "FF")


def test_csv_round_trip(tmp_path: Path) -> None:
    whole = read_lfw(_lfw(tmp_path, LFW), tmp_path)
    (tmp_path / "lists").mkdir()
    write_csv(whole, tmp_path / "lists" / "pairs.csv")
    lines = (tmp_path / "lists" / "pairs.csv").read_text().splitlines()
    assert lines[:2] == ["left,right,same,fold", "../ann/ann_0001.jpg,../ann/ann_0002.jpg,1,0"]
    again = read_csv(tmp_path / "lists" / "pairs.csv")
    assert again.images == whole.images
    for name in ("left", "right", "same", "fold"):
        assert torch.equal(getattr(again, name), getattr(whole, name))


def test_csv_without_folds(tmp_path: Path) -> None:
    _lfw(tmp_path, LFW)
    file = tmp_path / "pairs.csv"
    file.write_text("left,right,same\nann/ann_0001.jpg,bea/bea_0001.jpg,False\nann/ann_0001.jpg,ann/ann_0002.jpg,1\n")
    found = read_csv(file)
    assert found.same.tolist() == [False, True]
    assert found.fold.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b,same\n", r"pairs\.csv:1: header must be"),
        ("left,right,same\n", r"pairs\.csv:1: no pairs"),
        ("left,right,same\na,b,1\na,b,maybe\n", r"pairs\.csv:3: same must be 1, 0, true or false, got 'maybe'"),
        ("left,right,same,fold\na,b,1,-1\n", r"pairs\.csv:2: fold must be a whole number from 0, got '-1'"),
        ("left,right,same,fold\na,b,1\n", r"pairs\.csv:2: expected 4 fields, got 3"),
    ],
)
def test_damaged_csv_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_csv(tmp_path / "pairs.csv")


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_bin_of_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    images = [b"\xff\xd8a\x80", b"\xff\xd8b", b"\xff\xd8c", b"\xff\xd8d"]
    (tmp_path / "set.bin").write_bytes(pickle.dumps((images, [True, False]), protocol=protocol))
    found = read_bin(tmp_path / "set.bin")
    assert found.images == tuple(images)
    assert found.same.tolist() == [True, False]
    assert (found.left.tolist(), found.right.tolist()) == ([0, 2], [1, 3])
    assert found.fold.tolist() == [0, 1]


def test_bin_written_by_python_two(tmp_path: Path) -> None:
    # Protocol 2 as Python 2 wrote it: byte strings are SHORT_BINSTRING ('U'), which Python 3 would take for text.
    raw = b"\x80\x02]q\x00(U\x03\xff\xd8aq\x01U\x03\xff\xd8bq\x02e]q\x03\x88a\x86q\x04."
    (tmp_path / "set.bin").write_bytes(raw)
    found = read_bin(tmp_path / "set.bin")
    assert found.images == (b"\xff\xd8a", b"\xff\xd8b")
    assert found.same.tolist() == [True]


@pytest.mark.parametrize("protocol", [2, 4])
def test_bin_with_numpy_buffers_and_flags(tmp_path: Path, protocol: int) -> None:
    images = [np.frombuffer(b"\xff\xd8" + bytes([i]), dtype=np.uint8) for i in range(4)]
    for flags in (np.array([True, False]), [np.bool_(True), np.bool_(False)]):
        (tmp_path / "set.bin").write_bytes(pickle.dumps((images, flags), protocol=protocol))
        found = read_bin(tmp_path / "set.bin")
        assert found.images[3] == b"\xff\xd8\x03"
        assert found.same.tolist() == [True, False]


class _Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickle_that_runs_code_is_refused(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "sprung"
    (tmp_path / "set.bin").write_bytes(pickle.dumps(([_Hostile(trap)], [True]), protocol=protocol))
    with pytest.raises(ValueError, match=r"set\.bin.*asks for (posix|nt)\.mkdir, which is refused"):
        read_bin(tmp_path / "set.bin")
    assert not trap.exists()


@pytest.mark.parametrize("name", ["builtins.eval", "numpy.load", "torch.load", "_codecs.lookup", "operator.attrgetter"])
def test_names_outside_the_list_are_refused(tmp_path: Path, name: str) -> None:
    module, attribute = name.rsplit(".", 1)
    (tmp_path / "set.bin").write_bytes(f"c{module}\n{attribute}\n(S'1'\ntR.".encode())
    with pytest.raises(ValueError, match="which is refused"):
        read_bin(tmp_path / "set.bin")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ((["text", b"x"], [True]), "image 0 is str"),
        (([b"x", b""], [True]), "image 1 is bytes"),
        (([b"x"], [True]), "got 1 images and 1 flags"),
        (([b"x", b"y"], [2]), "flag 0 is '2'"),
        (([b"x", b"y"], 1), "got 2 images and no list flags"),
        ({}, r"expected \(images, same\), got dict"),
        (([np.arange(3), b"y"], [True]), "numpy type 'i8' is refused"),
        (([np.array([b"x"], dtype=object), b"y"], [True]), "numpy type 'O8' is refused"),
    ],
)
def test_bin_of_another_shape_is_refused(tmp_path: Path, content: object, complaint: str) -> None:
    (tmp_path / "set.bin").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=complaint):
        read_bin(tmp_path / "set.bin")


def test_truncated_bin_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(pickle.dumps(([b"x", b"y"], [True]))[:-4])
    with pytest.raises(ValueError, match=r"set\.bin: not a readable verification \.bin"):
        read_bin(tmp_path / "set.bin")


def test_images_are_decoded_from_files_and_memory(tmp_path: Path) -> None:
    (tmp_path / "grey.jpg").write_bytes(_jpeg(200))
    both = load_images([_jpeg(100), tmp_path / "grey.jpg"])
    assert both.dtype == torch.uint8
    assert both.shape == (2, 3, 4, 4)
    assert both[:, 0, 0, 0].tolist() == pytest.approx([100, 200], abs=2)
    assert load_images([_jpeg(100, 8), _jpeg(100, 4)], size=6).shape == (2, 3, 6, 6)


def test_images_that_cannot_be_stacked_or_decoded() -> None:
    with pytest.raises(ValueError, match=r"image 1 of the list is \[3, 8, 8\], the first is \[3, 4, 4\]"):
        load_images([_jpeg(1), _jpeg(1, 8)])
    with pytest.raises(ValueError, match="image 1 of the list cannot be decoded"):
        load_images([_jpeg(1), b"\xff\xd8 nonsense"])


def test_lists_in_memory_have_no_csv(tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(pickle.dumps(([b"x", b"y"], [True])))
    with pytest.raises(ValueError, match="save the images to files first"):
        write_csv(read_bin(tmp_path / "set.bin"), tmp_path / "pairs.csv")


def test_contiguous_folds() -> None:
    assert contiguous_folds(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="cannot cut 2 pairs into 3 folds"):
        contiguous_folds(2, 3)
