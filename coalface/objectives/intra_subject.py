"""Intra-subject self-supervision: images of one person teach each other, the more the more alike (FedFS).

Legend: i, j images of a batch [B]; z_i the joined feature that learns, v_j a frozen model's feature of image j.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NOWHERE = -1e9  # stands for −∞ where a whole row may be padding: a softmax over nothing must not be NaN


def intra_subject(z_BD: Tensor, v_BD: Tensor, alpha_BB: Tensor, among_BB: Tensor, temperature: float) -> Tensor:
    """−Σ_j α_ij log softmax_j(cos(z_i, v_j) / τ) over the images j of the same person, per image i [B]."""
    cosines = F.normalize(z_BD, dim=1) @ F.normalize(v_BD, dim=1).T
    logits = (cosines / temperature).masked_fill(~among_BB, NOWHERE)
    return -(alpha_BB * F.log_softmax(logits, dim=1)).sum(dim=1)


def soft_labels(scores_BB: Tensor, among_BB: Tensor, gamma: float, sharpen: float, top: int) -> Tensor:
    """α [B, B], rows sum to 1: over j ∝ p^T, p the softmax of β. No gradient.

    β_ij is γ·score for the image itself, the score for images that are similar enough (at or above the mean score of
    the row, or among its ``top`` highest if that is above 0), and −∞ for others.
    """
    scores = scores_BB.detach()
    similar = among_BB & (scores >= _bar(scores, among_BB, top))
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    beta = torch.where(itself, gamma * scores, scores).masked_fill(~(similar | itself), NOWHERE)
    return F.softmax(sharpen * beta, dim=1)  # softmax(β)^T, normalised again


def intra_subject_as_printed(z_BD: Tensor, v_BD: Tensor, among_BB: Tensor, gamma: float, power: float) -> Tensor:
    """The loss as the poster prints it, per image [B]: it pushes the most similar pairs apart, and is here to show it.

    The logits are 1 − cosine, with ‖v_i‖ for ‖v_j‖; β is 0 for images that are not similar enough; α is the softmax of
    β over i, to the power T.
    """
    products = z_BD @ v_BD.T
    distances = 1 - products / (z_BD.norm(dim=1, keepdim=True) * v_BD.norm(dim=1, keepdim=True))
    scores = products.detach()
    similar = among_BB & (scores >= _bar(scores, among_BB, top=0))
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    beta = torch.where(itself, gamma * scores, torch.where(similar, scores, 0.0)).masked_fill(~among_BB, NOWHERE)
    alpha = F.softmax(beta, dim=0) ** power
    return -(alpha * F.log_softmax(distances.masked_fill(~among_BB, NOWHERE), dim=1) * among_BB).sum(dim=1)


def same_person(labels_B: Tensor, real_B: Tensor | None) -> Tensor:
    """Which image j may teach image i, [B, B]: one of the same person, and neither is padding."""
    same = labels_B[:, None] == labels_B
    return same if real_B is None else same & real_B & real_B[:, None]


def _bar(scores: Tensor, among: Tensor, top: int) -> Tensor:
    """The score that is similar enough, for each row, [B, 1]."""
    if top:
        masked = scores.masked_fill(~among, NOWHERE)
        return masked.topk(min(top, len(scores)), dim=1).values[:, -1:]
    return (scores * among).sum(dim=1, keepdim=True) / among.sum(dim=1, keepdim=True).clamp(min=1)
