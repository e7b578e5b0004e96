"""What a detector decides by, and the statistics of the place where it is used."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from coalface.liveness import at_home, features
from coalface.models.net import Net, scaled

NET = Net("resnet18", outputs=1, width=2)
IMAGES = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_features_are_what_the_last_layer_reads() -> None:
    weights = NET.fresh(3)
    found = features(NET, weights, IMAGES, batch=2)
    logits = found @ weights.parameters["fc.weight"].T + weights.parameters["fc.bias"]
    assert found.shape == (6, 16) and torch.allclose(logits, NET(weights, IMAGES), atol=1e-5)


def test_statistics_of_the_place_are_those_of_its_frames() -> None:
    """Of the first batch norm they can be had by hand, from what was sent (0 and 1) and the first convolution."""
    weights = NET.fresh(3)
    here = at_home(NET, weights, IMAGES)
    first = F.conv2d(scaled(IMAGES), weights.parameters["conv1.weight"], stride=2, padding=3)
    torch.testing.assert_close(here.statistics["bn1.running_mean"], first.mean((0, 2, 3)) / 2, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(here.statistics["bn1.running_var"], (1 + first.var((0, 2, 3))) / 2, rtol=1e-4, atol=1e-5)
    assert here.parameters is weights.parameters  # nothing is trained
    assert float(weights.statistics["bn1.running_var"].max()) == 1  # and what was sent is left as it was


def test_one_frame_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="two live frames"):
        at_home(NET, NET.fresh(0), IMAGES[:1])
