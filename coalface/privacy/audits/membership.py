"""(6) Membership: was this person, was this photograph, in the round?

attacker   the server. It follows the protocol.
sees       one round's uploads (`view`), the broadcast backbone, and the photograph in question.
success    of people who take part (of photographs that were trained on), the share found at an FPR of 5 %.
chance     that FPR.

person   the photograph, another one than was trained on, is compared with the guesses of attack 1.
image    of photographs of people who do take part, those that were trained on lie nearer to the span of the change of
         the last layer, whose rows are combinations of their activations. Negatives are their other photographs, so
         that nothing is told by knowing the person. Beside the rate at one threshold, which few negatives set, stands
         a number without any: how often, of one person, one that was trained on lies nearer than one that was not.
         The same is asked of the whole network (`turned_auc`): how fast it turns a photograph towards its person as it
         goes along the change that was seen. Where to is what the server told the client, or else, as the attacker has
         the photographs, their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import seeding
from coalface.data.population import ClientFaces
from coalface.local import batches
from coalface.metrics.rates import auc, threshold_at_fmr
from coalface.models.net import Net, Weights
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.recording import Case
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.template_leak import KNOWN_ERRORS, guessed
from coalface.privacy.audits.view import Seen, View

FPR = 0.05
ENOUGH = 320  # people whose photographs are turned: more would narrow an interval that is narrow


def person_membership(case: Case, view: View, generator: torch.Generator) -> AuditResult | None:
    """Of how many people of the last round it is found out that they took part; None if all photographs are used."""
    held = [_held_out(case, client) for client in case.last.uploads]
    if any(not len(images) for images in held):
        return None
    guesses = guessed(case, case.seen(view, generator), generator)
    guesses = guesses if guesses.stride(0) else guesses[:1]  # the same ones for everybody
    common = _embedded(case, case.public.images).mean(dim=0)  # what all faces share would hide what one of them has

    def unlike_all(embeddings: Tensor) -> Tensor:
        return F.normalize(embeddings - common, dim=-1)

    bank = unlike_all(guesses.flatten(0, 1).unique(dim=0))
    members = unlike_all(_embedded(case, torch.stack([images[0] for images in held])))
    first = case.outsiders.offsets[:-1]
    strangers = unlike_all(_embedded(case, case.outsiders.images[first]))
    inside, outside = (members @ bank.T).max(dim=1).values, (strangers @ bank.T).max(dim=1).values
    return _counted("membership, person", case, view, outside, inside)


def image_membership(case: Case, view: View, generator: torch.Generator) -> AuditResult | None:
    """Of how many photographs it is found out that they were trained on; None if too few others are left."""
    seen = case.seen(view, generator)
    layer = LastLayer(case.net, case.last.backbone)
    inside, outside = [], []
    for client, mine in seen.items():
        used, others = _used(case, client), _held_out(case, client)
        weight, _ = layer.change(mine.upload.backbone)
        rank = min(mine.together, min(weight.shape) // 2) if mine.together > 1 else len(used)  # a whole space holds all
        span: Tensor = torch.linalg.svd(weight, full_matrices=False)[2][:rank]
        if len(others):
            inside.append(_length_within(span, layer.activations(used)))
            outside.append(_length_within(span, layer.activations(others)))
    if FPR * sum(map(len, outside)) < 1:
        return None
    beside = within_people(outside, inside) | _turned(case, seen)
    return _counted("membership, image", case, view, torch.cat(outside), torch.cat(inside), beside)


def within_people(
    outside: Sequence[Tensor], inside: Sequence[Tensor], name: str = "same_person_auc"
) -> dict[str, float]:
    """How often, of one person, a photograph that was trained on scores higher than one that was not: ½ is luck.

    The mean over people, and its standard error: people are independent, their photographs are not.
    """
    each = torch.tensor([auc(other, own) for other, own in zip(outside, inside, strict=True)], dtype=torch.float64)
    return {name: float(each.mean()), f"{name}_error": float(each.std() / len(each) ** 0.5)}


def _turned(case: Case, seen: dict[int, Seen]) -> dict[str, float]:
    inside, outside = [], []
    for client in [*seen][:ENOUGH]:
        images, used = case.clients[client].images, _rows(case, client)
        towards = _told(case, client)
        towards = F.normalize(_embedded(case, images).mean(dim=0), dim=0) if towards is None else towards
        speed = turning(case.net, case.last.backbone, seen[client].upload.backbone, images, towards)
        trained = torch.isin(torch.arange(len(images)), used)
        if not bool(trained.all()):
            inside.append(speed[trained])
            outside.append(speed[~trained])
    return within_people(outside, inside, "turned_auc")


def _told(case: Case, client: int) -> Tensor | None:
    """Where the server told this client to pull its faces, if it did."""
    message = case.last.broadcasts[client]
    if hasattr(message, "head"):
        row: Tensor = message.head[case.clients.first_class(client)]
        return F.normalize(row, dim=0)
    return next((getattr(message, name) for name in KNOWN_ERRORS if getattr(message, name, None) is not None), None)


def turning(net: Net, backbone: Weights, update: Weights, images: Tensor, towards: Tensor) -> Tensor:
    """How fast [n] the cosine of each image to ``towards`` grows when the network begins to go along the update.

    Slopes that are weighted by v are linear in v: what they have along the update, differentiated by v, is the answer
    for every image at once.
    """
    at = {name: leaf.detach().requires_grad_() for name, leaf in backbone.parameters.items()}
    cosines = F.normalize(net(Weights(at, backbone.statistics), images), dim=1) @ towards
    weights = torch.zeros_like(cosines, requires_grad=True)
    slopes = torch.autograd.grad(cosines, list(at.values()), weights, create_graph=True)
    along = [(slope * update.parameters[name]).sum() for name, slope in zip(at, slopes, strict=True)]
    return torch.autograd.grad(torch.stack(along).sum(), weights)[0]


def _counted(
    attack: str, case: Case, view: View, outside: Tensor, inside: Tensor, beside: dict[str, float] | None = None
) -> AuditResult:
    threshold = threshold_at_fmr(outside, FPR)
    details: dict[str, Any] = {"fpr": FPR, "auc": auc(outside, inside), **(beside or {})}
    found = int((inside >= threshold.value).sum())
    return counted(attack, case.name, found, len(inside), FPR, details, view.name, len(outside))


def _length_within(span_RD: Tensor, activations_ND: Tensor) -> Tensor:
    within: Tensor = torch.linalg.vector_norm(F.normalize(activations_ND, dim=1) @ span_RD.T, dim=1)
    return within


def _embedded(case: Case, images: Tensor) -> Tensor:
    with torch.no_grad():
        return F.normalize(case.net(case.last.backbone, images), dim=1)


def _rows(case: Case, client: int) -> Tensor:
    """Which photographs the client trained on in the last round: the truth."""
    faces = case.clients[client]
    numbers = torch.arange(len(faces))
    luck = seeding.generator(case.seed, "batches", case.last.number, client)
    numbered = ClientFaces(faces.images, numbers, faces.classes)
    rows: Tensor = torch.cat([batch.labels for batch in batches(numbered, case.training, luck)]).unique()
    return rows


def _used(case: Case, client: int) -> Tensor:
    return case.clients[client].images[_rows(case, client)]


def _held_out(case: Case, client: int) -> Tensor:
    images = case.clients[client].images
    return images[~torch.isin(torch.arange(len(images)), _rows(case, client))]
