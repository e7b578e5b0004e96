"""Local training, written once, over a pure objective; and one client's part of a round, the same in every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from coalface import seeding, tree, wire
from coalface.data.population import ClientFaces
from coalface.data.public import Faces
from coalface.transfer import sent

if TYPE_CHECKING:
    from coalface.method import Method
    from coalface.models.net import Net

Losses = dict[str, Tensor]  # "loss" is what is minimised, other parts are logged; per image [b], or one number []


@dataclass(frozen=True)
class Batch:
    """Images of one step, with the client's own labels."""

    images: Tensor  # uint8 [b, 3, H, W]
    labels: Tensor  # int64 [b]
    real: Tensor | None = None  # bool [b]: False where an engine padded; None: all are real. For losses over pairs
    depth: Tensor | None = None  # uint8 [b, h, w], where the images come with one


def mean_losses(losses: Losses, share: Tensor) -> Losses:
    """Each part as one number: the mean over the images, of which each has this share [b] (padding has none)."""
    return {part: (value * share).sum() if value.ndim else value for part, value in losses.items()}


@dataclass(frozen=True)
class Training:
    """How a client trains in one round."""

    rate: float = 0.05  # learning rate in the first round
    rate_drops: tuple[tuple[int, float], ...] = ()  # (round, factor): from that round on, times that factor
    epochs: int = 1  # passes over the images of a round
    batch: int = 0  # images per step; 0 takes all of a round's images in one step
    images_per_round: int = 0  # a random draw of so many of the client's images each round; 0 takes all
    optimiser: Literal["sgd", "adam"] = "sgd"  # made anew each round, as all the releases do
    momentum: float = 0.0
    weight_decay: float = 0.0
    flip: bool = True  # mirror each image with probability one half
    balanced: bool = False  # as many images of each label in a step: those of a rarer one come more often

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ValueError(f"rate must be above 0, not {self.rate}")
        if self.epochs < 1 or self.batch < 0 or self.images_per_round < 0:
            raise ValueError(
                "epochs must be at least 1, batch and images_per_round at least 0, not "
                f"{self.epochs}, {self.batch} and {self.images_per_round}"
            )
        if self.optimiser not in ("sgd", "adam"):
            raise ValueError(f"optimiser must be sgd or adam, not {self.optimiser!r}")

    def rate_at(self, round_: int) -> float:
        """The learning rate of a round."""
        rate = self.rate
        for first, factor in self.rate_drops:
            rate *= factor if round_ >= first else 1.0
        return rate


@dataclass(frozen=True)
class Trained:
    """The result of local training, and what the ledger may know of it."""

    state: Any
    images: int  # images processed, epochs counted
    steps: int
    losses: dict[str, float]  # mean of each part over the steps


def train(
    objective: Callable[[Any, Batch], Losses],
    state: Any,
    faces: Faces,
    training: Training,
    round_: int,
    generator: torch.Generator,
    laid_out: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> Trained:
    """Minimise the mean of an objective over a tree of tensors, starting from ``state``, which is left as it was.

    ``laid_out`` puts tensors into the order in memory that the objective wants, once and not in every step.
    """
    flat = laid_out({name: leaf.detach().clone() for name, leaf in tree.leaves(state).items()})
    learnt = [leaf.requires_grad_() for name, leaf in flat.items() if not is_statistic(name)]
    current = tree.refill(state, flat)
    optimiser = fresh_optimiser(learnt, training, training.rate_at(round_))
    totals: Losses = {}
    images = steps = 0
    for batch in batches(faces, training, generator):
        share = torch.full((len(batch.labels),), 1 / len(batch.labels), device=batch.labels.device)
        losses = mean_losses(objective(current, batch), share)
        gradients = torch.autograd.grad(losses["loss"], learnt, allow_unused=True)
        for leaf, gradient in zip(learnt, gradients, strict=True):
            leaf.grad = gradient
        optimiser.step()
        for part, value in losses.items():
            totals[part] = totals.get(part, torch.zeros_like(value)) + value.detach()
        images, steps = images + len(batch.labels), steps + 1
    means = {part: float(total) / steps for part, total in totals.items()}
    return Trained(tree.transform(lambda leaf: leaf.detach().contiguous(), current), images, steps, means)


@dataclass(frozen=True)
class Draw:
    """Which of a client's images a step takes, on the host."""

    rows: Tensor  # int64 [b]
    mirror: Tensor  # bool [b]


def draws(labels: Tensor, training: Training, generator: torch.Generator) -> Iterator[Draw]:
    """The steps of one client's round. Which images, in which order, mirrored or not: all from the generator."""
    held = labels.shape[0]
    images = min(held, training.images_per_round or held)
    rows = torch.randperm(held, generator=generator)[:images]
    size = training.batch or max(1, images)
    for epoch in range(training.epochs):
        if training.balanced:
            rows = labels_in_turn(labels.cpu(), images, generator)
        elif epoch:
            rows = rows[torch.randperm(len(rows), generator=generator)]
        for first in range(0, images, size):
            chosen = rows[first : first + size]
            mirror = torch.rand(chosen.shape, generator=generator) < 0.5
            yield Draw(chosen, mirror if training.flip else torch.zeros_like(mirror))


def batches(faces: Faces, training: Training, generator: torch.Generator) -> Iterator[Batch]:
    """The batches of one client's round."""
    for draw in draws(faces.host_labels, training, generator):
        rows = sent(draw.rows, faces.labels.device)
        depth = None if faces.depth is None else mirrored(faces.depth[rows, None], draw.mirror)[:, 0]
        yield Batch(mirrored(faces.gather(draw.rows), draw.mirror), faces.labels[rows], depth=depth)


def labels_in_turn(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """So many rows, one label after the other in turn: any stretch of them holds each label about equally often.

    Each label's rows are shuffled; where they do not suffice, they come again, shuffled anew.
    """
    kinds = labels.unique()
    each = -(-count // max(1, len(kinds)))
    columns = []
    for kind in kinds:
        mine = (labels == kind).nonzero().flatten()
        passes = [mine[torch.randperm(len(mine), generator=generator)] for _ in range(-(-each // len(mine)))]
        columns.append(torch.cat(passes)[:each])
    return torch.stack(columns, dim=1).flatten()[:count]


def mirrored(images: Tensor, mirror: Tensor) -> Tensor:
    """Images [..., 3, H, W], those flipped left to right for which ``mirror`` [...] says so."""
    return torch.where(sent(mirror, images.device)[..., None, None, None], images.flip(-1), images)


@dataclass(frozen=True)
class ClientResult:
    """One client's part of a round: what leaves, what stays, and what the ledger may know."""

    upload: wire.Upload
    private: wire.Private | None
    images: int
    losses: dict[str, float]


def client_round(
    method: Method,
    net: Net,
    broadcast: wire.Broadcast,
    private: wire.Private | None,
    faces: ClientFaces,
    training: Training,
    round_: int,
    seed: int,
    client: int,
) -> ClientResult:
    """What a client does in a round, in simulation and on a real machine alike."""
    local = method.start(net, broadcast, private, faces, seeding.generator(seed, "start", round_, client))
    trained = train(
        lambda state, batch: method.objective(net, state, local.fixed, batch),
        local.trained,
        faces if local.faces is None else local.faces,
        training,
        round_,
        seeding.generator(seed, "batches", round_, client),
        partial(net.laid_out, kind=faces.labels.device.type),
    )
    return ClientResult(
        upload=method.upload(broadcast, trained.state, faces),
        private=method.keep(trained.state),
        images=trained.images,
        losses=trained.losses,
    )


def fresh_optimiser(
    learnt: list[Tensor], training: Training, rate: float, recorded: bool = False
) -> torch.optim.Optimizer:
    """The optimiser of one local round; it remembers nothing of earlier ones. A CUDA graph may hold a recorded one."""
    if training.optimiser == "adam":
        return torch.optim.Adam(learnt, lr=rate, weight_decay=training.weight_decay, capturable=recorded)
    return torch.optim.SGD(learnt, lr=rate, momentum=training.momentum, weight_decay=training.weight_decay)


def slowed(leaf: Tensor, share: float) -> Tensor:
    """The same numbers, with this share of their gradient: in plain SGD, a learning rate of their own."""
    return leaf.detach() + share * (leaf - leaf.detach())


def is_statistic(name: str) -> bool:
    """Normalisation statistics are moved by the forward pass, never by the optimiser."""
    return "statistics" in name.split("/")
