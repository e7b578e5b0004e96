"""(5) Template inversion: a picture of the person from a face template.

attacker   the server, or whoever comes to hold a template. It follows the protocol.
sees       templates: the guesses of attack 1 (`view`), or, where only sums are seen, those that a method reveals; the
           broadcast backbone; and public faces, on which it trains a decoder from embeddings to images.
success    the picture is taken for the person by a network that took no part (`judge`), at an FMR of 5 %.
chance     that FMR. Likeness of pixels stands beside it: SSIM to the person's photographs, and to strangers'.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coalface import seeding, wire
from coalface.data.faceset import FaceSet
from coalface.models.net import Net, Weights, scaled
from coalface.privacy.audits.embedding_recovery import first_revealed
from coalface.privacy.audits.judge import FMR, HOST, Judge, as_pixels, nearest_ssim
from coalface.privacy.audits.recording import Case
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.template_leak import guessed
from coalface.privacy.audits.view import View

CHANNELS = 64
BATCH = 64
IDENTITY = 0.1  # weight of the likeness of embeddings, beside that of pixels
SHOWN = 8


class Decoder(nn.Module):
    """From a unit embedding to a square image: a linear layer to a few pixels, then twice as many again and again."""

    def __init__(self, embedding: int, size: int) -> None:
        super().__init__()
        self.side, doublings = size, 0
        while self.side > 7 and self.side % 2 == 0:  # 32 and 64 begin at 4, 112 at 7
            self.side, doublings = self.side // 2, doublings + 1
        self.first = nn.Linear(embedding, CHANNELS * self.side**2)
        layers: list[nn.Module] = []
        for _ in range(doublings):
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()]
        self.rest = nn.Sequential(*layers, nn.Conv2d(CHANNELS, 3, 3, padding=1), nn.Tanh())

    def forward(self, embeddings: Tensor) -> Tensor:
        """Images [n, 3, size, size] as a network takes them."""
        few = F.relu(self.first(embeddings)).unflatten(1, (CHANNELS, self.side, self.side))
        images: Tensor = self.rest(few)
        return images


def trained_decoder(
    net: Net, backbone: Weights, faces: FaceSet, epochs: int, seed: int, device: torch.device = HOST
) -> Decoder:
    """A decoder for embeddings of this backbone, trained on public faces, on the device; it decodes on the host."""
    luck = seeding.generator(seed, "decoder batches")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeding.derive(seed, "decoder"))
        decoder = Decoder(net.embedding, faces.size).to(device)
    backbone, images = backbone.map(lambda leaf: leaf.to(device)), faces.images.to(device)
    with torch.no_grad():
        embeddings = torch.cat([F.normalize(net(backbone, chunk), dim=1) for chunk in images.split(256)])
    optimiser = torch.optim.Adam(decoder.parameters(), lr=2e-3)
    steps = epochs * -(-len(embeddings) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(embeddings), generator=luck).to(device).split(BATCH):
            drawn = decoder(embeddings[rows])
            apart = F.mse_loss(drawn, scaled(images[rows]))
            unlike = 1 - (F.normalize(net(backbone, drawn), dim=1) * embeddings[rows]).sum(dim=1).mean()
            optimiser.zero_grad()
            (apart + IDENTITY * unlike).backward()
            optimiser.step()
            schedule.step()
    return decoder.to(HOST)


def template_inversion(
    case: Case, view: View, generator: torch.Generator, judge: Judge, decoder: Decoder
) -> AuditResult:
    """Of how many of the last round's clients a decoded template betrays the person."""
    clients = list(case.last.uploads)
    templates, source = _templates(case, view, generator)
    with torch.no_grad():
        drawn = as_pixels(decoder(templates))
    people = [case.clients[client].images for client in clients]
    right, own_tar = judge.recognised(list(drawn[:, None]), people, case.outsiders)
    likeness = [nearest_ssim(picture[None], images) for picture, images in zip(drawn, people, strict=True)]
    strange = [nearest_ssim(picture[None], case.outsiders.images[: len(people[0])])[0] for picture in drawn]
    shown = [
        torch.stack([people[i][likeness[i][2]], drawn[i]]) for i in range(0, len(people), max(1, len(people) // SHOWN))
    ]
    details = {
        "templates": source,
        "median_ssim": float(torch.tensor([found for found, _, _ in likeness]).median()),
        "chance_median_ssim": float(torch.tensor(strange).median()),
        "judge_tar_of_photographs": own_tar,
        "fmr": FMR,
    }
    pictures = torch.stack(shown[:SHOWN])
    found, strangers = int(right.sum()), len(case.outsiders)
    return counted("template inversion", case.name, found, len(right), FMR, details, view.name, strangers, pictures)


def _templates(case: Case, view: View, generator: torch.Generator) -> tuple[Tensor, str]:
    """The best template [n, d] that the server has of each client, and where it has it from."""
    fields = {row.field: row.seen for row in wire.disclosure(case.method.types.upload)}
    if view.summed and fields.get("class_embedding") is wire.Seen.REVEALED:
        told = first_revealed(case)
        return torch.stack([told[client] for client in case.last.uploads]), "revealed to the server"
    guesses = guessed(case, case.seen(view, generator), generator)
    return guesses[:, 0], "read from the last layer"
