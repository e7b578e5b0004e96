from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.data.contact_sheet import contact_sheet, write_png
from coalface.data.portrait.counter import keys, pixel_noise, uniforms
from coalface.data.portrait.surface import bump, ramp, wave
from coalface.data.synthetic import EASY, HARD, STANDARD, Conditions, draw_faceset, draw_identities, photograph

STILL = Conditions()  # every nuisance at 0


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_identity_depends_on_seed_and_number_alone() -> None:
    many, few = draw_identities(0, 10, seed=3), draw_identities(6, 2, seed=3)
    other = draw_identities(6, 2, seed=4)
    for f in fields(many):
        assert torch.equal(getattr(many, f.name)[6:8], getattr(few, f.name)), f.name
    assert few.index.tolist() == [6, 7]
    assert not torch.equal(few.shape, other.shape)


def test_identities_differ_and_can_be_chosen() -> None:
    people = draw_identities(0, 200, seed=0)
    gaps = torch.cdist(people.shape, people.shape) + 9 * torch.eye(200)
    assert len(people) == 200 and gaps.min() > 0.1  # nobody is anybody's twin
    chosen = people[torch.tensor([5, 5, 2])]
    assert len(chosen) == 3 and chosen.index.tolist() == [5, 5, 2]
    assert len(people[10:14]) == 4
    assert torch.equal(people.trait("head_width"), people.shape[:, 0])


def test_traits_fill_their_ranges() -> None:
    people = draw_identities(0, 2000, seed=1)
    width = people.trait("head_width")  # 0.74 ± 0.055, evenly spread: deviation 0.055 / √3 = 0.0318
    assert width.min() >= 0.685 and width.max() <= 0.795
    assert width.mean().item() == pytest.approx(0.74, abs=0.003)
    assert width.std().item() == pytest.approx(0.0318, abs=0.002)
    assert people.glasses[:, 0].mean().item() == pytest.approx(0.25, abs=0.04)
    assert (people.beard.sum(1) == 0).float().mean().item() > 0.45
    assert people.hair_style.unique().tolist() == list(range(10))
    for colour in (people.skin, people.hair, people.iris, people.frame):
        assert colour.min() >= 0 and colour.max() <= 1


def test_negative_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="first=-1"):
        draw_identities(-1, 3, seed=0)


def test_same_arguments_same_pixels() -> None:
    one, two = (draw_faceset(0, 3, 2, 32, seed=7, conditions=HARD) for _ in range(2))
    assert torch.equal(one.images, two.images)
    assert not torch.equal(one.images, draw_faceset(0, 3, 2, 32, seed=8, conditions=HARD).images)


@pytest.mark.parametrize("size", [64, 50, 33])
def test_an_image_does_not_depend_on_what_else_is_drawn(size: int) -> None:
    whole = draw_faceset(0, 9, 4, size, seed=7, conditions=HARD)
    rest = draw_faceset(6, 3, 4, size, seed=7, conditions=HARD)
    alone = draw_faceset(8, 1, 1, size, seed=7, conditions=HARD)
    assert torch.equal(whole.images[24:], rest.images)
    assert torch.equal(whole.images[32:33], alone.images)


def test_an_image_does_not_depend_on_how_many_are_rendered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw_faceset(0, 10, 4, 40, seed=7, conditions=HARD)
    monkeypatch.setattr("coalface.data.synthetic._PIXELS_AT_ONCE", {"cpu": 3 * 40 * 40})
    monkeypatch.setattr("coalface.data.synthetic._SITTINGS_AT_ONCE", 7)
    assert torch.equal(whole.images, draw_faceset(0, 10, 4, 40, seed=7, conditions=HARD).images)


def test_numbers_of_images_may_differ_by_identity() -> None:
    seen: list[tuple[int, int]] = []
    faces = draw_faceset(5, 3, [2, 0, 3], 24, seed=0, progress=lambda done, of: seen.append((done, of)))
    assert faces.offsets.tolist() == [0, 2, 2, 5] and faces.images.shape == (5, 3, 24, 24)
    assert seen == [(5, 5)]
    assert torch.equal(faces.images[2:], draw_faceset(7, 1, 3, 24, seed=0).images)
    with pytest.raises(ValueError, match="3 numbers"):
        draw_faceset(5, 3, [2, 1], 24, seed=0)
    assert len(draw_faceset(0, 0, 4, 24, seed=0).images) == 0


def test_without_nuisance_all_photographs_of_a_person_are_equal() -> None:
    faces = draw_faceset(0, 3, 4, 48, seed=2, conditions=STILL).images.view(3, 4, 3, 48, 48)
    assert torch.equal(faces, faces[:, :1].expand_as(faces))
    assert (faces[0, 0].float() - faces[1, 0].float()).abs().mean() > 3


@pytest.mark.parametrize("nuisance", [f.name for f in fields(Conditions)])
def test_each_nuisance_alone_changes_the_photographs(nuisance: str) -> None:
    # 24 photographs: putting on glasses and hats is a matter of chance
    images = draw_faceset(0, 1, 24, 48, seed=2, conditions=replace(STILL, **{nuisance: 1.0})).images.float()
    assert images.std(0).mean() > 0.5


def test_a_strength_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="pose"):
        Conditions(pose=-0.1)
    with pytest.raises(ValueError, match="tone"):
        Conditions(tone=float("nan"))


@pytest.mark.parametrize("size", [16, 64, 75, 112])
def test_any_size_gives_full_range_pictures_and_depth(size: int) -> None:
    people = draw_identities(0, 4, seed=0)
    made = photograph(people, size, generator(), STANDARD)
    assert made.images.dtype == torch.uint8 and made.images.shape == (4, 3, size, size)
    assert made.depth.dtype == torch.float32 and made.depth.shape == (4, size, size)
    assert made.images.float().std() > 20
    assert made.depth.min() == 0 and 0.5 < made.depth.max() <= 1


def test_sizes_show_the_same_picture() -> None:
    people = draw_identities(0, 6, seed=0)
    calm = replace(STANDARD, noise=0.0, blur=0.0)
    small = photograph(people, 32, generator(), calm).images.float()
    large = F.avg_pool2d(photograph(people, 96, generator(), calm).images.float(), 3)
    assert (small - large).abs().mean() < 6


def test_photographs_follow_the_generator() -> None:
    people = draw_identities(0, 2, seed=0)
    one, same, other = (photograph(people, 32, generator(seed), HARD).images for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert len(photograph(people[:0], 32, generator(), HARD).images) == 0


def test_tiny_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 pixels"):
        draw_faceset(0, 1, 1, 4, seed=0)


def test_depth_is_the_face_and_nothing_else() -> None:
    depth = photograph(draw_identities(0, 30, seed=0), 64, generator(), STILL).depth
    face = depth > 0
    assert not face[:, :, [0, 63]].any()  # the sides of the picture are background, seen from the front
    assert face[:, 32:44, 28:36].all()  # nose and mouth
    share = face.float().mean((1, 2))
    assert share.min() > 0.2 and share.max() < 0.7
    # The nose stands out: nearer than both cheeks of the same height, and the nearest point is near the middle.
    row = depth[:, 36:42].mean(1)
    assert (row[:, 30:34].mean(1) > row[:, 20:23].mean(1) + 0.03).all()
    assert (row[:, 30:34].mean(1) > row[:, 41:44].mean(1) + 0.03).all()
    column = depth.flatten(1).argmax(1) % 64
    assert ((column - 31.5).abs() < 6).all()


def test_depth_turns_with_the_head() -> None:
    people = draw_identities(0, 40, seed=0)
    turned = photograph(people, 48, generator(), replace(STILL, pose=1.0)).depth
    columns = torch.arange(48.0).expand(40, 48, 48)
    centre = (columns * (turned > 0)).sum((1, 2)) / (turned > 0).sum((1, 2))
    nearest = (turned.flatten(1).argmax(1) % 48).float()
    assert (nearest - centre).std() > 2  # the tip of the nose leaves the middle of the face


def test_sides_of_a_turned_face_do_not_ring() -> None:
    """Neighbouring depths on the face differ little, but for the few pixels where the nose hides the cheek."""
    depth = photograph(draw_identities(0, 40, seed=0), 64, generator(), replace(STILL, pose=1.3)).depth
    both = (depth[:, :, 1:] > 0) & (depth[:, :, :-1] > 0)
    jumps = depth.diff(dim=2).abs() > 0.08
    assert (jumps & both).sum() / both.sum() < 0.01


def separation(conditions: Conditions) -> float:
    """How much likelier two photographs of a person are to be alike than two people's: AUC of raw pixels."""
    faces = draw_faceset(0, 60, 4, 32, seed=5, conditions=conditions)
    pixels = faces.images.flatten(1).float()
    unit = F.normalize(pixels - pixels.mean(0), dim=1)
    person = torch.arange(60).repeat_interleave(4)
    scores, same = unit @ unit.T, person[:, None] == person[None]
    genuine, impostor = scores[same & ~torch.eye(240).bool()], scores[~same]
    return _share_above(genuine, impostor)


def _share_above(high: Tensor, low: Tensor) -> float:
    return float(torch.searchsorted(low.sort().values, high).float().mean() / len(low))


def test_difficulties_are_in_order() -> None:
    easy, standard, hard = (separation(conditions) for conditions in (EASY, STANDARD, HARD))
    assert easy > standard + 0.03 and standard > hard + 0.02
    assert 0.5 < hard < 0.65  # pixels alone are nearly useless
    assert separation(STILL) == 1.0


def test_counter_gives_even_independent_numbers() -> None:
    u = uniforms(keys(0, 1, torch.arange(500)), 40)
    assert u.dtype == torch.float64 and u.min() > 0 and u.max() < 1
    assert u.mean().item() == pytest.approx(0.5, abs=0.01) and u.var().item() == pytest.approx(1 / 12, abs=0.003)
    assert torch.corrcoef(u.T).fill_diagonal_(0).abs().max() < 0.2
    assert len(torch.unique(torch.from_numpy(keys(0, 1, torch.arange(500)).astype("int64")))) == 500
    assert keys(1, 2) != keys(2, 1)


def test_pixel_noise_is_white() -> None:
    noise = pixel_noise(torch.tensor([1, 2]), 64, 64)
    assert noise.shape == (2, 3, 64, 64)
    assert noise.mean().item() == pytest.approx(0, abs=0.02) and noise.var().item() == pytest.approx(1, abs=0.03)
    assert abs((noise[..., 1:] * noise[..., :-1]).mean().item()) < 0.02
    assert abs((noise[0] * noise[1]).mean().item()) < 0.03


def test_profiles() -> None:
    t = torch.tensor([-2.0, 0.0, 0.25, 1.0, 2.0])
    assert bump(t).tolist() == pytest.approx([0, 1, (1 - 0.0625 / 3) ** 3, (2 / 3) ** 3, 0])
    assert ramp(t, 2.0).tolist() == pytest.approx([0, 0.5, 0.625, 1, 1])
    assert wave(t).tolist() == pytest.approx([0, 0, 1, 0, 0], abs=1e-6)  # sin(2π/4) = 1


def test_contact_sheet_places_images_row_by_row() -> None:
    images = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 3, 2, 3)
    sheet = contact_sheet(images, columns=2, gap=1)
    assert sheet.shape == (3, 3 * 2 + 2, 2 * 3 + 1)
    assert sheet[0, 0].tolist() == [0, 0, 0, 255, 1, 1, 1]
    assert sheet[0, 6].tolist() == [4, 4, 4, 255, 255, 255, 255]
    with pytest.raises(ValueError, match="uint8"):
        contact_sheet(images.float(), 2)


def test_png_holds_the_pixels(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    numpy = pytest.importorskip("numpy")
    image = draw_faceset(0, 1, 1, 16, seed=0).images[0]
    path = write_png(image, tmp_path / "deep" / "face.png")
    assert torch.equal(torch.from_numpy(numpy.asarray(pillow.open(path)).copy()).permute(2, 0, 1), image)
    small = write_png(image, tmp_path / "face8.png", colours=8)
    assert len(pillow.open(small).convert("RGB").getcolors()) <= 8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_shows_the_same_people() -> None:
    cpu = draw_faceset(0, 8, 4, 64, seed=0, conditions=HARD).images
    gpu = draw_faceset(0, 8, 4, 64, seed=0, conditions=HARD, device="cuda").images.cpu()
    difference = (cpu.int() - gpu.int()).abs()
    assert (difference > 1).float().mean() < 1e-3
