"""From chorus's chords alone: the best guesses at the voices of one choir.

A chord [rows, D] is x = Σ w_i / ‖Σ w_i‖ (one row), or X = A W / √m with Gaussian parts A [m, k] and voices W [k, D].
Of mixtures, everything that chords can tell is WᵀW, and it is known that voices have length 1. Every W that agrees with
both is as likely as any other. `agreeing` finds one: for k = 2 it is the only one, which is why mixtures need more.
`independent` looks for the parts instead, by their fourth moments: it finds voices if parts are anything but Gaussian.

Chords of one choir come as [T, rows, D], T of them. Voices are told at best up to order and sign.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 1e-4  # singular values below this share of the largest are rounding
ITERATIONS = 100


def common_direction(chords_TRD: Tensor) -> Tensor:
    """Of plain sums: the one direction [1, D] that a choir tells, averaged over its chords."""
    return F.normalize(chords_TRD.flatten(0, 1).mean(dim=0, keepdim=True), dim=1)


def least_voices(members_NP: Tensor, sums_ND: Tensor) -> Tensor:
    """Of all voices [P, D] that agree with every sum of every grouping, the shortest.

    For voices in random directions this is the best guess that is linear in the sums.
    """
    voices: Tensor = torch.linalg.pinv(members_NP.double()) @ sums_ND.double()
    return voices


def span(rows_ND: Tensor) -> Tensor:
    """An orthonormal basis [≤ D, D] of the rows, the directions with most in them first."""
    found = torch.linalg.svd(rows_ND, full_matrices=False)
    values: Tensor = found[1]
    directions: Tensor = found[2]
    return directions[values > SMALLEST * values[0]]


def told(chords_TRD: Tensor, voices: int) -> Tensor:
    """√eigenvalue · eigenvector of the estimate of WᵀW, [k, D], scaled so that squared lengths sum to k."""
    rows = chords_TRD.flatten(0, 1).double()
    # Eigenvectors of the smaller product, rising: much cheaper than singular values.
    if len(rows) > rows.shape[1]:
        squares, columns = torch.linalg.eigh(rows.T @ rows)
        axes = (squares.clamp(min=0).sqrt() * columns).T.flip(0)[:voices]
    else:
        axes = (torch.linalg.eigh(rows @ rows.T)[1].T.flip(0)[:voices]) @ rows
    return F.normalize(axes.flatten(), dim=0).view_as(axes) * math.sqrt(voices)


def agreeing(axes_KD: Tensor) -> Tensor:
    """Unit voices [k, D] with the same WᵀW as these orthogonal axes: turns in planes, each making one length 1."""
    voices = axes_KD.clone()
    waiting = list(range(len(voices)))
    while len(waiting) > 1:
        squares = voices[waiting].square().sum(dim=1)
        long, short = waiting[int(squares.argmax())], waiting[int(squares.argmin())]
        most, least = float(squares.max()), float(squares.min())
        if most - least < 1e-12:
            break  # all are 1 already
        cosine = max(0.0, min(1.0, (1 - least) / (most - least))) ** 0.5
        sine = (1 - cosine**2) ** 0.5
        turned = torch.tensor([[cosine, sine], [-sine, cosine]], dtype=voices.dtype)
        voices[[long, short]] = turned @ voices[[long, short]]
        waiting.remove(long)
    return F.normalize(voices, dim=1)


def independent(chords_TRD: Tensor, axes_KD: Tensor, generator: torch.Generator) -> Tensor:
    """Unit voices [k, D] whose parts have the most extreme fourth moments (a fixed-point search, all at once)."""
    rows, voices = chords_TRD.flatten(0, 1).double(), len(axes_KD)
    white = rows @ (axes_KD / axes_KD.square().sum(dim=1, keepdim=True)).T
    white = white / white.square().mean(dim=0).sqrt()
    turn = random_rotation(voices, generator)
    for _ in range(ITERATIONS):
        outer, _, inner = torch.linalg.svd((white @ turn.T).pow(3).T @ white / len(white) - 3 * turn)
        turn = outer @ inner
    return F.normalize(turn @ axes_KD, dim=1)


def random_rotation(size: int, generator: torch.Generator) -> Tensor:
    """An orthogonal matrix, every one as likely as any other."""
    q: Tensor
    r: Tensor
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))
    return q * r.diagonal().sign()


def without(chords_TRD: Tensor, parts_TRJ: Tensor, own_JD: Tensor) -> Tensor:
    """Chords of mixtures less what colluding members sang in them: the same problem with fewer voices."""
    rows = chords_TRD.shape[1]
    sung = parts_TRJ.double() @ own_JD.double()
    return chords_TRD.double() - sung / math.sqrt(rows)


def last_voice(chord_D: Tensor, own_JD: Tensor) -> Tensor:
    """The one voice [1, D] missing from a normalised sum: λ x − Σ own with length 1.

    λ solves a quadratic; of its two roots the larger leaves a voice on the chord's side, where a member of it is.
    """
    chord, others = chord_D.double(), own_JD.double().sum(dim=0)
    along = chord @ others
    inside = along.square() - others.square().sum() + 1
    return F.normalize((along + inside.clamp(min=0).sqrt()) * chord - others, dim=0)[None]
