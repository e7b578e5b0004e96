"""IJB-style templates on a toy in the plane, with answers worked on paper, from files in the public formats."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from coalface.data import template_lists as lists
from coalface.data.template_lists import Comparisons, MediaList, Subjects
from coalface.protocols.templates import Templates, pool, search, search_both, verify_templates


def at(*degrees: float) -> Tensor:
    """Unit vectors in the plane."""
    radians = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], dim=1)


def angles(features: Tensor) -> list[float]:
    return (torch.atan2(features[:, 1], features[:, 0]) * 180 / math.pi).tolist()


def numbers(*values: int) -> Tensor:
    return torch.tensor(values)


def templates(**degrees: float) -> Templates:
    """Template t1 at so many degrees, and so on."""
    return Templates(torch.tensor([int(name[1:]) for name in degrees]), at(*degrees.values()))


# --- templates --------------------------------------------------------------------------------------------------------


def test_a_video_weighs_as_much_as_a_still() -> None:
    """Template 7: a still at 0° and a video of three frames at 90°: media first, so 45°, and not nearer to 90°."""
    listed = MediaList(("a", "b", "c", "d", "e"), numbers(7, 7, 7, 7, 3), numbers(1, 2, 2, 2, 2))
    pooled = pool(5 * at(0, 90, 90, 90, 30), listed)
    assert pooled.numbers.tolist() == [3, 7]
    assert angles(pooled.features) == pytest.approx([30, 45])
    assert pooled.features.norm(dim=1).tolist() == pytest.approx([1, 1])


def test_the_frames_of_a_video_are_averaged_before_they_are_added() -> None:
    """Frames at 60° and 120° have a mean of length ½ at 90°; with a still at 0° that makes atan(√3/2)."""
    listed = MediaList(("a", "b", "c"), numbers(1, 1, 1), numbers(1, 2, 2))
    assert angles(pool(at(0, 60, 120), listed).features) == pytest.approx([math.degrees(math.atan(math.sqrt(3) / 2))])


def test_quality_weighs_images() -> None:
    listed = MediaList(("a", "b"), numbers(1, 1), numbers(1, 2))
    third = pool(at(0, 90), listed, quality=torch.tensor([math.sqrt(3), 1.0], dtype=torch.float64))
    assert angles(third.features) == pytest.approx([30])
    with pytest.raises(ValueError, match="1 features for 2 listed images"):
        pool(at(0), listed)


# --- 1:1 --------------------------------------------------------------------------------------------------------------

FIVE = templates(t1=0, t2=10, t3=50, t5=90, t9=100)


def test_verification_by_hand() -> None:
    """Genuine 1-2 (10°) and 3-5 (40°); impostors 9-5 (10°), 1-3 (50°), 1-5 (90°), 1-9 (100°).

    At FMR ¼ one false match is allowed, so the threshold is just above cos 50°: both genuine pairs pass.
    """
    listed = Comparisons(numbers(1, 3, 9, 1, 1, 1), numbers(2, 5, 5, 3, 5, 9), torch.tensor([1, 1, 0, 0, 0, 0]).bool())
    found = verify_templates(FIVE, listed, [0.25], block=4)
    assert (found.at_fmr[0].tar, found.genuine_pairs, found.impostor_pairs) == (1.0, 2, 4)
    assert found.at_fmr[0].threshold == pytest.approx(math.cos(math.radians(50)))


def test_subjects_answer_where_the_list_does_not() -> None:
    listed = Comparisons(numbers(1, 1, 2), numbers(2, 5, 9), None)
    people = Subjects(numbers(1, 2, 5, 9), numbers(70, 70, 80, 90))
    found = verify_templates(FIVE, listed, [0.5], people)
    assert (found.genuine_pairs, found.impostor_pairs, found.at_fmr[0].tar, found.auc) == (1, 2, 1.0, 1.0)
    with pytest.raises(ValueError, match="give the subjects"):
        verify_templates(FIVE, listed, [0.5])
    with pytest.raises(ValueError, match="template 4 is compared but has no images"):
        verify_templates(FIVE, Comparisons(numbers(4), numbers(1), torch.tensor([True])), [0.5])


# --- 1:N --------------------------------------------------------------------------------------------------------------

# Galleries: people 10, 20, 30 at 0°, 90°, 180° and people 40, 50 at 45°, 270°.
FACES = templates(t1=0, t2=90, t3=180, t4=45, t5=270, t11=5, t12=80, t13=100, t14=50, t15=200, t16=265)
FIRST, SECOND = Subjects(numbers(1, 2, 3), numbers(20, 10, 30)), Subjects(numbers(4, 5), numbers(40, 50))
PROBES = Subjects(numbers(11, 12, 13, 14, 15, 16), numbers(20, 10, 20, 40, 30, 50))


def test_search_by_hand() -> None:
    """First gallery: 20 at 0°, 10 at 90°, 30 at 180°. Mated: 11 (5° away), 12 (10°), 13 (nearest is 10), 15 (20°).

    Strangers: 14, 40° from its best, and 16, 85°. At FPIR ½ one may pass: the threshold is just above cos 85°, and
    three of four mated probes are found first.
    """
    found = search(FACES, FIRST, PROBES, [0.5])
    assert (found.at_fpir[0].tpir, found.rank_one, found.gallery) == (0.75, 0.75, 3)
    assert (found.at_fpir[0].mated, found.at_fpir[0].strangers) == (4, 2)
    assert found.at_fpir[0].threshold == pytest.approx(math.cos(math.radians(85)))


def test_two_galleries_are_averaged() -> None:
    """Second gallery: 40 at 45°, 50 at 270°; 14 and 16 are mated, 5° each. Strangers: 35°, 40°, 55°, 70° away."""
    means, (first, second) = search_both(FACES, (FIRST, SECOND), PROBES, [0.5])
    assert (first.at_fpir[0].tpir, second.at_fpir[0].tpir) == (0.75, 1.0)
    assert means == (0.875,)


def test_galleries_that_make_no_open_set_are_refused() -> None:
    with pytest.raises(ValueError, match="subject 10 is in the gallery twice"):
        search(FACES, Subjects(numbers(1, 2, 3), numbers(10, 20, 10)), PROBES, [0.5])
    with pytest.raises(ValueError, match="0 of 1 probes are in the gallery"):
        search(FACES, FIRST, Subjects(numbers(14), numbers(40)), [0.5])


# --- files ------------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    file = folder / "list.txt"
    file.write_text(text)
    return file


def test_media_lists_as_ijb_b_and_c_have_them(tmp_path: Path) -> None:
    listed = lists.read_media(written(tmp_path, "1.jpg 1 69544\n2.jpg 1 69544\n3.jpg 2 1\n\n"))
    assert listed.images == ("1.jpg", "2.jpg", "3.jpg")
    assert listed.templates.tolist() == [1, 1, 2] and listed.media.tolist() == [69544, 69544, 1]
    with pytest.raises(ValueError, match="line 2: 2 words where 3 belong"):
        lists.read_media(written(tmp_path, "1.jpg 1 2\n2.jpg 1\n"))


def test_comparisons_with_and_without_answers(tmp_path: Path) -> None:
    listed = lists.read_comparisons(written(tmp_path, "1 11065 1\n1 11066 0\n"))
    assert listed.same is not None and listed.same.tolist() == [True, False]
    assert listed.left.tolist() == [1, 1] and listed.right.tolist() == [11065, 11066]
    assert lists.read_comparisons(written(tmp_path, "5,6\n7,8\n")).same is None  # IJB-A
    for text, words in (
        ("1 2 3\n", "0 or 1"),
        ("1 2\n1 2 1\n", "columns changed"),
        ("1 x\n", "'x'"),
        ("", "is empty"),
    ):
        with pytest.raises(ValueError, match=words):
            lists.read_comparisons(written(tmp_path, text))


def test_metadata_as_ijb_a_has_it(tmp_path: Path) -> None:
    text = (
        "TEMPLATE_ID,SUBJECT_ID,FILE,MEDIA_ID,SIGHTING_ID,FRAME,FACE_X\n"
        "9,113,frame/a.png,7,1,,10.0\n9,113,frame/b.png,7,1,,11.0\n4,102,img/c.jpg,8,2,,12.0\n"
    )
    file = written(tmp_path, text)
    people, listed = lists.read_subjects(file), lists.read_metadata_images(file)
    assert people.templates.tolist() == [4, 9] and people.of(numbers(9, 4, 9)).tolist() == [113, 102, 113]
    assert listed.images[2] == "img/c.jpg" and listed.templates.tolist() == [9, 9, 4]
    assert listed.media.tolist() == [7, 7, 8]


def test_metadata_of_galleries_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    assert lists.read_subjects(written(tmp_path, "TEMPLATE_ID,SUBJECT_ID\n3,30\n1,10\n")).subjects.tolist() == [10, 30]
    with pytest.raises(ValueError, match="template 3 belongs to two subjects"):
        lists.read_subjects(written(tmp_path, "TEMPLATE_ID,SUBJECT_ID\n3,30\n3,31\n"))
    with pytest.raises(ValueError, match="no column SUBJECT_ID; it has TEMPLATE_ID, NAME"):
        lists.read_subjects(written(tmp_path, "TEMPLATE_ID,NAME\n3,30\n"))
    with pytest.raises(ValueError, match="no column FILE or FILENAME"):
        lists.read_metadata_images(written(tmp_path, "TEMPLATE_ID,SUBJECT_ID\n3,30\n"))
