"""(4) Gradient inversion: pictures of a client's person from the change of its whole backbone.

attacker   the server. It follows the protocol.
sees       one upload (`view`), everything that it broadcast, the public settings of training, and public faces.
success    the picture is taken for the person by a network that took no part (`judge`), at an FMR of 5 %.
chance     that FMR. Likeness of pixels stands beside it: SSIM to the person's photographs, and to strangers'.

Pictures are moved until a client who held them would send what was seen (Geiping et al. 2020: cosine of the gradients,
total variation, signed steps), from the mean public face, and with the leaked template of attack 1 as a guide. What the
attacker does not know is moved along: the class embedding, from the leaked template. FedUV's codeword is read first.
A round of several steps is unrolled. Clients here take one picture a step, which is the worst case for them.

Under a secure sum the same is done with the cohort's mean: there is nothing else that bears the client's name.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import tree
from coalface.algorithms.feduv_secret import Fixed, SecretFedUV
from coalface.algorithms.random_targets import SecretTargets
from coalface.data.population import ClientFaces
from coalface.local import Batch, Training
from coalface.models.net import Weights, scaled
from coalface.privacy.audits.judge import FMR, Judge, as_pixels, nearest_ssim
from coalface.privacy.audits.last_layer import LastLayer
from coalface.privacy.audits.recording import Case, Round, template
from coalface.privacy.audits.result import AuditResult, counted
from coalface.privacy.audits.view import View

RATE, SMOOTHNESS, GUIDE = 0.1, 0.02, 0.5  # of a signed step on pixels; of total variation; of the leaked template
EMBEDDING_RATE = 0.02
PARAMETERS = "backbone/parameters/"


def gradient_inversion(
    case: Case,
    view: View,
    generator: torch.Generator,
    judge: Judge,
    steps: int = 1,
    targets: int = 4,
    iterations: int = 150,
) -> AuditResult | None:
    """Of how many of ``targets`` clients a picture betrays the person; None where updates hold nothing."""
    training = Training(rate=case.training.rate_at(case.last.number), batch=1, images_per_round=steps, flip=False)
    round_ = case.further(training)
    seen = case.seen(view, generator, round_)
    moving = [client for client, upload in round_.uploads.items() if _moves(upload.backbone)]
    chosen = moving[:: max(1, len(moving) // targets)][:targets]
    if not chosen:
        return None
    guesses, likeness, strange, shown = [], [], [], []
    for client in chosen:
        pictures = as_pixels(inverted(case, round_, client, seen[client].upload, training, iterations, generator))
        own = case.clients[client].images
        found, guess, photograph = nearest_ssim(pictures, own)
        likeness.append(found)
        strange.append(_like_strangers(pictures, case, len(own)))
        guesses.append(pictures)
        shown.append(torch.stack([own[photograph], pictures[guess]]))
    people = [case.clients[client].images for client in chosen]
    right, own_tar = judge.recognised(guesses, people, case.outsiders)
    details = {
        "steps": steps,
        "median_ssim": float(torch.tensor(likeness).median()),
        "chance_median_ssim": float(torch.tensor(strange).median()),
        "judge_tar_of_photographs": own_tar,
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
    client: int,
    upload: Any,
    training: Training,
    iterations: int,
    generator: torch.Generator,
) -> Tensor:
    """Pictures [steps, 3, H, W], as a network takes them, whose training would send this upload."""
    broadcast, upload = (
        tree.transform(lambda leaf: leaf.to(case.device), message) for message in (round_.broadcasts[client], upload)
    )
    public = case.public.images.to(case.device)
    layer = LastLayer(case.net, broadcast.backbone)
    leaked = layer.alone(upload.backbone, template(case.net, broadcast.backbone, public))[0].to(case.device)
    wanted = {name: leaf.flatten() for name, leaf in upload.backbone.parameters.items()}
    mean = scaled(public).mean(dim=0)
    noise = torch.randn(training.images_per_round, *mean.shape, generator=generator)
    pictures = (mean + 0.1 * noise.to(mean)).requires_grad_()
    embedding = leaked.clone().requires_grad_()
    fixed = _secret(case, layer, broadcast, upload, leaked, generator)
    groups = [{"params": [pictures], "lr": RATE}, {"params": [embedding], "lr": EMBEDDING_RATE}]
    optimiser = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [iterations // 2, 3 * iterations // 4], 0.3)
    for _ in range(iterations):
        sent = simulated(case, broadcast, pictures, embedding, fixed, training.rate)
        apart = [1 - F.cosine_similarity(sent[name].flatten(), leaf, dim=0) for name, leaf in wanted.items()]
        away = 1 - F.cosine_similarity(case.net(broadcast.backbone, pictures).mean(dim=0), leaked, dim=0)
        loss = torch.stack(apart).mean() + SMOOTHNESS * total_variation(pictures) + GUIDE * away
        moves = torch.autograd.grad(loss, [pictures, embedding], allow_unused=True)
        pictures.grad, embedding.grad = moves[0].sign(), moves[1]
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            pictures.clamp_(-1, 1)
    return pictures.detach().cpu()


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
    case: Case, broadcast: Any, pictures: Tensor, embedding: Tensor, fixed: Any, rate: float
) -> dict[str, Tensor]:
    """What a client with these pictures would send, one step for each, as a function that can be differentiated."""
    label = torch.zeros(1, dtype=torch.int64, device=pictures.device)
    faces = ClientFaces(pictures.detach(), label.expand(len(pictures)), label)
    local = case.method.start(case.net, broadcast, None, faces, torch.Generator().manual_seed(0))
    begin = {name: leaf.detach().clone().requires_grad_() for name, leaf in tree.leaves(local.trained).items()}
    if "class_embedding" in begin and not hasattr(broadcast, "class_embedding"):
        begin["class_embedding"] = embedding  # the server does not know it
    current = begin
    for picture in pictures.split(1):
        state = tree.refill(local.trained, current)
        batch = Batch(picture, label)
        loss = case.method.objective(case.net, state, local.fixed if fixed is None else fixed, batch)["loss"].mean()
        slopes = torch.autograd.grad(loss, list(current.values()), create_graph=True, allow_unused=True)
        current = {
            name: leaf if slope is None else leaf - rate * slope
            for (name, leaf), slope in zip(current.items(), slopes, strict=True)
        }
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
    found = [nearest_ssim(pictures, images[a : min(b, a + photographs)])[0] for a, b in offsets]
    return float(torch.tensor(found).median())
