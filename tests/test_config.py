"""Settings that no run can have are refused when they are set, before anything is drawn, read or written."""

from __future__ import annotations

import pytest

from coalface import config
from coalface.config import ConfigError, DetectionRun, Run


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("central.rounds=-1", "central: rounds is at least 0, not -1; 0 leaves this training out"),
        ("pretrain.rounds=-3", "pretrain: rounds is at least 0, not -3; 0 leaves this training out"),
        ("embedding=0", "embedding is how many numbers a face becomes, at least 1, not 0"),
        ("model=resnet18", "model: 'resnet18' is not for faces; networks for faces are feduv_cnn, "),
        ("model=resnet99", "model: there is no model 'resnet99'; networks for faces are feduv_cnn, "),
        ("privacy.secure_sum=True", "privacy.secure_sum must be true or false, not 'True'"),
        ("rounds.rounds=ten", "rounds.rounds must be a whole number, not 'ten'"),
        ("rounds.max_norm=NaN", "rounds.max_norm must be a finite number, not nan"),  # it would be no bound
        ("training.rate=Infinity", "training.rate must be a finite number, not inf"),
        ("rounds.rouns=3", "no setting 'rounds.rouns'; did you mean rounds.rounds?"),
        ("sead=3", "no setting 'sead'; did you mean seed?"),
    ],
)
def test_a_run_refuses(setting: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config.override(Run(), [setting])
    assert str(refused.value).startswith(says)
    assert "resnet18," not in str(refused.value).replace("iresnet18,", "")  # nor is it among what is offered


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("width=0", "width is the channels of the first layer, at least 1, not 0"),
        ("model=sphere20", "'sphere20' is not for attack detection; networks for attack detection are resnet18, "),
        ("model=fedgpad_specific", "'fedgpad_specific' is not for attack detection"),
    ],
)
def test_a_run_of_attack_detection_refuses(setting: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config.override(DetectionRun(), [setting])


def test_training_for_no_rounds_is_left_out() -> None:
    run = config.override(Run(), ["central.rounds=0", "pretrain.rounds=0"])
    assert run.central.rounds == run.pretrain.rounds == 0
