"""A network as a pure function of its weights: the only way in which the rest of the project uses one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils import _pytree

from coalface.models import CHANNELS_LAST_ON_CPU, build, complete_settings
from coalface.models.size import height_width
from coalface.numerics import Numerics, channels_last

Tensors = dict[str, Tensor]
_one_at_a_time = threading.Lock()  # torch's initialisers draw from a generator that all threads share


@dataclass(frozen=True, eq=False)
class Weights:
    """Everything floating that a network holds. A pytree, so `torch.func.vmap(net)` takes stacked ones."""

    parameters: dict[str, Tensor]  # what is trained
    statistics: dict[str, Tensor]  # running means and variances of batch norm; empty for a network without it

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        """The same weights, each tensor changed: `weights.map(lambda t: t.to(device))`, `weights.map(torch.clone)`."""
        return Weights(
            {name: change(tensor) for name, tensor in self.parameters.items()},
            {name: change(tensor) for name, tensor in self.statistics.items()},
        )


_pytree.register_pytree_node(
    Weights,
    lambda weights: ([weights.parameters, weights.statistics], None),
    lambda children, _: Weights(*children),
)


class Net:
    """A network without its weights.

    `net(weights, images)` is [n, embedding], raw. A net holds shapes only, so it is cheap to make and to send; but it
    lends its layers to one call at a time, so threads need one each.
    """

    name: str
    settings: dict[str, Any]  # all of them, the defaults included
    embedding: int
    size: tuple[int, int] | None  # (height, width) of the images; None: any
    shapes: Weights  # tensors on the meta device: names, shapes and dtypes without content

    def __init__(self, name: str, numerics: Numerics | None = None, **settings: Any) -> None:
        """``numerics`` says how a GPU computes it; it changes nothing on a CPU."""
        self.name = name
        self.numerics = numerics or Numerics()
        self.settings = complete_settings(name, settings)
        # A network that names no width of its output gives one number: a detector's logit.
        self.embedding = self.settings.get("outputs", self.settings.get("embedding", 1))
        self.size = height_width(self.settings["size"]) if "size" in self.settings else None
        # One module per mode, never switched, so that a training call cannot leave a trace in an evaluation.
        with torch.device("meta"):
            self._by_running_statistics = build(name, **self.settings).eval()
            self._by_batch_statistics = build(name, **self.settings).train()
        self.shapes = _weights_of(self._by_running_statistics)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"

    def fresh(self, seed: int) -> Weights:
        """Initial weights on the CPU, a function of the seed alone; no global random state changes."""
        with _one_at_a_time, torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)  # the CPU's alone: torch.manual_seed would reseed the GPUs too
            return _weights_of(build(self.name, **self.settings))

    def module(self, weights: Weights) -> torch.nn.Module:
        """An ordinary module in evaluation mode that holds these very tensors: for export."""
        self._check_names(weights)
        with torch.device("meta"):
            module = build(self.name, **self.settings).eval()
        # Not strict, because torch itself adds the counters that `build` took away; the names were checked above.
        module.load_state_dict({**weights.parameters, **weights.statistics}, strict=False, assign=True)
        return module

    def __call__(self, weights: Weights, images: Tensor, *, batch_statistics: bool = False) -> Tensor:
        """Embeddings [n, embedding] of images [n, 3, height, width]: uint8, or float and already scaled.

        Batch norm uses the running statistics. With `batch_statistics` it uses those of the batch instead, and moves
        the tensors of `weights.statistics` towards them IN PLACE; a batch of one image is then refused.
        """
        outputs = self.all_outputs(weights, images, batch_statistics=batch_statistics)
        embeddings: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        return embeddings

    def all_outputs(self, weights: Weights, images: Tensor, *others: Tensor, batch_statistics: bool = False) -> Any:
        """What the network returns: embeddings, or a tuple that begins with them. `others` are its further inputs."""
        self._check_names(weights)
        if self.size is not None and tuple(images.shape[-2:]) != self.size:
            raise ValueError(f"images are {tuple(images.shape)}, but {self} takes height and width {self.size}")
        if batch_statistics and weights.statistics and images.shape[0] < 2:
            raise ValueError(
                f"{self.name} cannot take batch statistics from {images.shape[0]} image(s): "
                "give two or more, or use the running statistics (batch_statistics=False)"
            )
        module = self._by_batch_statistics if batch_statistics else self._by_running_statistics
        if images.dtype == torch.uint8:
            images = scaled(images, next(iter(weights.parameters.values())).dtype)
        if torch._C._functorch.is_batchedtensor(images) and not others and not batch_statistics:
            leaves, structure = _pytree.tree_flatten(weights)
            if not any(map(torch._C._functorch.is_functorch_wrapped_tensor, leaves)):
                return _OneBatch.apply(  # type: ignore[no-untyped-call]
                    lambda flat, given: self._run(module, structure.unflatten(given), flat), images, *leaves
                )
        return self._run(module, weights, images, *others)

    def channels_last_on(self, kind: str) -> bool:
        """Whether images go through a device of this kind with their channels side by side in memory."""
        # On a CPU not a setting: a network's results there are to be the same under all of them.
        return self.numerics.channels_last if kind == "cuda" else self.name in CHANNELS_LAST_ON_CPU

    def laid_out(self, tensors: Tensors, kind: str) -> Tensors:
        """Weights in the order in memory that a device of this kind wants; those that are in it are not copied."""
        return channels_last(tensors) if self.channels_last_on(kind) else tensors

    def _run(self, module: torch.nn.Module, weights: Weights, *inputs: Tensor) -> Any:
        kind = inputs[0].device.type
        parameters = self.laid_out(weights.parameters, kind)
        if kind != "cuda":
            return _called(module, parameters, weights.statistics, *inputs)
        with self.numerics.autocast():
            call = self._compiled if self._compiles(module, *parameters.values(), *inputs) else partial(_called, module)
            outputs = call(parameters, weights.statistics, *inputs)
            return _pytree.tree_map(lambda leaf: leaf.to(inputs[0].dtype), outputs)

    def _compiles(self, module: torch.nn.Module, *tensors: Tensor) -> bool:
        """Passes that are trained by, and come again and again in a few shapes; stacks of models are vmap's matter."""
        if not self.numerics.compiled or not torch.is_grad_enabled() or module is not self._by_running_statistics:
            return False
        return not any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors))

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        return torch.compile(partial(_called, self._by_running_statistics), dynamic=False)

    def _check_names(self, weights: Weights) -> None:
        # A tensor left out would silently be taken from the empty module, and fail far from here.
        odd = (weights.parameters.keys() ^ self.shapes.parameters.keys()) | (
            weights.statistics.keys() ^ self.shapes.statistics.keys()
        )
        if odd:
            first = ", ".join(sorted(odd)[:5])
            raise ValueError(f"these are not the weights of {self}: {len(odd)} names differ, among them {first}")


class _OneBatch(torch.autograd.Function):
    """How ``vmap`` takes a network that all its clients share: their images are one batch of it, and no layer knows.

    Otherwise vmap goes through the layers itself, and autocast does not reach all of them.
    """

    @staticmethod
    def forward(run: Callable[..., Any], images: Tensor, *weights: Tensor) -> Any:
        """Never called: there is something to stack, or it would not have come to this."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Part of an autograd function; the layers remember for themselves what they need."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, run: Callable[..., Any], images: Tensor, *weights: Tensor) -> tuple[Any, Any]:
        """Part of an autograd function."""
        stack = images.movedim(in_dims[1], 0)
        outputs = run(stack.flatten(0, 1), weights)
        apart = _pytree.tree_map(lambda leaf: leaf.unflatten(0, stack.shape[:2]), outputs)
        return apart, _pytree.tree_map(lambda leaf: 0, outputs)


def _called(module: torch.nn.Module, parameters: Tensors, statistics: Tensors, *inputs: Tensor) -> Any:
    return functional_call(module, (parameters, statistics), inputs, tie_weights=False)


def scaled(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 pixels as numbers in [-1, 1): (x − 127.5) / 128, the scale of the published face networks."""
    return (images.to(dtype) - 127.5) / 128


def _weights_of(module: torch.nn.Module) -> Weights:
    return Weights({name: tensor.detach() for name, tensor in module.named_parameters()}, dict(module.named_buffers()))
