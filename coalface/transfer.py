"""Between host and GPU without waiting. A plain ``tensor.to("cuda")`` waits until the GPU has done all it was given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SMALL = 64 << 10  # bytes: of a block of so many or fewer CUDA itself takes a copy at once, and returns
FEW = 64  # rows


def at_hand(rows: Tensor) -> Tensor:
    """On the host, if they are few: it is through with dozens of small operations before a GPU has been asked."""
    return rows.cpu() if len(rows) <= FEW else rows


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; what the device is given next finds it there."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return (tensor if tensor.nbytes <= SMALL else tensor.pin_memory()).to(device, non_blocking=True)


def sent_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Small tensors of the host in one transfer: each for itself, they cost more to ask for than to bring.

    Those of wider numbers come first, since a number begins at a multiple of its width.
    """
    packed = sent(torch.cat([tensor.flatten().view(torch.uint8) for tensor in tensors]), device)
    pieces = packed.split([tensor.nbytes for tensor in tensors])
    return [piece.view(tensor.dtype).view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


class Fetched:
    """Tensors on their way to the host; ``wait`` before they are read."""

    def __init__(self) -> None:
        self._done: torch.cuda.Event | None = None

    def fetch(self, tensor: Tensor) -> Tensor:
        """The tensor on the host, not there yet."""
        if not tensor.is_cuda:
            return tensor
        self._done = self._done or torch.cuda.Event()
        here = tensor.to("cpu", non_blocking=True)
        self._done.record()
        return here

    def wait(self) -> None:
        """Until everything is here. Work that the GPU was given since goes on."""
        if self._done is not None:
            self._done.synchronize()
