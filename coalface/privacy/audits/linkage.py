"""Linkage: finding out, with a photograph of somebody, whether they take part.

attacker   any client, or anyone who has seen one broadcast. It follows the protocol.
sees       the bank of one broadcast (FedFV's equivalents or chorus's chords), and the embeddings of photographs that it
           got elsewhere, under the broadcast backbone.
success    a person who takes part is told from outsiders: the share of them with a score on or above the threshold
           that at most ``fpr`` of the outsiders reach. The score is against the whole bank, not against one row of it.
chance     ``fpr``: who guesses finds members as often as outsiders.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.metrics.rates import allowed_false_matches, fmr, threshold_at_fmr
from coalface.privacy.audits.chords import span
from coalface.privacy.audits.result import AuditResult, counted

RATES = (1e-4, 1e-3)
AT_ONCE = 8192  # photographs

Score = Callable[[Tensor], Tensor]  # embeddings [P, D] -> how much each looks like a member, [P]


def against_directions(bank_ND: Tensor) -> Score:
    """The largest cosine to an equivalent or to a sum."""
    bank = F.normalize(bank_ND[bank_ND.any(dim=1)], dim=1)  # rows of zeros are absent
    return lambda photos: _in_blocks(photos, lambda block: (block @ bank.T).max(dim=1).values)


def against_spans(chords_CRD: Tensor, voices: int) -> Score:
    """The length of the longest projection onto the span of a choir's mixtures, of at most ``voices`` dimensions."""
    bases = [span(chord)[:voices] for chord in chords_CRD if chord.any()]
    choir = torch.repeat_interleave(torch.arange(len(bases)), torch.tensor([len(basis) for basis in bases]))
    bank = torch.cat(bases)

    def longest(block: Tensor) -> Tensor:
        squares = (block @ bank.T).square()
        return torch.zeros(len(block), len(bases)).index_add_(1, choir, squares).max(dim=1).values.sqrt()

    return lambda photos: _in_blocks(photos, longest)


def linkage(score: Score, outsiders_PD: Tensor, members_PD: Tensor, against: str, fpr: float = 1e-4) -> AuditResult:
    """TPR at an FPR, from photographs' embeddings; an FPR that the outsiders are too few for is refused."""
    negative, positive = score(outsiders_PD), score(members_PD)
    threshold = threshold_at_fmr(negative, fpr)
    found = int((positive >= threshold.value).sum())
    details = {
        "fpr": fpr,
        "attained_fpr": fmr(negative, threshold),
        "outsiders": len(negative),
        "reliable": threshold.reliable,
        "threshold": threshold.value,
        "median_member": float(positive.median()),
        "median_outsider": float(negative.median()),
    }
    return counted("linkage", against, found, len(positive), fpr, details)


def strictest_rate(outsiders: int) -> float:
    """The lowest of 1e-4 and 1e-3 that so many outsiders carry; a ValueError if they carry neither."""
    for rate in RATES[:-1]:
        if outsiders * rate >= 1:
            return rate
    allowed_false_matches(RATES[-1], outsiders)
    return RATES[-1]


def _in_blocks(photos_PD: Tensor, score: Score) -> Tensor:
    return torch.cat([score(block) for block in F.normalize(photos_PD, dim=1).split(AT_ONCE)])
