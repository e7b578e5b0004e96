"""The stacked engine where a client's round is one plain SGD step: one backward pass for a whole launch.

The weighted mean of the clients' new models is the step of the weighted mean of their losses. So one pass through the
backbone that all were sent serves everybody, exactly; what is a client's own (its class embedding, say) still moves on
its own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from coalface import tree
from coalface.data.population import Population
from coalface.engines.engine import Task
from coalface.engines.launch import After, Leaves, Member, alike, client_losses, laid, stacked
from coalface.engines.replay import Groups, Replay
from coalface.local import is_statistic
from coalface.transfer import sent_together


def one_step(
    task: Task, launch: list[Member], width: int, population: Population, weights: Tensor, replay: Replay | None = None
) -> After:
    """One forward and one backward pass for all members, whose losses have these ``weights`` [C] in the mean.

    What is replayed has this ``width`` of images for each.
    """
    first = launch[0]
    draws = [next(member.draws(task.training)) for member in launch]
    batch = laid(launch, draws, population, multiple=width if replay else 1)
    common = {name: leaf.detach() for name, leaf in tree.leaves(first.trained).items() if name not in first.own}
    if batch.images.is_cuda:
        common = task.net.laid_out(common, "cuda")  # and so they come back, and stay: it is done once
    own = stacked([member.own for member in launch])
    same = alike([member.read for member in launch])
    fixed = stacked([member.read for member in launch], but=same)
    decay = task.training.weight_decay
    losses_of = client_losses(task, first)

    def step(given: Groups) -> Groups:
        """What every trained tensor becomes, and each member's losses. From outside it takes structure, no numbers."""
        common, own, same, fixed, batch = given.values()
        learnt = {n: leaf.detach().requires_grad_() for n, leaf in (common | own).items() if not is_statistic(n)}
        common_learnt = {name: learnt.get(name, leaf) for name, leaf in common.items()}
        own_learnt = {name: learnt.get(name, leaf) for name, leaf in own.items()}
        losses = vmap(lambda mine, read, *laid: losses_of(common_learnt | mine, same | read, *laid))(
            own_learnt, fixed, batch["images"], batch["labels"], batch["share"]
        )
        total = (batch["weights"] * losses["loss"]).sum()
        gradients = torch.autograd.grad(total, list(learnt.values()), allow_unused=True)
        found = {n: gradient for n, gradient in zip(learnt, gradients, strict=True) if gradient is not None}
        for name in own.keys() & found.keys():  # it is in its own loss only: undo the weight that this has in the mean
            found[name] = found[name] / batch["weights"].reshape(-1, *[1] * (found[name].ndim - 1))
        moved = common | own | _stepped({n: learnt[n].detach() for n in found}, found, batch["rate"], decay)
        return {"moved": moved, "losses": {part: value.detach() for part, value in losses.items()}}

    rate = torch.tensor(task.training.rate_at(task.round), dtype=torch.float64)
    rate, weights = sent_together([rate, weights], batch.images.device)
    numbers = {
        "images": batch.images,
        "labels": batch.labels,
        "share": batch.share,
        "weights": weights,
        "rate": rate,
    }
    given = {"common": common, "own": own, "same": same, "fixed": fixed, "batch": numbers}
    after = replay(step, given) if replay else step(given)
    moved = after["moved"]
    return After(
        {name: moved[name] for name in common},
        # Copies: a view would keep the whole launch's tensors for as long as one client's.
        [{name: moved[name][position].clone() for name in own} for position in range(len(launch))],
        after["losses"],
        [member.width for member in launch],
    )


def _stepped(leaves: Leaves, gradients: Leaves, rate: Tensor, decay: float) -> Leaves:
    """A plain step of all: a launch for each operation, if all lie alike in memory, and not for each tensor."""
    before = list(leaves.values())
    steps = [_lying_like(leaf, gradients[name]) for name, leaf in leaves.items()]
    if decay:
        steps = list(torch._foreach_add(steps, torch._foreach_mul(before, decay)))
    after = torch._foreach_sub(before, torch._foreach_mul(steps, rate.to(before[0].dtype)))
    return dict(zip(leaves, after, strict=True))


def _lying_like(leaf: Tensor, gradient: Tensor) -> Tensor:
    return gradient if gradient.stride() == leaf.stride() else torch.empty_like(leaf).copy_(gradient)
