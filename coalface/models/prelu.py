"""PReLU that also takes images of another precision than its weight, as they are under autocast."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class PReLU(nn.PReLU):
    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight.to(x.dtype))
