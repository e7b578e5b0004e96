"""Batch norm that a stack of models can share with `vmap`, whatever its images look like in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BatchNorm2d(nn.BatchNorm2d):
    """By running statistics it takes the pixels of a stacked image as one axis.

    On a GPU, torch asks four axes whether channels come last, and inside `vmap` it cannot answer. It asks where the
    strides leave it open, as they do in a map of one pixel.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training or not torch._C._functorch.is_functorch_wrapped_tensor(x):
            return super().forward(x)
        about = self.running_mean, self.running_var, self.weight, self.bias
        return F.batch_norm(x.flatten(2), *about, training=False, eps=self.eps).reshape(x.shape)
