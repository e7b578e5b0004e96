"""Who is in a picture, by a network that the attack has never touched; and how alike two pictures are.

A reconstruction is made to please the network that was attacked, so that network cannot judge it. The judge is trained
on synthetic people of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coalface import seeding, tree
from coalface.algorithms.fedavg import SharedHead
from coalface.data.faceset import FaceSet
from coalface.data.population import Population
from coalface.local import Training, train
from coalface.metrics.rates import threshold_at_fmr
from coalface.models.net import Net, Weights

HOST = torch.device("cpu")
FMR = 0.05
PIXELS = 128.0  # a network's input is (x − 127.5) / 128


@dataclass(frozen=True)
class Judge:
    """An independent recogniser."""

    net: Net
    weights: Weights

    def embed(self, images: Tensor) -> Tensor:
        """Unit embeddings [n, d] of uint8 images."""
        with torch.no_grad():
            return F.normalize(self.net(self.weights, images), dim=1)

    def recognised(self, guesses: list[Tensor], people: list[Tensor], strangers: FaceSet) -> tuple[Tensor, float]:
        """Which guesses [n] (each some pictures) are taken for their person, at an FMR of 5 % against strangers.

        Also the judge's own TAR at that threshold: the people's first photographs against the rest of theirs.
        """
        faces, templates = self._means(guesses), self._means(people)
        outside = self.embed(strangers.images)
        unlike = torch.stack(
            [F.normalize(outside[a:b].mean(dim=0), dim=0) for a, b in strangers.offsets.unfold(0, 2, 1).tolist()]
        )
        threshold = threshold_at_fmr(faces @ unlike.T, FMR).value
        first = torch.cat([self.embed(images[:1]) for images in people])
        rest = torch.stack([F.normalize(self.embed(images[1:]).mean(dim=0), dim=0) for images in people])
        bar = threshold_at_fmr(first @ unlike.T, FMR).value
        own_tar = float(((first * rest).sum(dim=1) >= bar).double().mean())
        return (faces * templates).sum(dim=1) >= threshold, own_tar

    def own_before_others(self, guesses: list[Tensor], people: list[Tensor]) -> float:
        """How often a guess is nearer to its own person than to another one of these: ½ if it does not say who is who.

        Under a sum all guesses are nearly one picture, which may resemble some people by itself.
        """
        alike = self._means(guesses) @ self._means(people).T
        ahead = (alike.diagonal()[:, None] > alike).double()
        return float(ahead.sum() / (len(alike) * (len(alike) - 1))) if len(alike) > 1 else float("nan")

    def _means(self, several: list[Tensor]) -> Tensor:
        return torch.stack([F.normalize(self.embed(images).mean(dim=0), dim=0) for images in several])


def trained_judge(faces: FaceSet, seed: int, epochs: int = 12, device: torch.device = HOST) -> Judge:
    """A small network, trained centrally on these people by softmax, on the device; it judges on the host."""
    net = Net("feduv_cnn_small", size=faces.size)
    head = F.normalize(torch.randn(len(faces), net.embedding, generator=seeding.generator(seed, "judge head")), dim=1)
    fresh = SharedHead.Trained(net.fresh(seeding.derive(seed, "judge")), head)
    state = tree.transform(lambda leaf: leaf.to(device), fresh)
    pooled = Population(FaceSet(faces.images.to(device), faces.offsets), (tuple(range(len(faces))),))[0]
    method = SharedHead()
    training = Training(rate=0.02, batch=32, momentum=0.9, epochs=epochs)
    trained = train(
        lambda current, batch: method.objective(net, current, pooled.classes, batch),
        state,
        pooled,
        training,
        1,
        seeding.generator(seed, "judge batches"),
    )
    return Judge(net, trained.state.backbone.map(lambda leaf: leaf.to(HOST)))


def ssim(one: Tensor, other: Tensor, window: int = 7) -> Tensor:
    """Structural similarity [n] of uint8 images [n, 3, H, W] with a flat window: 1 if equal, about 0 for noise."""
    a, b = one.double() / 255, other.double() / 255

    def mean(x: Tensor) -> Tensor:
        return F.avg_pool2d(F.avg_pool2d(x, (window, 1), 1), (1, window), 1)  # down, then across: 14 sums, not 49

    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
    c1, c2 = 0.01**2, 0.03**2
    return ((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean(dim=(1, 2, 3))


def nearest_ssim(guesses: Tensor, photographs: Tensor) -> tuple[float, int, int]:
    """The highest SSIM of any guess with any photograph or its mirror image, and which two they are."""
    found = all_ssim(guesses, photographs)
    guess, photograph = divmod(int(found.argmax()), len(photographs))
    return float(found[guess, photograph]), guess, photograph


def all_ssim(guesses: Tensor, photographs: Tensor) -> Tensor:
    """SSIM [guesses, photographs] of every guess with every photograph or its mirror image, whichever is higher."""
    left = guesses.repeat_interleave(len(photographs), dim=0)
    right = photographs.repeat(len(guesses), 1, 1, 1)
    return ssim(left, right).maximum(ssim(left, right.flip(-1))).view(len(guesses), len(photographs))


def as_pixels(images: Tensor) -> Tensor:
    """Float images as a network takes them, as uint8."""
    return (images.detach() * PIXELS + 127.5).round().clamp(0, 255).to(torch.uint8)
