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
    changed = [name for name, leaf in here.parameters.items() if leaf is not weights.parameters[name]]
    assert changed == ["fc.bias"]  # nothing is trained
    assert float(weights.statistics["bn1.running_var"].max()) == 1  # and what was sent is left as it was


@pytest.mark.parametrize(
    "net", [NET, *(Net(name, size=32, width=2) for name in ("fedgpad", "fedgpad_relief"))], ids=str
)
def test_live_frames_of_the_place_have_a_mean_logit_of_zero(net: Net) -> None:
    """Whatever the camera: what is left to tell by a threshold is how far below its own live frames a frame lies."""
    here = at_home(net, net.fresh(3), IMAGES)
    darker = at_home(net, net.fresh(3), IMAGES // 2)
    assert float(net(here, IMAGES).mean()) == pytest.approx(0, abs=1e-5)
    assert float(net(darker, IMAGES // 2).mean()) == pytest.approx(0, abs=1e-5)


def test_one_frame_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="two live frames"):
        at_home(NET, NET.fresh(0), IMAGES[:1])
