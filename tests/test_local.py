"""Local training against numbers worked by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from coalface.data.population import ClientFaces
from coalface.local import Batch, Losses, Training, batches, labels_in_turn, train
from coalface.numerics import channels_last


@dataclass(frozen=True)
class State:
    x: Tensor
    statistics: dict[str, Tensor]


def faces(count: int) -> ClientFaces:
    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(count, 3, 2, 2)
    return ClientFaces(images, torch.arange(count), torch.arange(count))


def square(state: State, batch: Batch) -> Losses:
    """(x − 1)²: the gradient at x is 2(x − 1)."""
    return {"loss": (state.x - 1).square().sum(), "images": torch.tensor(float(len(batch.labels)))}


def start() -> State:
    return State(torch.tensor([0.0]), {"mean": torch.tensor([5.0])})


def trained(training: Training, count: int = 4, round_: int = 1) -> tuple[float, int, int]:
    result = train(square, start(), faces(count), training, round_, torch.Generator().manual_seed(0))
    assert result.state.statistics["mean"].item() == 5.0  # statistics are not the optimiser's to move
    return round(float(result.state.x), 6), result.steps, result.images


def test_tensors_are_laid_out_once_and_lie_afterwards_as_before() -> None:
    begun = State(torch.arange(48.0).reshape(2, 3, 2, 4), {})
    seen: list[tuple[int, ...]] = []

    def looked_at(state: State, batch: Batch) -> Losses:
        seen.append(state.x.stride())
        return square(state, batch)

    results = [
        train(looked_at, begun, faces(4), Training(batch=2), 1, torch.Generator().manual_seed(0), order).state.x
        for order in (dict, channels_last)
    ]
    assert seen == [(24, 8, 4, 1)] * 2 + [(24, 1, 12, 3)] * 2
    assert torch.equal(*results) and results[1].stride() == (24, 8, 4, 1)


def test_plain_sgd() -> None:
    # x ← x − 0.25·2(x − 1): 0, 0.5, 0.75
    assert trained(Training(rate=0.25)) == (0.5, 1, 4)
    assert trained(Training(rate=0.25, batch=2)) == (0.75, 2, 4)
    assert trained(Training(rate=0.25, epochs=2)) == (0.75, 2, 8)


def test_momentum() -> None:
    # v1 = −2, x1 = 0.5; v2 = 0.5·(−2) − 1 = −2, x2 = 1.0
    assert trained(Training(rate=0.25, batch=2, momentum=0.5)) == (1.0, 2, 4)


def test_weight_decay_pulls_to_zero() -> None:
    # step 1: g = −2 + 1·0, x = 0.5; step 2: g = −1 + 1·0.5 = −0.5, x = 0.625
    assert trained(Training(rate=0.25, batch=2, weight_decay=1.0)) == (0.625, 2, 4)


def test_adam_takes_a_step_of_the_rate() -> None:
    assert trained(Training(rate=0.25, optimiser="adam")) == (0.25, 1, 4)


def test_the_rate_drops_by_round() -> None:
    training = Training(rate=0.1, rate_drops=((10, 0.1), (13, 0.5)))
    assert [round(training.rate_at(r), 6) for r in (1, 9, 10, 12, 13)] == [0.1, 0.1, 0.01, 0.01, 0.005]


def test_the_start_is_left_as_it_was() -> None:
    state = start()
    train(square, state, faces(4), Training(rate=0.25), 1, torch.Generator().manual_seed(0))
    assert state.x.item() == 0.0 and not state.x.requires_grad


def test_every_image_is_seen_once_per_epoch() -> None:
    seen = [b.labels.tolist() for b in batches(faces(5), Training(batch=2, epochs=2), torch.Generator().manual_seed(1))]
    assert [len(labels) for labels in seen] == [2, 2, 1, 2, 2, 1]
    assert sorted(sum(seen[:3], [])) == sorted(sum(seen[3:], [])) == [0, 1, 2, 3, 4]
    assert seen[:3] != seen[3:]


def test_a_draw_of_images() -> None:
    training = Training(images_per_round=3)
    draws = [next(batches(faces(9), training, torch.Generator().manual_seed(s))).labels.tolist() for s in (0, 1)]
    assert [len(set(draw)) for draw in draws] == [3, 3] and draws[0] != draws[1]


def test_mirroring_is_per_image_and_optional() -> None:
    image = torch.tensor([[0, 1], [0, 1]], dtype=torch.uint8).expand(200, 3, 2, 2)
    held = ClientFaces(image, torch.zeros(200, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    (mirrored,) = batches(held, Training(flip=True), torch.Generator().manual_seed(0))
    assert 60 < int((mirrored.images[:, 0, 0, 0] == 1).sum()) < 140
    (straight,) = batches(held, Training(flip=False), torch.Generator().manual_seed(0))
    assert torch.equal(straight.images, image)


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"epochs": 0}, {"batch": -1}, {"optimiser": "lbfgs"}])
def test_bad_settings_name_the_value(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Training(**wrong)  # type: ignore[arg-type]


def test_labels_take_turns_and_the_rarer_comes_again() -> None:
    """Six attacks (rows 0 to 5) and two live frames (6 and 7): 8 rows are 4 of each."""
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    rows = labels_in_turn(labels, 8, torch.Generator().manual_seed(0))
    assert labels[rows].tolist() == [0, 1] * 4
    assert sorted(rows[1::2].tolist()) == [6, 6, 7, 7]
    assert len(set(rows[::2].tolist())) == 4  # of the others each at most once


def test_balanced_steps_hold_each_label_alike() -> None:
    held = ClientFaces(faces(8).images, torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]), torch.arange(2))
    training = Training(batch=4, epochs=2, balanced=True)
    drawn = [batch.labels.tolist() for batch in batches(held, training, torch.Generator().manual_seed(0))]
    assert [sorted(labels) for labels in drawn] == [[0, 0, 1, 1]] * 4
    once = Training(images_per_round=6, balanced=True)
    (batch,) = batches(held, once, torch.Generator().manual_seed(0))
    assert sorted(batch.labels.tolist()) == [0, 0, 0, 1, 1, 1]


def test_depth_is_mirrored_with_its_image() -> None:
    images = torch.arange(4, dtype=torch.uint8).expand(50, 3, 4, 4)
    held = ClientFaces(images, torch.zeros(50).long(), torch.zeros(1).long(), depth=images[:, 0])
    (batch,) = batches(held, Training(), torch.Generator().manual_seed(0))
    assert batch.depth is not None and torch.equal(batch.depth, batch.images[:, 0])
    assert len({int(value) for value in batch.depth[:, 0, 0]}) == 2  # some were mirrored, some not
