"""(3) Codeword reading: FedUV's secret codewords from the change of its code head.

attacker   the server. It follows the protocol.
sees       one round's changes of the code head (`view`), and each client's number, which it gave out itself.
success    99 % or more of a client's code bits read.
chance     the share of people who take no part, with codewords of their own, that the same guesses meet.

The loss is 1 − cos(v, W'g), so the change is ΔW' ∝ (v − what is right already) gᵀ: on one client of rank one, and the
signs of ΔW' g are the codeword. The client's g comes from the last layer of the backbone.

In a sum over n clients every row j of ΔW' is Σ_i v_ij g_i: a mixture of independent signs. Blind separation by fourth
moments (`chords.independent`) finds the v_i and the g_i, in no order; the bits of each client's number, which begin its
codeword, tell which is whose, and the sign. So the sum hides neither codewords nor templates, as long as n is below
the number of dimensions and well below the length of the code.

Where the code head stands still (`feduv/secret`) it has no change. What is left is the error δ that enters the last
layer of the backbone: W'ᵀ of the codeword, less what is right already. The signs of the shortest v with W'ᵀv = δ are
the guess: d equations for c bits. In a sum the errors themselves are guesses (`LastLayer.errors`), and the best counts.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface.algorithms.codewords import CODES, codeword
from coalface.privacy.audits import chords
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.recording import Case, template
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.view import Seen, View

READ = 0.99  # of the bits


def codeword_reading(case: Case, view: View, generator: torch.Generator) -> AuditResult | None:
    """How many of the last round's clients have their codeword read; None for a method without codewords."""
    method: Any = case.method
    if not hasattr(method, "code_length"):
        return None
    seen = case.seen(view, generator)
    first = next(iter(seen.values()))
    if not hasattr(first.upload, "code_head"):
        guesses = from_errors(case, seen, generator)
    else:
        guesses = (from_sum(case, seen, generator)[0] if view.summed else alone(case, seen))[:, None]
    words = torch.stack([secret(case, client) for client in seen])
    bits = getattr(method, "user_bits", 0)
    strangers = torch.stack(
        [
            codeword(CODES[method.code_length], number if bits else 0, bits, generator)
            for number in range(len(case.clients), len(case.clients) + len(case.outsiders))
        ]
    )
    own = (guesses == words[:, None]).double().mean(dim=2).max(dim=1).values
    others = torch.stack([(guess[:, None] == strangers).double().mean(dim=2).max(dim=0).values for guess in guesses])
    details = {
        "read_above": READ,
        "bits_read": float(own.mean()),
        "fewest_bits_read": float(own.min()),
        "chance_bits_read": float(others.mean()),
        "code_length": method.code_length,
    }
    chance = float((others >= READ).double().mean())
    return counted(
        "codeword", case.name, int((own >= READ).sum()), len(own), chance, details, view.name, len(strangers)
    )


def alone(case: Case, seen: dict[int, Seen]) -> Tensor:
    """Codewords [n, c] of ±1, each from one client's own change."""
    layer = LastLayer(case.net, case.last.backbone)
    typical = template(case.net, case.last.backbone, case.public.images)
    return torch.stack(
        [
            (mine.upload.code_head @ layer.alone(mine.upload.backbone, typical)[0]).sign().float()
            for mine in seen.values()
        ]
    )


def from_sum(case: Case, seen: dict[int, Seen], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Codewords [n, c] and templates [n, d] of the clients of a cohort, from the sum of their changes alone."""
    method: Any = case.method
    change = next(iter(seen.values())).upload.code_head
    signs, voices = separated(change, min(len(seen), *change.shape), generator)
    users = [case.last.broadcasts[client].user for client in seen]
    numbers = torch.tensor([[user >> bit & 1 for bit in reversed(range(method.user_bits))] for user in users])
    agreement = (2.0 * numbers - 1) @ signs[:, : method.user_bits].T  # [n, guesses]; negative: the sign is turned
    best = agreement.abs().argmax(dim=1)
    turn = agreement.gather(1, best[:, None]).sign()
    return turn * signs[best], turn * voices[best]


def from_errors(case: Case, seen: dict[int, Seen], generator: torch.Generator) -> Tensor:
    """Guesses [n, g, c] at each client's codeword, where the code head stands still: from the errors below it."""
    layer = LastLayer(case.net, case.last.backbone)
    head = case.last.broadcasts[next(iter(seen))].code_head
    shortest: Tensor = torch.linalg.pinv(head.T)  # [c, d]
    guesses: list[Tensor] = []
    for mine in seen.values():
        if not guesses or mine.together == 1:
            errors = layer.errors(mine.upload.backbone, mine.together, generator)
            guesses.append((torch.cat([errors, -errors]) @ shortest.T).sign().float())
    return torch.stack(guesses).expand(len(seen), -1, -1)


def separated(change_CD: Tensor, sources: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Independent signs [sources, c] and the directions [sources, d] that they multiply, each up to a common sign."""
    rows = F.normalize(change_CD.flatten(), dim=0).view_as(change_CD)[None]  # a change is tiny: keep it from rounding
    voices = chords.independent(rows, chords.told(rows, sources), generator)
    parts: Tensor = rows[0].double() @ torch.linalg.pinv(voices)
    return parts.T.sign().float(), voices.float()


def secret(case: Case, client: int) -> Tensor:
    """The codeword [c] that a client keeps: the truth."""
    kept: Any = case.memory.load(client, case.last.number + 1)
    word: Tensor = kept.codeword
    return word.cpu()
