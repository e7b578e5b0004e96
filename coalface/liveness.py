"""What a detector says of frames: the only thing that attack detection is judged by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coalface.models.net import Net, Weights

HOME_FRAMES = 256  # at most, that statistics are taken from
HOME_SHARE = 0.5  # of the statistics at home
MOMENTUM = 0.1  # of batch norm: torch's default, which all our networks have


def liveness(net: Net, detectors: Weights | Sequence[Weights], images: Tensor, batch: int = 256) -> Tensor:
    """The probability of live [n] for uint8 images, by the running statistics; of several detectors the mean."""
    several = [detectors] if isinstance(detectors, Weights) else detectors
    if not several:
        raise ValueError("no detector to ask: give one or more")
    with torch.no_grad():
        scores = torch.stack([_one(net, weights, images, batch) for weights in several])
    return scores.mean(dim=0)


def _one(net: Net, weights: Weights, images: Tensor, batch: int) -> Tensor:
    device = next(iter(weights.parameters.values())).device
    return torch.cat([net(weights, chunk.to(device))[:, 0].sigmoid() for chunk in images.split(batch)])


def at_home(net: Net, weights: Weights, live: Tensor) -> Weights:
    """The detector as it is used in one place, of which it gets live frames, uint8 [n].

    Half of its batch-norm statistics are those of these frames (adaptive batch normalisation, Li et al. 2016): as many
    as there are live frames in the batches that it was trained with. Nobody labels anything: whoever uses a detector is
    alive.
    """
    if len(live) < 2:
        raise ValueError(f"statistics need two live frames or more, not {len(live)}")
    device = next(iter(weights.parameters.values())).device
    here = Weights(weights.parameters, {name: torch.zeros_like(leaf) for name, leaf in weights.statistics.items()})
    some = live[:: -(-len(live) // HOME_FRAMES)].to(device)
    with torch.no_grad():
        net(here, some, batch_statistics=True)  # moves statistics from zero by a tenth of the batch's
    mixed = {
        name: (1 - HOME_SHARE) * weights.statistics[name] + HOME_SHARE * leaf / MOMENTUM
        for name, leaf in here.statistics.items()
    }
    return Weights(weights.parameters, mixed)


def features(net: Net, weights: Weights, images: Tensor, batch: int = 256) -> Tensor:
    """What a detector's last part decides by, [n, d]: FedGPAD's domain-invariant features, or ResNet-18's last ones."""
    device = next(iter(weights.parameters.values())).device
    with torch.no_grad():
        return torch.cat([_features(net, weights, chunk.to(device)) for chunk in images.split(batch)])


def _features(net: Net, weights: Weights, images: Tensor) -> Tensor:
    if net.name in ("fedgpad", "fedgpad_relief"):
        invariant: Tensor = net.all_outputs(weights, images)[1]
        return invariant
    if net.name != "resnet18":
        raise ValueError(f"which features {net.name} decides by is not known; of resnet18 and fedgpad it is")
    wide = weights.parameters["fc.weight"].shape[1]
    as_they_are = {"fc.weight": torch.eye(wide).to(images.device), "fc.bias": torch.zeros(wide).to(images.device)}
    bare = Net(net.name, net.numerics, **{**net.settings, "outputs": wide})
    return bare(Weights(weights.parameters | as_they_are, weights.statistics), images)
