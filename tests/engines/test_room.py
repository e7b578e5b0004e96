from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coalface.config import method_named
from coalface.engines import room
from coalface.engines.engine import Task
from coalface.engines.room import Room, bytes_kept, evenly, room_for
from coalface.local import Training
from coalface.models.net import Net
from tests.conftest import SmallRun, noise_population


@pytest.fixture
def work(net: Net, tmp_path: Path) -> Any:
    run = SmallRun(method_named("fedface")(), net, noise_population(), tmp_path, Training())
    server = run.begin()
    opened = run.method.open_round(server, [0], torch.Generator())
    task = Task(run.method, net, run.training, 0, 1, 0, lambda client: run.method.broadcast(server, opened, client))
    local = run.method.start(net, task.broadcast(0), None, run.population[0], torch.Generator())
    return SimpleNamespace(task=task, trained=local.trained, fixed=local.fixed, images=run.population[0].images)


def test_bytes_grow_with_the_images_and_weights_are_not_among_them(work: Any) -> None:
    one, two = (bytes_kept(work.task, work.trained, work.fixed, work.images[:n]) for n in (1, 2))
    pixels = 3 * 16 * 16 * 4  # the scaled image, which the first convolution keeps
    assert pixels < one < 20 * pixels
    assert 1.5 < two / one <= 2


def test_a_small_device_takes_fewer_images(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    each, once = 1000, 5_000_000  # bytes for each image, and for the weights in another layout
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (each * 100, 0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50 * each)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 30 * each)
    monkeypatch.setattr(room, "bytes_kept", lambda task, trained, fixed, images: once + each * len(images))
    image: Any = SimpleNamespace(device=torch.device("cuda"), expand=lambda many, *_: range(many))
    # 100 are free, and 20 of what this process holds is unused: 0.4 × 120 images, 0.05 × 120 for weights.
    assert room_for(work.task, work.trained, work.fixed, image) == Room(48, 6 * each)
    assert room_for(work.task, work.trained, work.fixed, work.images[:1]) == Room(128, 256 << 20)


def test_launches_are_of_even_size() -> None:
    """64 clients, at most 10 at a time: seven launches, none of which is a small rest."""
    sizes, left = [], 64
    while left:
        sizes.append(evenly(left, most=10))
        left -= sizes[-1]
    assert sizes == [10, 9, 9, 9, 9, 9, 9]
    assert evenly(8, most=16) == 8


def test_room_is_bounded_by_images_or_by_weights_and_always_takes_one() -> None:
    room = Room(images=100, weights=1000)
    assert room.clients(images=10, weights=1) == 10
    assert room.clients(images=10, weights=300) == 3
    assert room.clients(images=101, weights=0) == 1
