"""What is public before the first round, as one file: the server writes it, and each client holds a copy.

Photographs and weights do not fit beside every call, and they never change: a client whose method needs them is given
the file once, by whatever way its owner trusts, and a hash in the terms says whether it is the right one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from coalface import tree
from coalface.data.faceset import FaceSet, FaceView
from coalface.data.public import Public
from coalface.models.net import Weights

NAME = "public.safetensors"


def write_public(file: Path, public: Public) -> str:
    """Write faces and backbone, without the class embeddings that only a server needs; their hash."""
    aside = file.with_name(f".{file.name}.aside")
    safetensors.torch.save_file(_leaves(public), aside)
    aside.replace(file)
    return _sha256(file)


def read_public(file: Path, device: torch.device) -> tuple[Public, str]:
    """What the file holds, and its hash; a ValueError if it is no such file."""
    try:
        public = _rebuilt(safetensors.torch.load_file(file), device)
    except KeyError as missing:
        raise ValueError(f"{file} is not a whole public set: it has no {missing}; copy the server's again") from missing
    except (SafetensorError, ValueError, RuntimeError, TypeError) as error:  # in a file of others, anything may be
        raise ValueError(f"{file} is not a public set: {error}; copy the server's again") from error
    return public, _sha256(file)


def _rebuilt(leaves: dict[str, Tensor], device: torch.device) -> Public:
    view = None
    if "faces/images" in leaves:
        images, labels = leaves["faces/images"].to(device), leaves["faces/labels"]
        faces = FaceSet(images, torch.tensor([0, len(images)]))
        view = FaceView(faces, torch.arange(len(images)), labels, int(leaves["faces/classes"]))
    weights = {name: leaf.to(device) for name, leaf in leaves.items() if name.startswith("backbone/")}
    backbone = tree.rebuild(Weights, weights, "backbone") if weights else None
    return Public(view, None, backbone)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _leaves(public: Public) -> dict[str, Tensor]:
    leaves: dict[str, Tensor] = {}
    if public.faces is not None:
        view = public.faces
        leaves["faces/images"] = view.gather(torch.arange(len(view)))
        leaves["faces/labels"] = view.labels
        leaves["faces/classes"] = torch.tensor(view.classes)
    if public.backbone is not None:
        leaves |= tree.leaves(public.backbone, "backbone")
    return {name: leaf.detach().cpu().contiguous() for name, leaf in leaves.items()}
