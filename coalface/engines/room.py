"""How much goes into one launch: enough to fill the device, and no more than its free memory holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from coalface import tree
from coalface.engines.engine import Task
from coalface.local import Batch, is_statistic, mean_losses

IMAGES = {"cuda": 1024, "cpu": 128}  # more makes no device faster, and what comes before the first launch longer
WEIGHTS = {"cuda": 4 << 30, "cpu": 256 << 20}  # bytes of stacked weights; gradients and momentum take as much each
FOR_IMAGES = 0.4  # of the free memory: two launches overlap, and a backward pass needs more than what it reads
FOR_WEIGHTS = 0.05


@dataclass(frozen=True)
class Room:
    """Of one launch."""

    images: int
    weights: int  # bytes

    def clients(self, images: int, weights: int) -> int:
        """How many clients with so many images and bytes of their own there is room for; one, if even that is tight."""
        return max(1, min(self.images // max(1, images), self.weights // max(1, weights)))


def evenly(clients: int, most: int) -> int:
    """The size of the next launch, so that the last one is not a small rest: 64 by at most 10 begin with 10, then 9."""
    return ceil(clients / ceil(clients / most))


def room_for(task: Task, trained: object, fixed: object, image: Tensor) -> Room:
    """The room for clients like the one that trains and reads this; ``image`` is uint8 [1, 3, H, W]."""
    kind = image.device.type
    if kind != "cuda":
        return Room(IMAGES[kind], WEIGHTS[kind])
    free = torch.cuda.mem_get_info(image.device)[0]
    free += torch.cuda.memory_reserved(image.device) - torch.cuda.memory_allocated(image.device)
    one, two = (bytes_kept(task, trained, fixed, image.expand(many, -1, -1, -1)) for many in (1, 2))
    each = max(1, two - one)  # not the first: with it come copies of the weights in the device's layout
    return Room(max(1, min(IMAGES[kind], int(FOR_IMAGES * free / each))), min(WEIGHTS[kind], int(FOR_WEIGHTS * free)))


def room_on_cores() -> Room:
    """Where hardly more clients train at a time than there are cores: for what stays of each until all have done."""
    return Room(sys.maxsize, WEIGHTS["cpu"])


def bytes_kept(task: Task, trained: object, fixed: object, images: Tensor) -> int:
    """What a forward pass keeps for the backward pass, but for the weights themselves."""
    flat = {name: leaf.detach() for name, leaf in tree.leaves(trained).items()}
    held = {name: leaf if is_statistic(name) else leaf.requires_grad_() for name, leaf in flat.items()}
    weights = {leaf.untyped_storage().data_ptr() for leaf in held.values()}
    kept: dict[int, int] = {}

    def noted(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    share = torch.full(labels.shape, 1 / len(images), device=images.device)
    with torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
        batch = Batch(images, labels, share > 0)
        losses = mean_losses(task.method.objective(task.net, tree.refill(trained, held), fixed, batch), share)
    del losses
    return sum(kept.values())
