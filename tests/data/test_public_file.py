from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from coalface.data.faceset import FaceView
from coalface.data.public import Public
from coalface.data.public_file import read_public, write_public
from tests.conftest import noise_faces, small_net

CPU = torch.device("cpu")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Two people with four images each, and a backbone."""
    faces = FaceView(noise_faces(2, 4, seed=0), torch.arange(8), torch.tensor([0] * 4 + [1] * 4), 2)
    file = tmp_path / "public.safetensors"
    write_public(file, Public(faces, None, small_net("fedavg/positive-only").fresh(0)))
    return file


def test_what_was_written_comes_back(written: Path) -> None:
    public, sha256 = read_public(written, CPU)
    assert public.faces is not None and public.faces.classes == 2 and public.backbone is not None
    assert len(sha256) == 64


@pytest.mark.parametrize("missing", ["faces/labels", "faces/classes"])
def test_a_set_with_a_part_missing_says_which(missing: str, written: Path) -> None:
    leaves = safetensors.torch.load_file(written)
    del leaves[missing]
    safetensors.torch.save_file(leaves, written)
    with pytest.raises(ValueError, match=f"public.safetensors is not a whole public set: it has no '{missing}'; copy"):
        read_public(written, CPU)


def test_other_files_are_no_public_set(written: Path) -> None:
    leaves = safetensors.torch.load_file(written)
    safetensors.torch.save_file(leaves | {"faces/classes": torch.tensor([1, 2])}, written)
    with pytest.raises(ValueError, match="public.safetensors is not a public set: .*copy the server's again"):
        read_public(written, CPU)
    safetensors.torch.save_file(leaves | {"faces/images": torch.zeros(2)}, written)
    with pytest.raises(ValueError, match="public.safetensors is not a public set: images must be uint8"):
        read_public(written, CPU)
    written.write_bytes(b"")
    with pytest.raises(ValueError, match="public.safetensors is not a public set: "):
        read_public(written, CPU)
