"""Recovery: solving what is broadcast over the rounds for single class embeddings, which are face templates.

attacker   FedFV: any client, for all are sent the equivalents. Chorus: the server, or any client, for chords are
           broadcast; or members of a choir who tell each other everything. All follow the protocol.
sees       the broadcast tensors of some rounds, and the public settings (k, m). Colluders: also what they sang.
success    a direction with cosine above 0.9 to a person's class embedding. The share of people of whom that is found.
chance     the same share for as many random directions. For mixtures they lie within the span of the choir: the span is
           told by design, in a small one luck goes far, and the question is what is told beyond it.

The scorer picks the best guess for each person, which an attacker could not: shares are upper bounds.

The attacks themselves are in `equivalents` and `chords`, and are not shown the truth: it is only scored against here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.privacy.audits import chords, equivalents
from coalface.privacy.audits.result import AuditResult, counted

RECOVERED = 0.9
LUCKY_DRAWS = 20  # of random directions within a span, so that luck is known better than the attack

Search = Literal["agreeing", "independent"]


def from_equivalents(
    broadcasts: Sequence[Tensor], fused: int, truth_CD: Tensor, generator: torch.Generator
) -> AuditResult:
    """FedFV: ``broadcasts`` are the equivalents [n, D] of some rounds; ``truth`` those who were in any of them."""
    seen = torch.cat(list(broadcasts))
    seen = seen[seen.any(dim=1)]  # rows of zeros are equivalents that could not be made
    found = equivalents.recovered(seen, fused, generator)
    luck = best_match(random_directions(len(found), seen.shape[1], generator), truth_CD)
    details = {"k": fused, "rounds": len(broadcasts), "equivalents": len(seen), "directions": len(found)}
    return scored("recovery", f"fedfv, k = {fused}", best_match(found, truth_CD), luck, details)


def from_sums(chords_TCRD: Tensor, truth_CKD: Tensor, generator: torch.Generator) -> AuditResult:
    """Chorus with plain sums, chords [T, choirs, 1, D]: the guess at every member is the choir's one direction."""
    choirs, k, dimensions = truth_CKD.shape
    guesses = torch.cat([chords.common_direction(chords_TCRD[:, choir]) for choir in range(choirs)])
    luck = best_match(random_directions(choirs, dimensions, generator), truth_CKD.flatten(0, 1))
    cosines = torch.cat([best_match(guesses[[choir]], truth_CKD[choir]) for choir in range(choirs)])
    details = {"k": k, "rounds": len(chords_TCRD), "one_over_root_k": k**-0.5}
    return scored("recovery", f"chorus, sums, k = {k}", cosines, luck, details)


def from_groupings(
    members_NP: Tensor, sums_ND: Tensor, truth_PD: Tensor, generator: torch.Generator, against: str
) -> AuditResult:
    """Chorus with plain sums in several groupings: the server solves all sums [N, D] for all people at once."""
    guesses = chords.least_voices(members_NP, sums_ND)
    cosines = F.cosine_similarity(guesses, truth_PD.double(), dim=1)
    luck = (random_directions(len(truth_PD), truth_PD.shape[1], generator) * truth_PD).sum(dim=1)
    details = {"equations": int(torch.linalg.matrix_rank(members_NP.double())), "unknowns": len(truth_PD)}
    return scored("recovery", against, cosines, luck, details)


def from_mixtures(
    chords_TCRD: Tensor, truth_CKD: Tensor, generator: torch.Generator, search: Search = "agreeing"
) -> AuditResult:
    """Chorus with mixtures, chords [T, choirs, m, D]: k guesses for a choir, scored up to order and sign."""
    rounds, choirs, parts, _ = chords_TCRD.shape
    k = truth_CKD.shape[1]
    cosines, luck = [], []
    for choir in range(choirs):
        heard, truth = chords_TCRD[:, choir], truth_CKD[choir].double()
        axes = chords.told(heard, k)
        guesses = chords.agreeing(axes) if search == "agreeing" else chords.independent(heard, axes, generator)
        cosines.append(best_match(guesses, truth, signed=False))
        for _ in range(LUCKY_DRAWS):
            lucky = chords.random_rotation(len(axes), generator) @ F.normalize(axes, dim=1)
            luck.append(best_match(lucky, truth, signed=False))
    details = {"k": k, "rounds": rounds, "parts": parts, "search": search}
    return scored("recovery", f"chorus, mixtures, k = {k}, m = {parts}", torch.cat(cosines), torch.cat(luck), details)


def from_sums_by_members(chords_TCRD: Tensor, voices_CKD: Tensor, generator: torch.Generator) -> AuditResult:
    """Chorus with plain sums: all members but the last of each choir, together, solve for the last."""
    choirs, k, dimensions = voices_CKD.shape
    last, own = voices_CKD[:, -1], voices_CKD[:, :-1]
    found = torch.cat([chords.last_voice(chords_TCRD[-1, choir, 0], own[choir]) for choir in range(choirs)])
    luck = (random_directions(choirs, dimensions, generator) * last).sum(dim=1)
    details = {"k": k, "colluders": k - 1, "rounds": 1}
    return scored("collusion", f"chorus, sums, k = {k}", (found * last.double()).sum(dim=1), luck, details)


def from_mixtures_by_members(
    chords_TCRD: Tensor, parts_TCRK: Tensor, voices_CKD: Tensor, colluders: int, generator: torch.Generator
) -> AuditResult:
    """Chorus with mixtures: the first ``colluders`` of each choir subtract themselves and attack the rest.

    ``parts`` [T, choirs, m, k] and ``voices`` hold everybody's; only the colluders' are used, the rest score.
    """
    _, choirs, rows, k = parts_TCRK.shape
    if not 1 <= colluders < k:
        raise ValueError(f"colluders must be from 1 to {k - 1} of a choir of {k}, not {colluders}")
    left = [
        chords.without(chords_TCRD[:, c], parts_TCRK[:, c, :, :colluders], voices_CKD[c, :colluders])
        for c in range(choirs)
    ]
    result = from_mixtures(torch.stack(left, dim=1), voices_CKD[:, colluders:].contiguous(), generator)
    details = {**result.details, "k": k, "colluders": colluders}
    return replace(result, attack="collusion", against=f"chorus, mixtures, k = {k}, m = {rows}", details=details)


def best_match(guesses_GD: Tensor, truth_PD: Tensor, signed: bool = True) -> Tensor:
    """Of each person, the cosine [P] of the guess that is nearest; that of its line, not its direction, if unsigned."""
    cosines = F.normalize(truth_PD.double(), dim=1) @ F.normalize(guesses_GD.double(), dim=1).T
    return (cosines if signed else cosines.abs()).max(dim=1).values


def random_directions(rows: int, dimensions: int, generator: torch.Generator) -> Tensor:
    """Unit vectors, every direction as likely as any other."""
    return F.normalize(torch.randn(rows, dimensions, generator=generator), dim=1)


def scored(attack: str, against: str, cosines: Tensor, luck: Tensor, details: dict[str, Any]) -> AuditResult:
    """The result of these best-match cosines, one for each person, beside those of luck."""
    return counted(
        attack,
        against,
        int((cosines > RECOVERED).sum()),
        len(cosines),
        float((luck > RECOVERED).double().mean()),
        {
            "recovered_above": RECOVERED,
            "median_cosine": float(cosines.median()),
            "largest_cosine": float(cosines.max()),
            "share_above_0.99": float((cosines > 0.99).double().mean()),
            "chance_median_cosine": float(luck.median()),
            **details,
        },
    )
