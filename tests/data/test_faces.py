"""Photographs in folders become numbered identities. Test images are plain colours in lossless PNG."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch

pytest.importorskip("PIL.Image", reason="pillow is optional, and reads the photographs")
from PIL import Image

from coalface.data import faces as faces_module
from coalface.data.faces import BrokenImage, PhotoFolder, list_photos, read_folder, read_images


def paint(path: Path, grey: int, size: tuple[int, int] = (4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (grey, grey, grey)).save(path)


def greys(folder: PhotoFolder) -> list[list[int]]:
    """Grey of each image, by identity."""
    values = folder.faces.images[:, 0, 0, 0]
    return [part.tolist() for part in values.split(folder.faces.counts().tolist())]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Written out of order: b has two images, a has three, c has one."""
    root = tmp_path / "photos"
    for name, grey in [("b/2", 22), ("a/3", 13), ("c/1", 31), ("a/1", 11), ("b/1", 21), ("a/2", 12)]:
        paint(root / f"{name}.png", grey)
    return root


def test_identities_and_images_are_numbered_by_name(root: Path) -> None:
    folder = read_folder(root, 4)
    assert greys(folder) == [[11, 12, 13], [21, 22], [31]]
    assert [folder.names.number(name) for name in "abc"] == [0, 1, 2]
    assert (folder.excluded, folder.too_few, folder.skipped) == (0, 0, 0)
    assert folder.faces.images.shape == (6, 3, 4, 4)


def test_names_are_not_shown(root: Path) -> None:
    (root / "b").rename(root / "somebody")
    folder = read_folder(root, 4)
    assert "somebody" in folder.names
    assert "somebody" not in repr(folder) + str(folder.names)
    with pytest.raises(ValueError, match="none of the 3 identities has this name") as caught:
        folder.names.number("nobody")
    assert "nobody" not in str(caught.value)


def test_small_and_excluded_identities_are_left_out_and_counted(root: Path) -> None:
    folder = read_folder(root, 4, min_images=2, exclude={"a", "not there"})
    assert greys(folder) == [[21, 22]]
    assert (folder.excluded, folder.too_few) == (1, 1)
    assert "a" not in folder.names
    assert folder.names.number("b") == 0


def test_nothing_left_is_an_error(root: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no identity is left in .*: 1 of 3 were excluded, 2 have fewer than 9 images"
    ):
        read_folder(root, 4, min_images=9, exclude=["a"])
    with pytest.raises(ValueError, match="not one string"):
        read_folder(root, 4, exclude="abc")


def test_sub_folders_are_read_on_request(tmp_path: Path) -> None:
    for name, grey in [("1/profile/01", 3), ("1/frontal/02", 2), ("1/frontal/01", 1)]:
        paint(tmp_path / f"{name}.png", grey)
    assert greys(read_folder(tmp_path, 4, recursive=True)) == [[1, 2, 3]]
    with pytest.raises(ValueError, match="those in sub-folders do not count"):
        read_folder(tmp_path, 4)


def test_hidden_and_other_files_are_ignored(root: Path) -> None:
    (root / "pairs.txt").write_text("")
    (root / "a" / "notes.txt").write_text("")
    (root / "a" / "._1.png").write_text("not an image")
    (root / "empty").mkdir()
    folder = read_folder(root, 4)
    assert greys(folder) == [[11, 12, 13], [21, 22], [31]]
    assert folder.too_few == 1
    listed = [str(file.relative_to(root)) for files in list_photos(root).values() for file in files]
    assert listed == ["a/1.png", "a/2.png", "a/3.png", "b/1.png", "b/2.png", "c/1.png"]


def test_every_format_and_mode_becomes_rgb(tmp_path: Path) -> None:
    colour = Image.new("RGB", (8, 8), (200, 100, 50))
    (tmp_path / "one").mkdir()
    for place, suffix in enumerate(["bmp", "JPG", "jpeg", "png", "webp"]):
        colour.save(tmp_path / "one" / f"{place}.{suffix}")
    colour.quantize(4).save(tmp_path / "one" / "5.png")  # a palette
    colour.convert("RGBA").save(tmp_path / "one" / "6.png")
    Image.new("L", (8, 8), 77).save(tmp_path / "one" / "7.png")
    images = read_folder(tmp_path, 8).faces.images.int()
    expected = torch.tensor([200, 100, 50])[None, :, None, None]
    assert (images[:7] - expected).abs().max() <= 4  # JPEG and WebP lose a little
    assert images[7].unique().tolist() == [77]


def test_centre_square_is_cropped(tmp_path: Path) -> None:
    tall = Image.new("RGB", (4, 8), (0, 0, 0))
    tall.paste((255, 255, 255), (0, 2, 4, 6))  # white exactly where the central square is
    tall.save(tmp_path / "tall.png")
    tall.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "wide.png")
    assert read_images([tmp_path / "tall.png", tmp_path / "wide.png"], 4).min() == 255


def test_shrinking_averages(tmp_path: Path) -> None:
    board = torch.zeros(16, 16, dtype=torch.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    Image.fromarray(board.numpy()).convert("RGB").save(tmp_path / "board.png")
    small = read_images([tmp_path / "board.png"], 4).float()
    # Without antialiasing, samples of a chequerboard would be black or white.
    assert small[0, :, 1:3, 1:3].sub(127.5).abs().max() < 10


def test_exif_turns_the_image_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 4), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 4, 2))  # white above
    exif = Image.Exif()
    exif[0x0112] = 3  # held upside down
    image.save(tmp_path / "turned.png", exif=exif)
    column = read_images([tmp_path / "turned.png"], 4)[0, 0, :, 0]
    assert column.tolist() == [0, 0, 255, 255]


def test_cache_is_made_once_and_used_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, first = read_folder(root, 4), read_folder(root, 4, cache=tmp_path / "cache")
    assert torch.equal(plain.faces.images, first.faces.images)
    made = sorted(path.suffix for path in (tmp_path / "cache").iterdir())
    assert made == [".json", ".u8"]
    monkeypatch.setattr(faces_module, "_decode", None)  # decoding again would fail
    again = read_folder(root, 4, cache=tmp_path / "cache")
    assert plain.files == first.files == again.files
    assert torch.equal(plain.faces.images, again.faces.images)
    assert torch.equal(plain.faces.offsets, again.faces.offsets)
    assert again.names.number("c") == 2


def test_writing_to_mapped_images_leaves_the_cache_as_it_was(root: Path, tmp_path: Path) -> None:
    read_folder(root, 4, cache=tmp_path / "cache").faces.images.zero_()
    assert greys(read_folder(root, 4, cache=tmp_path / "cache")) == [[11, 12, 13], [21, 22], [31]]


def test_changes_make_another_cache(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    read_folder(root, 4, cache=cache)
    paint(root / "b" / "1.png", 99)
    os.utime(root / "b" / "1.png", ns=(1, 1))  # the same number of bytes: only the time tells
    assert greys(read_folder(root, 4, cache=cache)) == [[11, 12, 13], [99, 22], [31]]
    paint(root / "c" / "2.png", 32)
    assert greys(read_folder(root, 4, cache=cache)) == [[11, 12, 13], [99, 22], [31, 32]]
    assert read_folder(root, 2, cache=cache).faces.size == 2
    assert greys(read_folder(root, 4, cache=cache, exclude={"a"})) == [[99, 22], [31, 32]]
    assert greys(read_folder(root, 4, cache=cache, min_images=3)) == [[11, 12, 13]]


@pytest.mark.parametrize("suffix", [".u8", ".json"])
def test_damaged_cache_is_rebuilt_with_a_warning(root: Path, tmp_path: Path, suffix: str) -> None:
    cache = tmp_path / "cache"
    read_folder(root, 4, cache=cache)
    (damaged,) = cache.glob(f"*{suffix}")
    os.truncate(damaged, 5)
    with pytest.warns(UserWarning, match="is damaged .*: decoding the photographs again"):
        assert greys(read_folder(root, 4, cache=cache)) == [[11, 12, 13], [21, 22], [31]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert greys(read_folder(root, 4, cache=cache)) == [[11, 12, 13], [21, 22], [31]]


def test_unfinished_cache_is_not_used(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    os.truncate(root / "c" / "1.png", 40)
    with pytest.raises(BrokenImage):
        read_folder(root, 4, cache=cache)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("cached", [False, True])
def test_broken_image_is_named_or_skipped_and_counted(root: Path, tmp_path: Path, cached: bool) -> None:
    cache = tmp_path / "cache" if cached else None
    os.truncate(root / "a" / "2.png", 45)
    (root / "c" / "1.png").write_text("no image at all")
    remedy = r"; 2 of 6 images are broken: remove them, or leave them out \(.*--set data.skip_broken=true"
    with pytest.raises(BrokenImage, match=rf"a/2\.png cannot be decoded \(.*\){remedy}"):
        read_folder(root, 4, cache=cache)
    for _ in range(2):  # the second time from the cache, if there is one
        with pytest.warns(UserWarning, match=r"skipped 2 of 6 images that are broken, first .*a/2\.png"):
            folder = read_folder(root, 4, cache=cache, skip_broken=True)
        assert greys(folder) == [[11, 13], [21, 22]]
        assert (folder.skipped, folder.too_few) == (2, 1)  # c lost its only image
        assert "c" not in folder.names
    with pytest.raises(BrokenImage, match=rf"a/2\.png cannot be decoded.*{remedy}"):
        read_folder(root, 4, cache=cache)


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp"])
def test_half_an_image_is_never_taken_for_a_whole_one(tmp_path: Path, suffix: str) -> None:
    noise = torch.randint(0, 256, (24, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    path = tmp_path / f"noise.{suffix}"
    Image.fromarray(noise.numpy()).save(path)
    assert read_images([path], 24).shape == (1, 3, 24, 24)
    for share in (0.95, 0.5, 0.1):
        os.truncate(path, int(path.stat().st_size * share))
        with pytest.raises(BrokenImage, match=path.name):
            read_images([path], 24)


def test_skipping_everything_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "1.png").write_text("")
    for cache in (None, tmp_path / "cache"):
        with pytest.warns(UserWarning, match="skipped 1 of 1"), pytest.raises(ValueError, match="no identity is left"):
            read_folder(tmp_path / "photos", 4, cache=cache, skip_broken=True)


def test_huge_and_deep_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(tmp_path / "a" / "1.png", 1, size=(11, 10))
    Image.new("I;16", (4, 4), 40_000).save(tmp_path / "deep.png")
    with pytest.raises(BrokenImage, match="more than 8 bits"):
        read_images([tmp_path / "deep.png"], 4)
    (tmp_path / "deep.png").unlink()
    monkeypatch.setattr(faces_module, "MAX_PIXELS", 109)
    with pytest.raises(BrokenImage, match=r"has 11×10 pixels, over .*: remove the file"):
        read_folder(tmp_path, 4)
    monkeypatch.setattr(faces_module, "MAX_PIXELS", 110)
    assert greys(read_folder(tmp_path, 4)) == [[1]]


def test_missing_and_empty_folders_and_stray_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        read_folder(tmp_path / "nowhere", 4)
    with pytest.raises(ValueError, match="is empty: it should hold one folder per identity"):
        read_folder(tmp_path, 4)
    paint(tmp_path / "stray.png", 1)
    with pytest.raises(ValueError, match=r"stray\.png belongs to no identity"):
        read_folder(tmp_path, 4)
    with pytest.raises(ValueError, match=r"stray\.png is a file"):
        read_folder(tmp_path / "stray.png", 4)
    with pytest.raises(ValueError, match="size must be at least 1"):
        read_folder(tmp_path, 0)
    with pytest.raises(ValueError, match="min_images must be at least 1"):
        read_folder(tmp_path, 4, min_images=0)


def test_links_that_loop_double_or_lead_nowhere(root: Path) -> None:
    link = root / "a" / "again"
    link.symlink_to(root, target_is_directory=True)
    with pytest.raises(ValueError, match="again leads to a folder that was already read"):
        read_folder(root, 4, recursive=True)
    link.unlink()
    link = root / "twin"
    link.symlink_to(root / "b", target_is_directory=True)
    with pytest.raises(ValueError, match="twin leads to a folder that was already read"):
        read_folder(root, 4)  # one person would be two identities
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(ValueError, match="twin cannot be followed"):
        read_folder(root, 4)
    link.unlink()
    (root / "a" / "4.png").symlink_to(root / "nowhere.png")
    with pytest.raises(BrokenImage, match=r"there is no image .*4\.png: remove the file"):
        read_folder(root, 4)
    with pytest.warns(UserWarning, match="skipped 1 of 7"):
        assert greys(read_folder(root, 4, skip_broken=True))[0] == [11, 12, 13]


def test_progress_counts_to_the_end(root: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    read_folder(root, 4, cache=tmp_path / "cache", progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 6) for done in range(1, 7)]
    told.clear()
    read_images([root / "a" / "1.png"] * 2, 4, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_read_images_keeps_the_order_of_the_list(root: Path) -> None:
    paths = [root / name for name in ("c/1.png", "a/1.png", "c/1.png")] * 40  # more than are decoded ahead
    assert read_images(paths, 4)[:, 0, 0, 0].tolist() == [31, 11, 31] * 40
    assert read_images([], 4).shape == (0, 3, 4, 4)
    with pytest.raises(FileNotFoundError, match=r"there is no image .*x\.png"):
        read_images([root / "x.png"], 4)


def test_missing_pillow_names_the_remedy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(faces_module, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'coalface\[app\]'"):
        read_folder(root, 4)
