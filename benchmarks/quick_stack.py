"""Rounds of FedFace, FedFV and chorus without the federation: many settings and seeds as one stack of models.

A round of one step is one backward pass for a whole cohort, so the class embeddings of all clients can lie in one
tensor, and those of many runs in one stack: a search needs thousands of rounds, and no messages. The arithmetic is the
methods' own; the draws of cohorts are others than in `coalface run`, so numbers agree within the noise of seeds and not
bit for bit. What wins here is measured again by `coalface reproduce`.

Everybody is enrolled before the first round, every client has as many images, and all settings of a stack have the same
method, choirs, echoes, cohort and number of rounds. An equivalent of FedFV may now and then hold one person twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from coalface import cohort
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.chorus import Server as Choirs
from coalface.data.population import Population
from coalface.models.net import Net, Weights
from coalface.objectives import spread_out


@dataclass(frozen=True)
class Setting:
    """One point of a search."""

    method: Literal["FedFace", "FedFV", "chorus"]
    rate: float = 0.05
    rounds: int = 500
    cohort: int = 16
    momentum: float = 0.0  # of the server's step along the mean change
    scale: float = 16.0
    margin: float = 0.0
    embedding_rate: float = 1.0
    init: Literal["mean_feature", "random"] = "mean_feature"
    equivalents: int = 100
    fused: int = 2
    choir: int = 4
    groupings: int = 1
    # Negatives are the best guesses of single voices that all chords allow; whose are left out beside the client's own.
    echoes: Literal["", "nobody's", "mates'"] = ""
    repel: float = 0.0  # class embeddings are pushed from the negatives, as hard as images are confused with them
    # Class embeddings without what all chords (of FedFV: all class embeddings) have in common, once or in every round.
    centred: Literal["", "once", "always"] = ""
    pull: float = 0.0  # weight of FedFace's hinge, max(0, 0.9 − cos)², beside the softmax
    spread_max_cos: float = 0.3  # FedFace: the server holds class embeddings this far apart
    spread_iterations: int = 5
    drops: tuple[tuple[float, float], ...] = ((0.8, 0.2),)  # (share of the rounds, factor of the rate from there on)

    def label(self) -> str:
        """What differs from the defaults, in one line; how the rate falls is the world's."""
        plain = vars(Setting(self.method))
        changed = {name: value for name, value in vars(self).items() if value != plain[name] and name != "drops"}
        told = [name if value is True else f"{name} {value}" for name, value in changed.items()]
        return ", ".join([self.method, *told])


@dataclass
class Clients:
    """Everybody's images in one place, one identity each."""

    net: Net
    population: Population
    start: Weights
    rows: list[Tensor] = field(init=False)  # of each client's images
    images: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.images = self.population.faces.images
        self.rows = [self.population[client].rows for client in range(len(self.population))]  # type: ignore[misc]

    def mean_features(self, weights: Weights, called: list[int]) -> Tensor:
        """Of all images of each of these clients, [c, d]."""
        found = []
        with torch.no_grad():
            for client in called:
                features = F.normalize(self.net(weights, self.images[self.rows[client].to(self.images.device)]), dim=1)
                found.append(F.normalize(features.mean(dim=0), dim=0))
        return torch.stack(found)


class Choir:
    """Who sings with whom, and when."""

    def __init__(self, setting: Setting, clients: int) -> None:
        method = Chorus(choir=setting.choir, groupings=setting.groupings)
        self.each, self.groupings = setting.choir, setting.groupings
        self.number = clients // setting.choir
        heard = torch.zeros(self.number * setting.groupings)
        server = Choirs(Weights({}, {}), heard, heard, clients)
        self.members = [method.members(server, choir) for choir in range(len(heard))]
        own = [
            [method.choir_of(server, client, turn) for turn in range(setting.groupings)] for client in range(clients)
        ]
        self.own = torch.tensor(own)  # [C, R]
        self.member = torch.zeros(len(heard), clients)  # who is in which choir
        for choir, members in enumerate(self.members):
            self.member[choir, members] = 1.0
        self.turn = 0
        self.singing: list[int] = []

    def called(self, size: int, luck: torch.Generator) -> list[int]:
        drawn = cohort.draw(self.number, max(1, size // self.each), luck)
        self.singing = [self.turn * self.number + choir for choir in drawn]
        return sorted(client for choir in self.singing for client in self.members[choir])


@dataclass
class Numbers:
    """One number of every setting, as [M, 1, …] tensors."""

    settings: list[Setting]
    device: torch.device

    def of(self, name: str, dimensions: int) -> Tensor:
        values = torch.tensor([float(getattr(one, name)) for one in self.settings], device=self.device)
        return values.reshape(-1, *[1] * dimensions)


def trained_together(clients: list[Clients], settings: list[Setting], seed: int) -> list[Weights]:
    """Every setting on every one of the clients, setting by setting: the backbones after all rounds."""
    first, net, device = settings[0], clients[0].net, clients[0].images.device
    several = [setting for setting in settings for _ in clients]
    whose = torch.arange(len(clients), device=device).repeat(len(settings))  # model -> its clients
    faces = torch.stack([torch.stack([one.images[rows.to(device)] for rows in one.rows]) for one in clients])
    people, each = faces.shape[1:3]
    names = list(clients[0].start.parameters)
    starts = {name: torch.stack([one.start.parameters[name] for one in clients]) for name in names}
    backbone = {name: leaf[whose].clone() for name, leaf in starts.items()}
    velocity = {name: torch.zeros_like(leaf) for name, leaf in backbone.items()}
    luck, drawing = torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed)
    if first.init == "random":
        drawn = torch.randn(len(clients), people, net.embedding, generator=luck)
        enrolled = F.normalize(drawn, dim=2).to(device)
    else:
        enrolled = torch.stack([one.mean_features(one.start, list(range(people))) for one in clients])
    voices = enrolled[whose].clone()
    if first.centred:
        voices = _without(voices, voices)
    choirs = Choir(first, people) if first.method == "chorus" else None
    models = torch.arange(len(several), device=device)[:, None]
    numbers = Numbers(several, device)
    chords = _sung(voices, choirs) if choirs else voices[:, :0]
    own = choirs.own.to(device) if choirs else None
    guess = torch.linalg.pinv(choirs.member).to(device) if choirs else None
    known = choirs.member.T @ choirs.member > 0 if choirs and first.echoes == "mates'" else torch.eye(people) > 0
    for round_ in range(first.rounds):
        rates = torch.tensor([_rate(one, round_) for one in several], device=device)
        if choirs:  # the same choirs in every model: they sing in turn
            called = torch.tensor(choirs.called(first.cohort, luck), device=device)
            here = called.expand(len(several), -1)
            absent = torch.zeros(len(called), chords.shape[1], dtype=torch.bool, device=device)
            absent = absent.scatter(1, own[called], True)[None]  # type: ignore[index]
            negatives = chords
            if first.echoes:
                negatives, absent = F.normalize(guess @ chords, dim=2), known.to(device)[called][None]
        else:
            called = torch.tensor(cohort.draw(people, first.cohort, luck), device=device)
            here = called.expand(len(several), -1)
            outside = torch.ones(people, device=device).index_fill(0, called, 0.0)
            pairs = torch.multinomial(outside, first.equivalents * first.fused, True, generator=drawing)
            pairs = pairs.reshape(first.equivalents, first.fused)
            negatives = F.normalize(voices[:, pairs].sum(dim=2), dim=2)
            absent = torch.zeros(1, len(called), first.equivalents, dtype=torch.bool, device=device)
            if first.method == "FedFace":  # it has none
                negatives, absent = voices[:, :0], absent[:, :, :0]
        images = faces[whose[:, None], here].flatten(1, 2)
        mirror = torch.rand(images.shape[:2], generator=drawing, device=device) < 0.5
        images = torch.where(mirror[..., None, None, None], images.flip(-1), images)
        mine = voices[models, here]
        if first.centred == "always":
            mine = _without(mine, chords if choirs else voices)
        mine = mine.requires_grad_()
        learnt = {name: leaf.detach().requires_grad_() for name, leaf in backbone.items()}
        features = vmap(lambda held, shown: net(Weights(held, {}), shown))(learnt, images)
        features = F.normalize(features, dim=2).unflatten(1, (len(called), each))  # [M, c, b, d]
        losses = _losses(features, mine, negatives, absent, numbers)  # [M, c]
        *gradients, pull = torch.autograd.grad(losses.mean(dim=1).sum(), [*learnt.values(), mine])
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                shape = (-1, *[1] * (gradient.ndim - 1))
                momentum = numbers.of("momentum", gradient.ndim - 1)
                velocity[name] = momentum * velocity[name] - rates.reshape(shape) * gradient
                backbone[name] = backbone[name] + velocity[name]
            steps = rates[:, None, None] * numbers.of("embedding_rate", 2) * pull * len(called)
            voices[models, here] = F.normalize(mine.detach() - steps, dim=2)
            if choirs:
                _sing(chords, voices, choirs)
            if first.method == "FedFace":
                voices = _spread(voices, first.spread_iterations, numbers.of("spread_max_cos", 2))
    return [Weights({name: leaf[model] for name, leaf in backbone.items()}, {}) for model in range(len(several))]


def _rate(setting: Setting, round_: int) -> float:
    rate = setting.rate
    for share, factor in setting.drops:
        rate *= factor if round_ >= share * setting.rounds else 1.0
    return rate


def _losses(features: Tensor, mine: Tensor, negatives: Tensor, absent: Tensor, numbers: Numbers) -> Tensor:
    """Of each client [M, c]."""
    unit, scale = F.normalize(mine, dim=2), numbers.of("scale", 3)
    own = (features * unit[:, :, None]).sum(dim=3, keepdim=True) - numbers.of("margin", 3)
    others = torch.einsum("mcbd,mnd->mcbn", features, negatives).masked_fill(absent[:, :, None], -torch.inf)
    logits = scale * torch.cat([own, others], dim=3)
    loss = torch.logsumexp(logits, dim=3) - logits[..., 0]
    share = torch.softmax(logits, dim=3)[..., 1:].detach()
    near = torch.einsum("mcd,mnd->mcn", unit, negatives).masked_fill(absent, 0.0)[:, :, None]
    away = numbers.of("repel", 2) * scale[..., 0] * (share * near).sum(dim=3)
    # Without negatives the softmax is 0, and FedFace's hinge is all that there is.
    short = F.relu(0.9 - own[..., 0] - numbers.of("margin", 2))
    return (loss + away + numbers.of("pull", 2) * short.square()).mean(dim=2)


def _without(voices: Tensor, heard: Tensor) -> Tensor:
    """Unit rows [M, c, d] without the mean direction of what was heard [M, n, d]."""
    common = F.normalize(heard.mean(dim=1, keepdim=True), dim=2)
    return F.normalize(voices - (voices * common).sum(dim=2, keepdim=True) * common, dim=2)


def _spread(voices: Tensor, iterations: int, max_cos: Tensor) -> Tensor:
    """`spread_out.by_row` of every model's class embeddings [M, C, d], each with its own margin [M, 1, 1]."""
    itself = 2.0 * torch.eye(voices.shape[1], device=voices.device)
    for _ in range(iterations):
        cosines = voices @ voices.mT - itself
        excess = F.relu(cosines - max_cos)
        push = 4 * (excess @ voices) / (excess > 0).sum(dim=2, keepdim=True).clamp(min=1)
        tangent = push - (push * voices).sum(dim=2, keepdim=True) * voices
        near_enough = cosines.amax(dim=(1, 2), keepdim=True) <= max_cos + spread_out.NEAR_ENOUGH
        voices = torch.where(near_enough, voices, F.normalize(voices - spread_out.STEP * tangent, dim=2))
    return voices


def _sung(voices: Tensor, choirs: Choir) -> Tensor:
    return F.normalize(torch.stack([voices[:, members].sum(dim=1) for members in choirs.members], dim=1), dim=2)


def _sing(chords: Tensor, voices: Tensor, choirs: Choir) -> None:
    sung = torch.stack([voices[:, choirs.members[choir]].sum(dim=1) for choir in choirs.singing], dim=1)
    chords[:, torch.tensor(choirs.singing, device=voices.device)] = F.normalize(sung, dim=2)
    choirs.turn = (choirs.turn + 1) % choirs.groupings
