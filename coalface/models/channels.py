"""Which tensors of a network have channels in common: to reorder the channels of one is to reorder them all."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coalface.models.net import Weights


@dataclass(frozen=True)
class Layer:
    """Tensors whose first axis is the output channels of one layer."""

    parameters: tuple[str, ...]
    statistics: tuple[str, ...]
    # Later tensors that have these channels too, and on which axis. Empty: the order is that of an earlier layer
    # (or, in the last layer, has a meaning), and cannot be chosen.
    along: tuple[tuple[str, int], ...]

    def of(self, weights: Weights) -> Weights:
        """This layer's part of the weights."""
        return Weights(
            {name: weights.parameters[name] for name in self.parameters},
            {name: weights.statistics[name] for name in self.statistics},
        )


def resnet18_layers() -> tuple[Layer, ...]:
    """ResNet-18 from its input to its output: 18 layers, as the name says.

    A residual stage adds its blocks' outputs to one stream, so they share one order of channels, that of the stage's
    first output; the channels inside a block are the block's own.
    """
    stage_1 = tuple(out for block in (0, 1) for out in _output(f"layer1.{block}"))
    layers = [_layer(("conv1",), ("bn1",), stage_1 + _inputs(1, block=0) + _inputs(1, block=1) + _inputs(2, block=0))]
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            layers.append(_layer((f"{at}.conv1",), (f"{at}.bn1",), ((f"{at}.conv2.weight", 1),)))
            if block == 0 and stage > 1:
                after = _inputs(stage + 1, block=0) if stage < 4 else (("fc.weight", 1),)
                along = _output(f"layer{stage}.1") + _inputs(stage, block=1) + after
                convs, norms = (f"{at}.conv2", f"{at}.downsample.0"), (f"{at}.bn2", f"{at}.downsample.1")
                layers.append(_layer(convs, norms, along))
            else:
                layers.append(_layer((f"{at}.conv2",), (f"{at}.bn2",), ()))
    layers.append(Layer(("fc.weight", "fc.bias"), (), ()))
    return tuple(layers)


def reordered(weights: Weights, axes: tuple[tuple[str, int], ...], order: Tensor) -> Weights:
    """The weights with these tensors' channels in a new order: place i holds what was at ``order[i]``."""
    axis = dict(axes)

    def moved(leaves: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: leaf.index_select(axis[name], order) if name in axis else leaf for name, leaf in leaves.items()}

    return Weights(moved(weights.parameters), moved(weights.statistics))


def _layer(convs: tuple[str, ...], norms: tuple[str, ...], along: tuple[tuple[str, int], ...]) -> Layer:
    parameters = [f"{conv}.weight" for conv in convs] + [f"{norm}.{leaf}" for norm in norms for leaf in PARAMETERS]
    return Layer(tuple(parameters), tuple(f"{norm}.{leaf}" for norm in norms for leaf in STATISTICS), along)


def _output(block: str) -> tuple[tuple[str, int], ...]:
    """What a block adds to its stage's stream."""
    return ((f"{block}.conv2.weight", 0), *((f"{block}.bn2.{leaf}", 0) for leaf in PARAMETERS + STATISTICS))


def _inputs(stage: int, block: int) -> tuple[tuple[str, int], ...]:
    """What reads the stream before this block."""
    at = f"layer{stage}.{block}"
    shortcut = ((f"{at}.downsample.0.weight", 1),) if block == 0 and stage > 1 else ()
    return ((f"{at}.conv1.weight", 1), *shortcut)


PARAMETERS, STATISTICS = ("weight", "bias"), ("running_mean", "running_var")  # of a batch norm
