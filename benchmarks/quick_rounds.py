"""Rounds of FedFV, chorus and FedFace without the federation around them: a search needs thousands, and no messages.

A round of one step is one backward pass for the whole cohort, so the class embeddings of all clients can lie in one
tensor. The arithmetic is the methods' own; the draws of cohorts and images are others than in `coalface run`, so
numbers agree within the noise of seeds and not bit for bit. What wins here is measured again by `coalface reproduce`.

"shared" is what the others are held against: the same cohorts, but with everybody's class embedding in one classifier
that every image moves, as in fedavg/shared-head. What it loses to central training, cohorts lose; the rest is lost by
what a method's clients are not told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import cohort
from coalface.algorithms.chorus import Chorus
from coalface.algorithms.chorus import Server as Choirs
from coalface.algorithms.fedfv import distinct, fuse
from coalface.data.population import Population
from coalface.local import mirrored
from coalface.models.net import Net, Weights
from coalface.objectives import spread_out


@dataclass(frozen=True)
class Setting:
    """One point of a search."""

    method: Literal["FedFV", "chorus", "FedFace", "shared"]
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
    anchors: bool = False  # the public people's class embeddings are negatives too
    enrolled: bool = False  # everybody's class embedding is there before the first round
    repel: float = 0.0  # class embeddings are pushed from the negatives, as hard as images are confused with them
    spread: int = 0  # steps by which the server spreads all class embeddings, each round (FedFace: 5)
    spread_once: int = 0  # and before the first
    target: float = 0.9  # of FedFace's hinge
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
    public: Tensor | None = None  # class embeddings of the public people [P, d]
    images_per_round: int = 0
    rows: list[Tensor] = field(init=False)  # of each client's images
    images: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.images = self.population.faces.images
        self.rows = [self.population[client].rows for client in range(len(self.population))]  # type: ignore[misc]

    def drawn(self, called: list[int], luck: torch.Generator) -> tuple[Tensor, Tensor]:
        """Images of the cohort, one client's after the other's, and whose each is (by place in the cohort)."""
        most = self.images_per_round or 1 << 30
        chosen = [self.rows[c][torch.randperm(len(self.rows[c]), generator=luck)[:most]] for c in called]
        whose = torch.repeat_interleave(torch.tensor([len(rows) for rows in chosen]))
        rows = torch.cat(chosen)
        mirror = torch.rand(len(rows), generator=luck) < 0.5
        images = self.images[rows.to(self.images.device)]
        return mirrored(images, mirror), whose.to(images.device)

    def mean_features(self, weights: Weights, called: list[int]) -> Tensor:
        """Of all images of each of these clients, [c, d]."""
        found = []
        with torch.no_grad():
            for client in called:
                features = F.normalize(self.net(weights, self.images[self.rows[client].to(self.images.device)]), dim=1)
                found.append(F.normalize(features.mean(dim=0), dim=0))
        return torch.stack(found)


def trained(clients: Clients, setting: Setting, seed: int) -> Weights:
    """The backbone after all rounds."""
    luck = torch.Generator().manual_seed(seed)
    device, count = clients.images.device, len(clients.population)
    backbone = clients.start.map(lambda leaf: leaf.clone())
    voices = torch.zeros(count, clients.net.embedding, device=device)
    if setting.init == "random":
        voices = F.normalize(torch.randn(voices.shape, generator=luck), dim=1).to(device)
    known = torch.full((count,), setting.init == "random")
    velocity = [torch.zeros_like(leaf) for leaf in backbone.parameters.values()]
    choirs = Choir(setting, count, voices) if setting.method == "chorus" else None
    if setting.enrolled:
        if setting.init == "mean_feature":
            voices = clients.mean_features(backbone, list(range(count)))
        known[:] = True
        if setting.spread_once:
            voices = spread_out.by_row(voices, 0.3, setting.spread_once)
        if choirs:
            choirs.all_sing(voices)
    for round_ in range(setting.rounds):
        rate = setting.rate
        for share, factor in setting.drops:
            rate *= factor if round_ >= share * setting.rounds else 1.0
        called = choirs.called(setting.cohort, luck) if choirs else cohort.draw(count, setting.cohort, luck)
        here = torch.tensor(called)
        new = [client for client in called if not known[client]]
        if new:
            voices[torch.tensor(new, device=device)] = clients.mean_features(backbone, new)
        images, whose = clients.drawn(called, luck)
        negatives, absent = _negatives(clients, setting, voices, known, here, choirs, luck)
        if setting.method == "shared":  # every image moves everybody's
            whose_voice, here = here.to(device)[whose], torch.arange(count)
        else:
            whose_voice = whose
        mine = voices[here.to(device)].requires_grad_()
        parameters = {name: leaf.requires_grad_() for name, leaf in backbone.parameters.items()}
        features = F.normalize(clients.net(Weights(parameters, backbone.statistics), images), dim=1)
        losses = _losses(features, mine, whose_voice, negatives, absent, setting)
        each = torch.bincount(whose, minlength=len(called)).to(losses)
        held = torch.tensor([float(len(clients.rows[client])) for client in called], device=device)
        weight = held / held.sum()
        total = (losses * (weight / each)[whose]).sum()
        *gradients, pull = torch.autograd.grad(total, [*parameters.values(), mine], allow_unused=True)
        with torch.no_grad():
            for speed, gradient in zip(velocity, gradients, strict=True):
                speed.mul_(setting.momentum).sub_(rate * gradient)
            moved = torch._foreach_add([leaf.detach() for leaf in parameters.values()], velocity)
            backbone = Weights(dict(zip(parameters, moved, strict=True)), backbone.statistics)
            steps = rate * setting.embedding_rate * (pull if setting.method == "shared" else pull / weight[:, None])
            voices[here.to(device)] = F.normalize(mine.detach() - steps, dim=1)
            known[here] = True
            if setting.spread:
                there = known.to(device)
                voices[there] = spread_out.by_row(voices[there], 0.3, setting.spread)
            if choirs:
                choirs.heard_singing(voices)
    return backbone


class Choir:
    """Who sings with whom, and the chords that were heard."""

    def __init__(self, setting: Setting, clients: int, voices: Tensor) -> None:
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
        self.chords = torch.zeros(len(heard), voices.shape[1], device=voices.device)
        self.heard = torch.zeros(len(heard), dtype=torch.bool)
        self.turn = 0
        self.singing: list[int] = []

    def called(self, size: int, luck: torch.Generator) -> list[int]:
        drawn = cohort.draw(self.number, max(1, size // self.each), luck)
        self.singing = [self.turn * self.number + choir for choir in drawn]
        return sorted(client for choir in self.singing for client in self.members[choir])

    def all_sing(self, voices: Tensor) -> None:
        self.singing = list(range(len(self.members)))
        self.heard_singing(voices)
        self.turn = 0

    def heard_singing(self, voices: Tensor) -> None:
        for choir in self.singing:
            members = torch.tensor(self.members[choir], device=voices.device)
            self.chords[choir] = F.normalize(voices[members].sum(dim=0), dim=0)
        self.heard[self.singing] = True
        self.turn = (self.turn + 1) % self.groupings


def _negatives(
    clients: Clients,
    setting: Setting,
    voices: Tensor,
    known: Tensor,
    here: Tensor,
    choirs: Choir | None,
    luck: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Unit rows [n, d], and for each of the cohort which are not there for it, bool [c, n]."""
    device = voices.device
    if choirs:
        rows, absent = choirs.chords, (~choirs.heard).expand(len(here), -1).clone()
        absent.scatter_(1, choirs.own[here], True)
    elif setting.method == "FedFV":
        outside = known.index_fill(0, here, False).nonzero().flatten()
        enough = len(outside) >= setting.fused
        drawn = outside[distinct(len(outside), setting.equivalents, setting.fused, luck)] if enough else None
        rows = voices[:0] if drawn is None else fuse(voices, drawn)
        absent = torch.zeros(len(here), len(rows), dtype=torch.bool)
    else:
        return voices[:0], torch.zeros(len(here), 0, dtype=torch.bool, device=device)
    if setting.anchors and clients.public is not None:
        public = F.normalize(clients.public.to(device), dim=1)
        rows = torch.cat([rows, public])
        absent = torch.cat([absent, torch.zeros(len(here), len(public), dtype=torch.bool)], dim=1)
    return rows, absent.to(device)


def _losses(
    features: Tensor, voices: Tensor, whose: Tensor, negatives: Tensor, absent: Tensor, setting: Setting
) -> Tensor:
    """Of each image [b]."""
    unit = F.normalize(voices, dim=1)
    if setting.method == "shared":
        return F.cross_entropy(setting.scale * features @ unit.T, whose, reduction="none")
    mine = (features * unit[whose]).sum(dim=1)
    if setting.method == "FedFace":
        return F.relu(setting.target - mine).square()
    others = (features @ negatives.T).masked_fill(absent[whose], -torch.inf)
    logits = setting.scale * torch.cat([(mine - setting.margin)[:, None], others], dim=1)
    loss = torch.logsumexp(logits, dim=1) - logits[:, 0]
    if not setting.repel:
        return loss
    share = torch.softmax(logits, dim=1)[:, 1:].detach()
    near = (unit @ negatives.T)[whose].masked_fill(absent[whose], 0.0)
    return loss + setting.repel * setting.scale * (share * near).sum(dim=1)
