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
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.recording import Case
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.template_leak import guessed
from coalface.privacy.audits.view import Seen, View

FPR = 0.05


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
    inside, outside, together = [], [], None
    for client, mine in seen.items():
        used, others = _used(case, client), _held_out(case, client)
        span = _span(layer, mine, len(used)) if together is None else together
        together = span if mine.together > 1 else None  # of a sum it is the same for everybody
        if len(others):
            inside.append(_length_within(span, layer.activations(used)))
            outside.append(_length_within(span, layer.activations(others)))
    if FPR * sum(map(len, outside)) < 1:
        return None
    return _counted(
        "membership, image", case, view, torch.cat(outside), torch.cat(inside), within_people(outside, inside)
    )


def within_people(outside: Sequence[Tensor], inside: Sequence[Tensor]) -> dict[str, float]:
    """How often, of one person, a photograph that was trained on scores higher than one that was not: ½ is luck.

    The mean over people, and its standard error: people are independent, their photographs are not.
    """
    each = torch.tensor([auc(other, own) for other, own in zip(outside, inside, strict=True)], dtype=torch.float64)
    return {"same_person_auc": float(each.mean()), "same_person_auc_error": float(each.std() / len(each) ** 0.5)}


def _counted(
    attack: str, case: Case, view: View, outside: Tensor, inside: Tensor, beside: dict[str, float] | None = None
) -> AuditResult:
    threshold = threshold_at_fmr(outside, FPR)
    details: dict[str, Any] = {"fpr": FPR, "auc": auc(outside, inside), **(beside or {})}
    found = int((inside >= threshold.value).sum())
    return counted(attack, case.name, found, len(inside), FPR, details, view.name, len(outside))


def _span(layer: LastLayer, mine: Seen, photographs: int) -> Tensor:
    """Orthonormal rows [r, in]: what the activations of those who are told of lie near to."""
    weight, _ = layer.change(mine.upload.backbone)
    rank = min(mine.together, min(weight.shape) // 2) if mine.together > 1 else photographs  # a whole space holds all
    span: Tensor = torch.linalg.svd(weight, full_matrices=False)[2][:rank]
    return span


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
