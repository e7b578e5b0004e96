"""(2) Recovery of class embeddings from what a method reveals or broadcasts over its rounds.

attacker   FedAwS, FedFace: the server, which is told. FedFV: any client, for all are sent the equivalents. Chorus: the
           server, which sees the parts of the chord (`view`), and whoever else hears the chords.
sees       the recorded rounds.
success    a direction with cosine above 0.9 to a person's class embedding: the one that the server holds or the client
           keeps. One that is revealed is held against the person's template instead.
chance     the share of people who take no part that the same directions meet.

A sum of k people is itself near to some of them, those who are alike. ``any_sum_tells`` in the details is how often the
sum of k strangers is: what a chord tells without being solved. Chorus is broken where recovery goes beyond it.

FedFV's equivalents and a method's revealed fields are the same under every view: they do not travel in a sum.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import wire
from coalface.privacy.audits import equivalents
from coalface.privacy.audits.recording import Case
from coalface.privacy.audits.recovery import RECOVERED, best_match
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.view import View


def embedding_recovery(case: Case, view: View, generator: torch.Generator) -> AuditResult | None:
    """Of how many people the class embedding is found; None where no class embedding travels in any form."""
    first = case.last.broadcasts[next(iter(case.last.broadcasts))]
    fields = {row.field: row.seen for row in wire.disclosure(case.method.types.upload)}
    if hasattr(first, "equivalents"):
        return _from_equivalents(case, view, generator)
    if fields.get("chord") is wire.Seen.GROUPED:
        return _from_chords(case, view, generator)
    if fields.get("class_embedding") is wire.Seen.REVEALED:
        told = first_revealed(case)
        truth = case.truth(list(told), case.last.backbone)
        return _scored(case, view, torch.stack(list(told.values()))[:, None], truth, {"how": "revealed to the server"})
    return None


def first_revealed(case: Case) -> dict[int, Tensor]:
    """Each client's class embedding as it was first revealed: before the server pushed it away from others."""
    told: dict[int, Tensor] = {}
    for round_ in case.rounds:
        for client, upload in round_.uploads.items():
            told.setdefault(client, F.normalize(upload.class_embedding, dim=0))
    return told


def _from_equivalents(case: Case, view: View, generator: torch.Generator) -> AuditResult:
    method: Any = case.method
    listener = next(iter(case.last.broadcasts))
    sent = [next(iter(round_.broadcasts.values())).equivalents for round_ in case.rounds]
    sent = [bank for bank in sent if bool(bank.any())]
    heard = torch.cat(sent)
    found = equivalents.recovered(heard[heard.any(dim=1)], method.fused, generator)
    known = case.server.known.clone()
    known[listener] = False  # its own it knows
    truth = case.server.class_embeddings[known]
    details = {"how": f"solved from {len(heard)} equivalents of {len(sent)} rounds", "directions": len(found)}
    return _scored(case, view, found.expand(len(truth), -1, -1), truth, details)


def _from_chords(case: Case, view: View, generator: torch.Generator) -> AuditResult | None:
    method: Any = case.method
    if method.parts:
        return None  # mixtures are attacked by `recovery.from_mixtures`, on simulated voices
    heard: dict[int, list[Tensor]] = {}
    for round_ in case.rounds:
        for client, mine in case.seen(view, generator, round_).items():
            if bool(mine.upload.chord.any()):
                heard.setdefault(client, []).append(F.normalize(mine.upload.chord[0], dim=0))
    truth = []
    for client in heard:
        private: Any = case.memory.load(client, case.last.number + 1)
        truth.append(private.class_embedding)
    # The last chord is nearest to what is kept now; under noise the mean of all is the better guess: both are tried.
    guesses = torch.stack([torch.stack([F.normalize(sum(all_, torch.zeros_like(all_[0])), dim=0), all_[-1]])
                           for all_ in heard.values()])  # fmt: skip
    details = {
        "how": f"the client's part of the chord, over {len(case.rounds)} rounds",
        "choir": method.choir,
        "any_sum_tells": any_sum_tells(case.strangers(case.last.backbone), method.choir, generator),
    }
    return _scored(case, view, guesses, torch.stack(truth), details)


def any_sum_tells(people_PD: Tensor, members: int, generator: torch.Generator, draws: int = 20) -> float:
    """The share of people whom the plain sum of themselves and some others meets: what one sum tells, unsolved."""
    groups = torch.stack(
        [
            torch.randperm(len(people_PD), generator=generator)[: len(people_PD) // members * members].view(-1, members)
            for _ in range(draws)
        ]
    ).flatten(0, 1)
    voices = people_PD[groups]
    chords = F.normalize(voices.sum(dim=1), dim=1)
    return float((torch.einsum("gkd,gd->gk", voices, chords) > RECOVERED).double().mean())


def _scored(case: Case, view: View, guesses_NGD: Tensor, truth_ND: Tensor, details: dict[str, Any]) -> AuditResult:
    strangers = case.strangers(case.last.backbone)
    own = torch.einsum("ngd,nd->ng", F.normalize(guesses_NGD, dim=2), F.normalize(truth_ND, dim=1)).max(dim=1).values
    chance = torch.stack([best_match(guesses, strangers) for guesses in guesses_NGD[:16]])
    return counted(
        "recovery",
        case.name,
        int((own > RECOVERED).sum()),
        len(own),
        float((chance > RECOVERED).double().mean()),
        {
            "recovered_above": RECOVERED,
            "median_cosine": float(own.median()),
            "largest_cosine": float(own.max()),
            "chance_median_cosine": float(chance.median()),
            **details,
        },
        view.name,
        len(strangers),
    )
