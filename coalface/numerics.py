"""How a GPU computes. A CPU always takes plain float32, so that its results are the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Numerics:
    """Faster arithmetic, by name. What each costs in accuracy is measured in results/, not assumed."""

    precision: Literal["fp32", "tf32", "bf16"] = "tf32"  # of products; weights, sums and losses stay float32
    channels_last: bool = True  # images in memory as the GPU's convolutions want them; stacks of models always are
    autotune: bool = True  # try the library's kernels, and our ways to a stack of models, and keep the fastest
    compiled: bool = False  # by torch.compile: half a minute for a new shape, then up to twice as fast; not stacks

    def switch_on(self) -> None:
        """Tell torch, for this process."""
        torch.backends.cuda.matmul.allow_tf32 = self.precision != "fp32"
        torch.backends.cudnn.allow_tf32 = self.precision != "fp32"
        torch.backends.cudnn.benchmark = self.autotune

    def autocast(self) -> torch.autocast:
        """The context for a network's pass on a GPU."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self.precision == "bf16")


def channels_last(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convolutions' weights so that images go through channels last. A stack of models has no such layout."""
    return {
        name: leaf.contiguous(memory_format=torch.channels_last)
        if leaf.ndim == 4 and not torch._C._functorch.is_functorch_wrapped_tensor(leaf)
        else leaf
        for name, leaf in parameters.items()
    }
