"""One client's images as one file, decoded already: uint8 images, their labels, and depth maps where there are some."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from coalface.data.population import ClientFaces
from coalface.data.public import Public

HELD = "held.safetensors"  # what such a file is called


def save_held(faces: ClientFaces, file: Path) -> None:
    """Everything that a client trains on; labels are its own, 0 … K − 1."""
    columns = {"images": faces.images, "labels": faces.labels}
    if faces.depth is not None:
        columns["depth"] = faces.depth
    safetensors.torch.save_file({name: column.cpu().contiguous() for name, column in columns.items()}, file)


def read_held(file: Path, size: int, classes: torch.Tensor, device: torch.device, public: Public) -> ClientFaces:
    """The same images, with their place in the federation's label space, beside what is public; or a ValueError."""
    try:
        columns = {name: column.to(device) for name, column in safetensors.torch.load_file(file).items()}
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged ({error}): copy it again, or write it anew") from error
    if {"images", "labels"} - columns.keys() or columns.keys() - {"images", "labels", "depth"}:
        raise ValueError(f"{file} must hold images and labels, and perhaps depth, not {', '.join(sorted(columns))}")
    images, labels = columns["images"], columns["labels"]
    if images.dtype != torch.uint8 or images.shape[1:] != (3, size, size):
        raise ValueError(f"{file} must hold uint8 images of 3×{size}×{size}, not {_form(images)}")
    if labels.dtype != torch.int64 or labels.shape != (len(images),):
        raise ValueError(f"{file} must hold an int64 label of each of {len(images)} images, not {_form(labels)}")
    present = labels.unique().tolist()
    if len(present) != len(classes):
        raise ValueError(f"{file} has {len(present)} labels, and {len(classes)} were agreed")
    if present != list(range(len(classes))):
        raise ValueError(f"{file} has labels from {present[0]} to {present[-1]}; they are 0 to {len(classes) - 1}")
    depth = columns.get("depth")
    if depth is not None and (depth.dtype != torch.uint8 or depth.ndim != 3 or len(depth) != len(images)):
        raise ValueError(f"{file} must hold a uint8 depth map of each of {len(images)} images, not {_form(depth)}")
    return ClientFaces(images, labels, classes, public=public, depth=depth)


def _form(column: torch.Tensor) -> str:
    return f"{column.dtype} {list(column.shape)}"
