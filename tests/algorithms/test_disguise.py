from __future__ import annotations

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


def finished(method: Any, folder: Path, rounds: int = 2) -> Any:
    training = Training(rate=0.05, batch=2)
    return SmallRun(method, small_net("disguise"), small_population("disguise"), folder, training).run(
        Rounds(rounds=rounds)
    )


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


def test_without_disguise_and_memory_it_is_fedgpad_without_disentanglement(tmp_path: Path) -> None:
    plain = finished(Disguise(strength=0.0, memory=0.0), tmp_path / "disguise")
    other = finished(FedGPAD(disentangle=False), tmp_path / "fedgpad")
    assert tree.sha256(plain.detector) == tree.sha256(plain.mean) == tree.sha256(other.detector)


def test_the_first_rounds_are_averaged_plainly(tmp_path: Path) -> None:
    """Memory 0.8 is reached in the fifth round; until then every round counts alike."""
    states = [finished(Disguise(), tmp_path / str(rounds), rounds) for rounds in (1, 2, 3)]
    name = "classifier.0.weight"
    mean = torch.stack([state.detector.parameters[name] for state in states]).mean(dim=0)
    torch.testing.assert_close(states[-1].mean.parameters[name], mean, rtol=0, atol=1e-6)
    assert Disguise().embedder(states[-1]) is states[-1].mean


@pytest.mark.parametrize("settings", [{"strength": -1.0}, {"memory": 1.0}, {"depth_weight": -1.0}])
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be negative, and memory is from 0 to below 1"):
        Disguise(**settings)
