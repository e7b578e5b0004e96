"""Public faces on a client: which of them look like its own people, and where their classes lie (FedFR).

The public set is gone through block by block, so that it may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.data.faceset import FaceView
from coalface.data.population import ClientFaces
from coalface.models.net import Net, Weights

BLOCK = 256  # images through the network at a time
REMEMBERED = 2 << 30  # bytes of public features kept while the backbone stays the same


def unit_features(net: Net, backbone: Weights, images: Tensor) -> Tensor:
    """Normalised features [n, d] by the running statistics, without a gradient."""
    device = next(iter(backbone.parameters.values())).device
    with torch.no_grad():
        return torch.cat([F.normalize(net(backbone, block.to(device)), dim=1) for block in images.split(BLOCK)])


def hard_negatives(net: Net, backbone: Weights, images: Tensor, public: FaceView, threshold: float) -> Tensor:
    """Places in ``public``, rising, of the images that have a cosine above the threshold to any of ``images``."""
    own = unit_features(net, backbone, images)
    found, first = [torch.empty(0, dtype=torch.int64)], 0
    for features in _public_features(net, backbone, public):
        closest = (features @ own.T).amax(dim=1)
        found.append(first + (closest > threshold).nonzero().flatten().cpu())
        first += len(features)
    return torch.cat(found)


def class_means(net: Net, backbone: Weights, faces: FaceView) -> Tensor:
    """Of each class the mean of its normalised features, normalised, [K, d]; a class without images is zero."""
    device = next(iter(backbone.parameters.values())).device
    sums = torch.zeros(faces.classes, net.embedding, device=device)
    for images, labels in faces.blocks(BLOCK):
        features = unit_features(net, backbone, images)
        sums = sums.to(features.dtype).index_add_(0, labels.to(device), features)
    return F.normalize(sums, dim=1)


def own_class_means(net: Net, backbone: Weights, faces: ClientFaces) -> Tensor:
    """The same of a client's own identities, [K, d]."""
    features = unit_features(net, backbone, faces.images)
    sums = features.new_zeros(len(faces.classes), net.embedding).index_add_(0, faces.labels, features)
    return F.normalize(sums, dim=1)


def _public_features(net: Net, backbone: Weights, public: FaceView) -> Iterator[Tensor]:
    if len(public) * net.embedding * 4 <= REMEMBERED:
        yield from _remembered(net, backbone, public).split(BLOCK * 64)
    else:
        for images, _ in public.blocks(BLOCK):
            yield unit_features(net, backbone, images)


@lru_cache(maxsize=1)  # in simulation all clients of a round ask with one and the same backbone
def _remembered(net: Net, backbone: Weights, public: FaceView) -> Tensor:
    blocks = [unit_features(net, backbone, images) for images, _ in public.blocks(BLOCK)]
    return torch.cat(blocks) if blocks else torch.empty(0, net.embedding)
