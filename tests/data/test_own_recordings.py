from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from coalface.data.held_file import read_held, save_held
from coalface.data.own_recordings import read_own, save
from coalface.data.public import Public
from coalface.data.recordings import ATTACKS
from coalface.report.png import encode_png
from tests.conftest import noise_population, noise_recordings


def test_plain_folders_are_read_by_kind(tmp_path: Path) -> None:
    recorded = noise_recordings(seed=3)
    for number, (image, kind) in enumerate(zip(recorded.images, recorded.attack.tolist(), strict=True)):
        place = tmp_path / ATTACKS[kind]
        place.mkdir(exist_ok=True)
        (place / f"{number}.png").write_bytes(encode_png(image))
    found = read_own(tmp_path, size=32)
    assert sorted(found.attack.tolist()) == sorted(recorded.attack.tolist())
    live = recorded.images[recorded.live]
    assert torch.equal(found.images[found.live], live)  # PNG loses nothing
    assert bool(found.depth[found.live].any()) and not bool(found.depth[~found.live].any())


def test_decoded_frames_come_back_with_their_depth(tmp_path: Path) -> None:
    recorded = noise_recordings(seed=3)
    save(recorded, tmp_path / "recordings.safetensors")
    found = read_own(tmp_path / "recordings.safetensors", size=32)
    assert torch.equal(found.images, recorded.images) and torch.equal(found.depth, recorded.depth)
    with pytest.raises(ValueError, match="frames of 32 pixels, and the detector takes 64"):
        read_own(tmp_path / "recordings.safetensors", size=64)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with pytest.raises(ValueError, match="holds no attacks"):
        read_own(tmp_path, size=32)
    with pytest.raises(ValueError, match="no layout 'oulu'; there are oulu-npu"):
        read_own(tmp_path, size=32, layout="oulu")


def test_one_clients_images_as_a_file(tmp_path: Path) -> None:
    faces = noise_population(clients=2, identities_each=2)[1]
    save_held(faces, tmp_path / "held.safetensors")
    device = torch.device("cpu")
    found = read_held(tmp_path / "held.safetensors", 16, faces.classes, device, Public())
    assert torch.equal(found.images, faces.images) and torch.equal(found.labels, faces.labels)
    assert found.classes.tolist() == [2, 3]
    with pytest.raises(ValueError, match="2 labels, and 1 were agreed"):
        read_held(tmp_path / "held.safetensors", 16, faces.classes[:1], device, Public())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": torch.zeros(8, 3, 16, 16)}, "must hold uint8 images of 3×16×16, not torch.float32"),
        ({"images": torch.tensor(0, dtype=torch.uint8)}, "must hold uint8 images of 3×16×16"),
        ({"labels": torch.tensor(0)}, "an int64 label of each of 8 images, not torch.int64 \\[\\]"),
        ({"labels": torch.tensor([0, 1] * 4).float()}, "an int64 label of each of 8 images, not torch.float32"),
        ({"labels": torch.tensor([0, 7] * 4)}, "labels from 0 to 7; they are 0 to 1"),
        ({"depth": torch.zeros(7, 4, 4, dtype=torch.uint8)}, "a uint8 depth map of each of 8 images"),
        ({"names": torch.zeros(1)}, "must hold images and labels"),
    ],
)
def test_a_held_file_of_another_form_is_refused(change: dict[str, torch.Tensor], says: str, tmp_path: Path) -> None:
    faces, file = noise_population(clients=2, identities_each=2)[1], tmp_path / "held.safetensors"
    safetensors.torch.save_file({"images": faces.images, "labels": faces.labels} | change, file)
    with pytest.raises(ValueError, match=f"held.safetensors .*{says}"):
        read_held(file, 16, faces.classes, torch.device("cpu"), Public())


@pytest.mark.parametrize("length", [0, 7, 60, -1])
def test_a_held_file_that_was_cut_short_is_refused(length: int, tmp_path: Path) -> None:
    faces, file = noise_population(clients=2, identities_each=2)[1], tmp_path / "held.safetensors"
    save_held(faces, file)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"held.safetensors is damaged \(.*copy it again"):
        read_held(file, 16, faces.classes, torch.device("cpu"), Public())
