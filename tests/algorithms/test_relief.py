from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import tree
from coalface.algorithms.fedgpad import FedGPAD
from coalface.algorithms.relief import Relief
from coalface.federation import Rounds
from coalface.liveness import liveness
from coalface.local import Training
from tests.conftest import SmallRun, noise_recordings, small_net, small_population


def finished(method: Any, name: str, folder: Path) -> Any:
    training = Training(rate=0.05, batch=2)
    return SmallRun(method, small_net(name), small_population(name), folder, training).run(Rounds(rounds=2))


def test_it_is_trained_as_fedgpad_without_disentanglement(tmp_path: Path) -> None:
    ours = finished(Relief(), "relief", tmp_path / "ours")
    theirs = finished(FedGPAD(disentangle=False), "fedgpad", tmp_path / "theirs")
    assert tree.sha256(ours) == tree.sha256(theirs)


def test_the_depth_map_judges() -> None:
    """As deep as a live face (0.35 on the mean) is a logit of 0, flat is one of −6; the classifier has no say."""
    net, images = small_net("relief"), noise_recordings(0).images
    weights = net.fresh(0)
    score, _, depth, _ = net.all_outputs(weights, images)
    torch.testing.assert_close(score[:, 0], 6 * depth.mean((1, 2)) / 0.35 - 6)
    torch.testing.assert_close(liveness(net, weights, images), torch.sigmoid(score[:, 0]))
    deaf = replace(
        weights,
        parameters={
            name: torch.zeros_like(leaf) if "classifier" in name else leaf for name, leaf in weights.parameters.items()
        },
    )
    assert torch.equal(liveness(net, deaf, images), liveness(net, weights, images))


def test_bad_settings_and_worlds_are_refused() -> None:
    with pytest.raises(ValueError, match="must be above 0, not 0"):
        Relief(depth_weight=0.0)
    net, people = small_net("fedpad"), small_population("fedpad")
    with pytest.raises(ValueError, match="set model=fedgpad_relief"):
        Relief().begin(net, net.fresh(0), people, torch.Generator())
    net, flat = small_net("relief"), replace(people, faces=replace(people.faces, depth=None))
    with pytest.raises(ValueError, match="use fedpad"):
        Relief().begin(net, net.fresh(0), flat, torch.Generator())
