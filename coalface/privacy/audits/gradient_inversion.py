"""(4) Gradient inversion: pictures of a client's person from the change of its whole backbone.

attacker   the server. It follows the protocol.
sees       one upload (`view`), everything that it broadcast, the public settings of training, and public faces.
success    the picture is taken for the person by a network that took no part (`judge`), at an FMR of 5 %.
chance     that FMR. Likeness of pixels stands beside it: SSIM to the person's photographs, and to strangers'.

Pictures are moved until a client who held them would send what was seen (Geiping et al. 2020: cosine of the gradients,
total variation, signed steps), from the mean public face, and with the leaked template of attack 1 as a guide. What the
attacker does not know is moved along: the class embedding, from the leaked template. FedUV's codeword is read first.
A round of several steps is unrolled. Clients here take one picture a step, which is the worst case for them.

Under a secure sum the same is done with the cohort's mean: there is nothing else that bears the client's name. All
pictures are then nearly one, and whom it resembles counts together: `own_before_others` says who is told from whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from coalface import tree
from coalface.algorithms.feduv_secret import Fixed, SecretFedUV
from coalface.algorithms.random_targets import SecretTargets
from coalface.data.population import ClientFaces
from coalface.engines.launch import Leaves, stacked
from coalface.local import Batch, Training
from coalface.method import Local
from coalface.models.net import Weights, scaled
from coalface.privacy.audits.judge import FMR, Judge, all_ssim, as_pixels, nearest_ssim
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.recording import Case, Round, template
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.view import View

RATE, SMOOTHNESS, GUIDE = 0.1, 0.02, 0.5  # of a signed step on pixels; of total variation; of the leaked template
EMBEDDING_RATE = 0.02
PARAMETERS = "backbone/parameters/"


def gradient_inversion(
    case: Case,
    views: Sequence[View],
    generator: torch.Generator,
    judge: Judge,
    steps: int = 1,
    targets: int = 4,
    iterations: int = 150,
) -> list[AuditResult]:
    """Of how many of ``targets`` clients a picture betrays the person, in each view; none where updates hold nothing.

    A search is many small steps, which take as long for one picture as for many: all views go side by side.
    """
    training = Training(rate=case.training.rate_at(case.last.number), batch=1, images_per_round=steps, flip=False)
    round_ = case.further(training)
    moving = [client for client, upload in round_.uploads.items() if _moves(upload.backbone)]
    chosen = moving[:: max(1, len(moving) // targets)][:targets]
    if not chosen:
        return []
    told = [case.seen(view, generator, round_) for view in views]
    uploads = [(client, seen[client].upload) for seen in told for client in chosen]
    found = as_pixels(inverted(case, round_, uploads, training, iterations, generator)).split(len(chosen))
    return [
        _judged(case, view, chosen, list(guesses), judge, steps, iterations)
        for view, guesses in zip(views, found, strict=True)
    ]


def _judged(
    case: Case, view: View, chosen: list[int], guesses: list[Tensor], judge: Judge, steps: int, iterations: int
) -> AuditResult:
    """Whom these pictures, some for each of the chosen clients, are taken for."""
    likeness, strange, shown = [], [], []
    for client, pictures in zip(chosen, guesses, strict=True):
        own = case.clients[client].images
        nearest, guess, photograph = nearest_ssim(pictures.to(case.device), own.to(case.device))
        likeness.append(nearest)
        strange.append(_like_strangers(pictures.to(case.device), case, len(own)))
        shown.append(torch.stack([own[photograph], pictures[guess]]))
    people = [case.clients[client].images for client in chosen]
    right, own_tar = judge.recognised(guesses, people, case.outsiders)
    details = {
        "steps": steps,
        "median_ssim": float(torch.tensor(likeness).median()),
        "chance_median_ssim": float(torch.tensor(strange).median()),
        "judge_tar_of_photographs": own_tar,
        "own_before_others": judge.own_before_others(guesses, people),
        "fmr": FMR,
        "iterations": iterations,
    }
    name = f"gradient inversion, {steps} step{'s' if steps > 1 else ''}"
    pictures = torch.stack(shown)
    return counted(
        name, case.name, int(right.sum()), len(right), FMR, details, view.name, len(case.outsiders), pictures
    )


def inverted(
    case: Case,
    round_: Round,
    uploads: Sequence[tuple[int, Any]],
    training: Training,
    iterations: int,
    generator: torch.Generator,
) -> Tensor:
    """Pictures [uploads, steps, 3, H, W], as a network takes them, whose training would send what these clients did.

    The searches are one for each upload, side by side in one pass.
    """
    public = case.public.images.to(case.device)
    mean = scaled(public).mean(dim=0)
    noise = torch.randn(len(uploads), training.images_per_round, *mean.shape, generator=generator)
    pictures = (mean + 0.1 * noise.to(mean)).requires_grad_()
    found = [
        _searched(case, client, round_.broadcasts[client], upload, public, of, generator)
        for (client, upload), of in zip(uploads, pictures.detach(), strict=True)
    ]
    first = found[0]
    common = {name: leaf for name, leaf in first.begin.items() if name.startswith("backbone/")}
    beside = stacked([{name: leaf for name, leaf in one.begin.items() if name not in common} for one in found])
    read, wanted = stacked([tree.leaves(one.fixed) for one in found]), stacked([one.wanted for one in found])
    leaked = torch.stack([one.leaked for one in found])
    embeddings = leaked.clone().requires_grad_()

    def apart(shown: Tensor, embedding: Tensor, own: Leaves, fixed: Leaves, seen: Leaves, leak: Tensor) -> Tensor:
        begin = common | own | ({"class_embedding": embedding} if first.unknown else {})
        sent = _unrolled(case, first.trained, begin, tree.refill(first.fixed, fixed), shown, training.rate)
        gaps = [1 - F.cosine_similarity(sent[name].flatten(), leaf, dim=0) for name, leaf in seen.items()]
        away = 1 - F.cosine_similarity(case.net(first.trained.backbone, shown).mean(dim=0), leak, dim=0)
        return torch.stack(gaps).mean() + SMOOTHNESS * total_variation(shown) + GUIDE * away

    slopes = vmap(grad(apart, argnums=(0, 1)))
    groups = [{"params": [pictures], "lr": RATE}, {"params": [embeddings], "lr": EMBEDDING_RATE}]
    optimiser = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [iterations // 2, 3 * iterations // 4], 0.3)
    for _ in range(iterations):
        moves = slopes(pictures.detach(), embeddings.detach(), beside, read, wanted, leaked)
        pictures.grad, embeddings.grad = moves[0].sign(), moves[1]
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            pictures.clamp_(-1, 1)
    return pictures.detach().cpu()


@dataclass(frozen=True)
class _Search:
    """What the attacker knows of one client before it looks for pictures, on its device."""

    trained: Any  # what the client starts from
    begin: Leaves  # the same, flat
    fixed: Any
    unknown: bool  # the class embedding is the client's own
    wanted: Leaves
    leaked: Tensor  # [d]


def _searched(
    case: Case, client: int, broadcast: Any, upload: Any, public: Tensor, pictures: Tensor, generator: torch.Generator
) -> _Search:
    broadcast, upload = (tree.transform(lambda leaf: leaf.to(case.device), told) for told in (broadcast, upload))
    layer = LastLayer(case.net, broadcast.backbone)
    leaked = layer.alone(upload.backbone, template(case.net, broadcast.backbone, public))[0].to(case.device)
    secret = _secret(case, layer, broadcast, upload, leaked, generator)
    local = _started(case, client, broadcast, pictures)
    begin = {name: leaf.detach() for name, leaf in tree.leaves(local.trained).items()}
    unknown = "class_embedding" in begin and not hasattr(broadcast, "class_embedding")
    wanted = {name: leaf.flatten() for name, leaf in upload.backbone.parameters.items()}
    return _Search(local.trained, begin, local.fixed if secret is None else secret, unknown, wanted, leaked)


def _secret(
    case: Case, layer: LastLayer, broadcast: Any, upload: Any, leaked: Tensor, generator: torch.Generator
) -> Any:
    """The attacker's guess at what the client trains towards, where that is the client's own secret; else None."""
    if hasattr(upload, "code_head"):
        return (upload.code_head @ leaked).sign()
    error = layer.errors(upload.backbone, 1, generator)[0]
    if isinstance(case.method, SecretFedUV):
        return Fixed(broadcast.code_head, (torch.linalg.pinv(broadcast.code_head.T) @ error).sign())
    return error if isinstance(case.method, SecretTargets) else None


def simulated(
    case: Case, client: int, broadcast: Any, pictures: Tensor, embedding: Tensor, fixed: Any, rate: float
) -> dict[str, Tensor]:
    """What a client with these pictures would send over the rate, one step for each."""
    local = _started(case, client, broadcast, pictures)
    begin = {name: leaf.detach() for name, leaf in tree.leaves(local.trained).items()}
    if "class_embedding" in begin and not hasattr(broadcast, "class_embedding"):
        begin["class_embedding"] = embedding  # the server does not know it
    return _unrolled(case, local.trained, begin, local.fixed if fixed is None else fixed, pictures, rate)


def _started(case: Case, client: int, broadcast: Any, pictures: Tensor) -> Local:
    label = torch.zeros(1, dtype=torch.int64, device=pictures.device)
    faces = ClientFaces(pictures, label.expand(len(pictures)), label + case.clients.first_class(client))
    return case.method.start(case.net, broadcast, None, faces, torch.Generator().manual_seed(0))


def _unrolled(case: Case, like: Any, begin: Leaves, fixed: Any, pictures: Tensor, rate: float) -> Leaves:
    """One step for each picture, as a function that can be differentiated: the change of the backbone over the rate."""
    label = torch.zeros(1, dtype=torch.int64, device=pictures.device)

    def loss(current: Leaves, picture: Tensor) -> Tensor:
        batch = Batch(picture, label)
        return case.method.objective(case.net, tree.refill(like, current), fixed, batch)["loss"].mean()

    current = begin
    for picture in pictures.split(1):
        slopes = grad(loss)(current, picture)
        current = {name: leaf - rate * slopes[name] for name, leaf in current.items()}
    return {
        name.removeprefix(PARAMETERS): (current[name] - begin[name]) / rate
        for name in current
        if name.startswith(PARAMETERS)
    }


def total_variation(images: Tensor) -> Tensor:
    """Mean absolute difference between neighbouring pixels, both ways."""
    across = (images[..., 1:] - images[..., :-1]).abs().mean()
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
    return across + down


def _moves(change: Weights) -> bool:
    """Whether anything was sent: a hinge may be dead, a softmax may have one class."""
    return any(bool(leaf.any()) for leaf in change.parameters.values())


def _like_strangers(pictures: Tensor, case: Case, photographs: int) -> float:
    """Median over strangers of the same best-of-all likeness, from as many photographs as the person has."""
    images, offsets = case.outsiders.images, case.outsiders.offsets.unfold(0, 2, 1).tolist()
    taken = [range(a, min(b, a + photographs)) for a, b in offsets]
    rows = torch.tensor([row for of in taken for row in of])
    every = all_ssim(pictures, images[rows].to(case.device)).max(dim=0).values
    return float(torch.stack([of.max() for of in every.split([len(of) for of in taken])]).median())
