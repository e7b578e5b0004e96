"""The camera in front: halo of its sharpening, then focus, tone, noise and compression as in ``portrait.camera``."""

from __future__ import annotations

from torch import Tensor

from coalface.data.portrait.camera import develop, focused
from coalface.data.portrait.sitting import Numbers


def film(m: Numbers, light: Tensor, noise_key: Tensor) -> Tensor:
    """A uint8 frame [n, 3, H, W] of the light [n, 3, H, W]."""
    radius = 0.8 / m["pixels"] + 0.012
    sharp = light + (light - focused(light, radius, radius)) * m["sharpen"][:, None]
    return develop(m, sharp.clamp_(min=0), noise_key)
