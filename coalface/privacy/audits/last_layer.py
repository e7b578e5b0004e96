"""What the change of a network's last linear layer says about the faces that caused it.

For one step ΔW = −η Σ_n δ_n h_nᵀ and Δb = −η Σ_n δ_n, with h the activations that enter the layer and δ the error that
leaves it. On a client with one person the errors are almost parallel, δ_n = a_n δ, so ΔW is almost of rank one and

    h̄ = ΔWᵀ Δb / ‖Δb‖²        (Σ a_n h_n / Σ a_n: the person's mean activation, its length included)

The layer itself is known, so h̄ pushed through it is a template. Of a sum over clients, ΔW = Σ_i δ_i h̄_iᵀ: whoever
knows the directions of the δ_i solves that too. Who does not can try to tell them apart blindly: by the fourth moments
of the δ_i, or of the h̄_i, which are no Gaussian numbers after a ReLU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coalface.models.net import Net, Weights, scaled
from coalface.privacy.audits import chords

AT_ONCE = 256


class LastLayer:
    """The last linear layer of a network that was broadcast."""

    def __init__(self, net: Net, backbone: Weights) -> None:
        self._net, self._backbone = net, backbone
        self._module = net.module(backbone)
        named = [(name, layer) for name, layer in self._module.named_modules() if isinstance(layer, nn.Linear)]
        if not named:
            raise ValueError(f"{net.name} has no linear layer: the template leak is not defined for it")
        self.name, self._layer = named[-1]

    def activations(self, images: Tensor) -> Tensor:
        """What enters the layer [n, in], for uint8 images."""
        found: list[Tensor] = []

        def noted(entering: Tensor) -> Tensor:
            found.append(entering)
            return entering

        with torch.no_grad(), _hooked(self._layer, noted):
            for chunk in images.split(AT_ONCE):
                self._module(scaled(chunk))
        return torch.cat(found)

    def embeddings(self, activations: Tensor) -> Tensor:
        """Unit embeddings [n, d] of activations [n, in]: through the layer, and whatever comes after it."""
        height, width = self._net.size or (16, 16)
        blank = activations.new_zeros(len(activations), 3, height, width)
        with torch.no_grad(), _hooked(self._layer, lambda _: activations):
            return F.normalize(self._module(blank), dim=1)

    def change(self, update: Weights) -> tuple[Tensor, Tensor | None]:
        """ΔW [d, in] and Δb [d] (None for a layer without bias) of an update."""
        return update.parameters[f"{self.name}.weight"], update.parameters.get(f"{self.name}.bias")

    def alone(self, update: Weights, typical: Tensor) -> Tensor:
        """The template [1, d] of the one person behind an update; zeros if nothing was sent.

        Without a bias the sign is lost: the one nearer to ``typical`` [d], the mean of public templates, is taken.
        """
        weight, bias = self.change(update)
        if not bool(weight.any()):
            return torch.zeros(1, len(typical))
        if bias is not None and bool(bias.any()):
            return self.embeddings((weight.T @ bias / bias.square().sum())[None])
        right: Tensor = torch.linalg.svd(weight, full_matrices=False)[2][:1]
        both = self.embeddings(torch.cat([right, -right]))
        return both[(both @ typical).argmax()][None]

    def directions(self, update: Weights, people: int) -> Tensor:
        """Of a sum over so many people: guesses [≤ people + 1, d] at their templates, in no order.

        The mean, and each singular direction: the layer tells the span of the mean activations, not the people in it.
        """
        weight, bias = self.change(update)
        left: Tensor
        values: Tensor
        right: Tensor
        left, values, right = torch.linalg.svd(weight, full_matrices=False)
        right = right[:people]
        if bias is not None:  # a length for each direction, as above
            along = left.T[:people] @ bias / values[:people].clamp(min=1e-20)
            right = right / torch.where(along.abs() < 1e-6, 1e-6, along)[:, None]
            mean = weight.T @ bias / bias.square().sum().clamp(min=1e-20)
            right = torch.cat([mean[None], right])
        return self.embeddings(right)

    def errors(self, update: Weights, people: int, generator: torch.Generator) -> Tensor:
        """Guesses [g, d] at the directions of the people's errors: of one person it, up to sign; of a sum, blindly."""
        weight, bias = self.change(update)
        if people == 1:
            left: Tensor = torch.linalg.svd(weight, full_matrices=False)[0].T[:1]
            return left if bias is None else F.normalize(bias, dim=0)[None]
        if not bool(weight.any()):
            return torch.zeros(2, len(weight))  # nobody sent anything
        whole = F.normalize(weight.double().flatten(), dim=0).view_as(weight)  # tiny numbers: keep them from rounding
        sources = min(people, *weight.shape)
        rows = whole[None]
        entering = chords.independent(rows, chords.told(rows, sources), generator)
        columns = (whole - whole.mean(dim=1, keepdim=True)).T[None]
        leaving = chords.independent(columns, chords.told(columns, sources), generator)
        found = torch.cat([torch.linalg.pinv(entering).T @ whole.T, leaving])
        return F.normalize(found, dim=1).to(weight.dtype)

    def apart(self, update: Weights, people: int, generator: torch.Generator) -> Tensor:
        """Of a sum over so many people, nothing known: guesses [≤ 2 · people, d] at their templates."""
        errors = self.errors(update, people, generator)
        return torch.cat([self.solved(update, side) for side in errors.split(len(errors) // 2)])

    def solved(self, update: Weights, errors_ND: Tensor) -> Tensor:
        """Of a sum, with the direction of each person's error known [n, d], n ≤ d: their templates [n, d] in order."""
        weight, bias = self.change(update)
        inverse: Tensor = torch.linalg.pinv(errors_ND.T)
        activations = inverse @ weight
        if bias is not None:
            along = inverse @ bias
            activations = activations / torch.where(along.abs() < 1e-12, 1e-12, along)[:, None]
        return self.embeddings(activations)


class _hooked:  # noqa: N801  (used as a function is)
    """While inside, what enters a layer is replaced."""

    def __init__(self, layer: nn.Module, replace: Callable[[Tensor], Tensor]) -> None:
        self._handle = layer.register_forward_pre_hook(lambda _, entering: (replace(entering[0]),))

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
