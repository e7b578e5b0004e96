from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coalface import tree
from coalface.algorithms.disguise import Disguise
from coalface.algorithms.fedgpad import FedGPAD
from coalface.data.disguise import disguised, draw_luck
from coalface.federation import Rounds
from coalface.local import Training
from coalface.models.net import scaled
from tests.conftest import SmallRun, noise_recordings, small_net, small_population

LUCK = draw_luck((32, 32), torch.Generator().manual_seed(0), torch.device("cpu"))


def finished(method: Any, folder: Path) -> Any:
    training = Training(rate=0.05, batch=2)
    return SmallRun(method, small_net("disguise"), small_population("disguise"), folder, training).run(Rounds(rounds=2))


def test_without_strength_nothing_changes() -> None:
    images = noise_recordings(0).images
    assert torch.equal(disguised(images, LUCK, 0.0), scaled(images))
    torch.testing.assert_close(disguised(images, LUCK, 1e-6), scaled(images), rtol=0, atol=1e-3)


def test_each_image_has_its_own_camera_the_same_in_every_call() -> None:
    images = noise_recordings(0).images
    one, two = disguised(images, LUCK, 1.0), disguised(images, LUCK, 1.0)
    assert torch.equal(one, two)
    torch.testing.assert_close(disguised(images[2:3], LUCK, 1.0), one[2:3])
    changed = (one - scaled(images)).flatten(1)
    assert float(changed.abs().mean(1).min()) > 0.01  # all of them
    assert float(changed.mean(1).std()) > 0.05  # not all alike
    assert float(one.min()) >= -1 and float(one.max()) <= 1


def test_another_round_is_another_camera() -> None:
    images = noise_recordings(0).images
    other = draw_luck((32, 32), torch.Generator().manual_seed(1), torch.device("cpu"))
    assert not torch.equal(disguised(images, LUCK, 1.0), disguised(images, other, 1.0))


def test_without_disguise_it_is_fedgpad_without_disentanglement(tmp_path: Path) -> None:
    plain = finished(Disguise(strength=0.0), tmp_path / "plain")
    fedgpad = finished(FedGPAD(disentangle=False), tmp_path / "fedgpad")
    assert tree.sha256(plain) == tree.sha256(fedgpad)
    assert tree.sha256(finished(Disguise(), tmp_path / "disguise")) != tree.sha256(plain)


def test_bad_settings_and_worlds_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be below 0, not -1"):
        Disguise(strength=-1.0)
    net, people = small_net("fedpad"), small_population("fedpad")
    with pytest.raises(ValueError, match="set model=fedgpad"):
        Disguise().begin(net, net.fresh(0), people, torch.Generator())
    net, flat = small_net("disguise"), replace(people, faces=replace(people.faces, depth=None))
    with pytest.raises(ValueError, match="method.depth_weight=0"):
        Disguise().begin(net, net.fresh(0), flat, torch.Generator())
