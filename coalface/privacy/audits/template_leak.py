"""(1) Template leak: a face template from the change of the last layer, which every method sends.

attacker   the server. It follows the protocol.
sees       one round's uploads (`view`), and everything that it broadcast.
success    a guess with cosine 0.95 or more to the person's template: the normalised mean of their features.
chance     the share of people who take no part that the same guesses meet.

One update alone is solved directly (`last_layer`). A sum over the cohort is solved where the server knows enough:

shared head       a row of the head belongs to one class, and is moved by that class's client above all
random targets    the server drew the targets, and a client's error points along its own
revealed          the same with class embeddings that the server holds
FedUV             errors are codewords: independent signs, which can be told apart blindly (`codeword`)
otherwise         the singular directions of the sum, and what blind separation of it finds, are the guesses; the best
                  one counts, so shares are upper bounds
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.privacy.audits import codeword
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.recording import Case, template
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.view import Seen, View

RECOVERED = 0.95
KNOWN_ERRORS = ("target", "class_embedding")  # fields that tell the server where a client's features are pulled


def template_leak(case: Case, view: View, generator: torch.Generator) -> AuditResult:
    """How many of the last round's clients have their template read."""
    guesses = guessed(case, case.seen(view, generator), generator)
    truth = case.truth(list(case.last.uploads), case.last.backbone)
    strangers = case.strangers(case.last.backbone)
    if guesses.stride(0):
        own = torch.einsum("ngd,nd->ng", guesses, truth).max(dim=1).values
        others = torch.einsum("ngd,pd->npg", guesses, strangers).max(dim=2).values
    else:  # the same ones for everybody: of many people the above would be large
        own, others = ((templates @ guesses[0].T).max(dim=1).values for templates in (truth, strangers))
    details = {
        "recovered_above": RECOVERED,
        "median_cosine": float(own.median()),
        "largest_cosine": float(own.max()),
        "chance_median_cosine": float(others.median()),
        "guesses_per_person": guesses.shape[1],
        "sent_nothing": int((~guesses.any(dim=2)).all(dim=1).sum()),
    }
    reached = int((own >= RECOVERED).sum())
    chance = float((others >= RECOVERED).double().mean())
    return counted("template leak", case.name, reached, len(own), chance, details, view.name, len(strangers))


def guessed(case: Case, seen: dict[int, Seen], generator: torch.Generator) -> Tensor:
    """Guesses [clients, g, d] at the template of each client of the last round, in the order of its uploads."""
    layer = LastLayer(case.net, case.last.backbone)
    first = next(iter(seen.values()))
    if first.together == 1:
        typical = template(case.net, case.last.backbone, case.public.images)
        return torch.stack([layer.alone(mine.upload.backbone, typical) for mine in seen.values()])
    if hasattr(first.upload, "head"):
        rows = [mine.upload.head[case.clients.first_class(client)] for client, mine in seen.items()]
        return F.normalize(torch.stack(rows), dim=1)[:, None]
    if hasattr(first.upload, "code_head"):
        return codeword.from_sum(case, seen, generator)[1][:, None]
    for field in KNOWN_ERRORS:
        known = [getattr(case.last.broadcasts[client], field, None) for client in seen]
        if all(direction is not None and bool(direction.any()) for direction in known):
            errors = torch.stack([direction for direction in known if direction is not None])
            return layer.solved(first.upload.backbone, errors)[:, None]
    together = torch.cat(
        [
            layer.directions(first.upload.backbone, first.together),
            layer.apart(first.upload.backbone, first.together, generator),
        ]
    )
    return together.expand(len(seen), -1, -1)
