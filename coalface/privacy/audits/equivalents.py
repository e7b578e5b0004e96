"""From FedFV's equivalents alone: who shares a member with whom, and then every member.

An equivalent is x = (w_a + w_b + …) / ‖…‖ of k unknown class embeddings. Nobody says which. But of nearly orthogonal
embeddings, two equivalents have a cosine of about 1/k for each member that they share and about 0 otherwise. So

1. stars: equivalents that all share one member average to about that member (`stars`);
2. each equivalent is explained by its k best members, and what is left unexplained is a further one (`explained`);
3. with the members known, √k · x = Σ w is a linear system (`solved`), whose answer improves step 2.

Suffixes: N equivalents, C class embeddings found, D dimensions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SEEDS = 6  # pairs from which a star is grown, for each equivalent
GROWTHS = 5
ALTERNATIONS = 6
UNEXPLAINED = 0.5  # a member's share in √k · x is about 1
RIDGE = 1e-6  # a component of the pairing graph without an odd cycle leaves one freedom: the shortest answer is taken


def recovered(equivalents_ND: Tensor, fused: int, generator: torch.Generator) -> Tensor:
    """Class embeddings [C, D] solved from equivalents of ``fused`` members each; C is found out on the way."""
    # What all embeddings have in common would make every pair look as if it shared a member.
    centred = F.normalize(equivalents_ND.float() - equivalents_ND.float().mean(dim=0), dim=1)
    atoms = stars(centred, fused, generator)
    if not len(atoms):
        return F.normalize(equivalents_ND.float(), dim=1)  # nothing is shared: an equivalent is the best guess there is
    members = explained(centred, atoms, fused)[0]
    for _ in range(ALTERNATIONS):
        members, atoms = explained(centred, solved(centred, members), fused)
    return solved(equivalents_ND, members)


def stars(centred_ND: Tensor, fused: int, generator: torch.Generator) -> Tensor:
    """Rough members [C, D]: means of equivalents that share one, grown from pairs that seem to."""
    cosines = centred_ND @ centred_ND.T
    alike = (cosines > 0.7 / fused) & (cosines < 1.4 / fused)  # above, they share two
    draw = torch.rand(alike.shape, generator=generator) * alike
    chance, partner = draw.topk(min(SEEDS, len(draw)), dim=1)
    first, rank = (chance > 0).nonzero(as_tuple=True)
    centres = F.normalize(centred_ND[first] + centred_ND[partner[first, rank]], dim=1)
    # A pair's mean has cosine 2/√(2k + 2) to the shared member, and half of that to each of the others.
    least = 1.5 / ((2 * fused + 2) * fused) ** 0.5
    joined = torch.empty(0, len(centred_ND), dtype=torch.bool)
    for _ in range(GROWTHS):
        joined = (centres @ centred_ND.T > least).unique(dim=0)
        joined = joined[joined.sum(dim=1) >= 2]
        centres = F.normalize(joined.float() @ centred_ND, dim=1)
        least = 0.6 / fused**0.5  # a member has 1/√k to each equivalent that it is in
    return centres[_apart(joined)]


def explained(centred_ND: Tensor, atoms_CD: Tensor, fused: int) -> tuple[Tensor, Tensor]:
    """Members [N, k] of each equivalent, one by one by what is left of it, and the atoms with new ones for the rest."""
    left = fused**0.5 * centred_ND
    chosen = torch.empty(len(centred_ND), 0, dtype=torch.int64)
    best = left.new_zeros(len(left))
    for _ in range(fused):
        scores = (left @ atoms_CD.T).scatter(1, chosen, -torch.inf)
        best, pick = scores.max(dim=1)
        chosen = torch.cat([chosen, pick[:, None]], dim=1)
        left = left - atoms_CD[pick]
    poor = (best < UNEXPLAINED).nonzero().flatten()
    rest = F.normalize(left[poor] + atoms_CD[chosen[poor, -1]], dim=1)
    new = rest[_apart(rest @ rest.T > 0.6)]
    if len(new):
        chosen[poor, -1] = len(atoms_CD) + (rest @ new.T).argmax(dim=1)
    used, members = chosen.unique(return_inverse=True)
    return members, torch.cat([atoms_CD, new])[used]


def solved(equivalents_ND: Tensor, members_NK: Tensor, refinements: int = 5) -> Tensor:
    """Unit class embeddings [C, D] by least squares, once it is known who is in which equivalent.

    The length of each sum is lost by normalising. It starts at √k and is taken anew from each answer.
    """
    exact = equivalents_ND.double()
    incidence = torch.zeros(len(exact), int(members_NK.max()) + 1, dtype=torch.float64)
    incidence.scatter_add_(1, members_NK, torch.ones_like(members_NK, dtype=torch.float64))
    normal = incidence.T @ incidence
    normal.diagonal().add_(RIDGE)
    factor = torch.linalg.cholesky(normal)
    lengths = torch.full((len(exact), 1), members_NK.shape[1] ** 0.5, dtype=torch.float64)
    answer = exact.new_empty(0)
    for _ in range(refinements + 1):
        answer = F.normalize(torch.cholesky_solve(incidence.T @ (lengths * exact), factor), dim=1)
        lengths = (incidence @ answer).norm(dim=1, keepdim=True)
    return answer.to(equivalents_ND.dtype)


def _apart(joined_SN: Tensor) -> Tensor:
    """Rows that overlap little, the largest first: one for each thing that several rows have found."""
    sizes = joined_SN.sum(dim=1)
    kept: list[int] = []
    taken = torch.zeros(len(joined_SN), dtype=torch.bool)
    rows = joined_SN.float()
    for row in sizes.argsort(descending=True, stable=True).tolist():
        if taken[row]:
            continue
        kept.append(row)
        taken |= 2 * (rows @ rows[row]) >= sizes
    return torch.tensor(kept, dtype=torch.int64)
