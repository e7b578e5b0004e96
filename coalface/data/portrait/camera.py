"""What the camera does to the light: focus, compression, tone, sensor noise, eight bits."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from coalface.data.portrait.counter import pixel_noise
from coalface.data.portrait.sitting import Numbers
from coalface.data.portrait.stage import colour

_BLOCK = 8


def develop(face: Numbers, light: Tensor, noise_key: Tensor) -> Tensor:
    """A uint8 photograph [n, 3, H, W] of the light [n, 3, H, W]; ``noise_key`` int64 [n] names the sensor's noise."""
    f = {
        name: face[name][:, None]
        for name in ("exposure", "curve", "contrast", "lift", "saturation", "noise", "compression")
    }
    height, width = light.shape[-2:]
    image = focused(light, face["blur_x"], face["blur_y"])
    image.mul_(f["exposure"] * colour(face, "white"))
    image.div_((image * 0.18).add_(1))  # film rolls off where light is strong
    grey = 0.3 * image[:, :1] + 0.59 * image[:, 1:2] + 0.11 * image[:, 2:]
    image.sub_(grey).mul_(f["saturation"]).add_(grey).clamp_(0, 1)
    image.add_((1 - image).mul_(image).mul_(f["curve"]))
    image.sub_(0.45).mul_(f["contrast"]).add_(0.45 + f["lift"])
    image.add_(pixel_noise(noise_key, height, width).mul_(f["noise"]))
    image = _compressed(image, f["compression"])
    return image.clamp_(0, 1).mul_(255).add_(0.5).to(torch.uint8)


def focused(image: Tensor, radius_x: Tensor, radius_y: Tensor) -> Tensor:
    """Each image blurred by its own two radii, given as shares of the image: one matrix from either side."""
    height, width = image.shape[-2:]
    return _blur(height, radius_y)[:, None] @ image @ _blur(width, radius_x)[:, None].transpose(2, 3)


def _blur(size: int, radius: Tensor) -> Tensor:
    """Rows of weights [n, size, size] for ``radius`` [n, 1, 1]."""
    at = torch.arange(size, device=radius.device, dtype=torch.float32)
    away = (at.view(1, -1, 1) - at.view(1, 1, -1)) / (radius * size + 0.5)
    weight = (1 - away * away / 3).clamp(min=0)
    weight = weight * weight
    return weight / weight.sum(2, keepdim=True)


def _compressed(image: Tensor, strength: Tensor) -> Tensor:
    """Small cosine coefficients of 8 × 8 blocks of brightness shrink to nothing, fine ones first, as in a JPEG file.

    Shrinking, unlike the rounding of a real encoder, is continuous: a last-bit difference stays one.
    """
    height, width = image.shape[-2:]
    rows, columns = _cosines(height).to(image.device), _cosines(width).to(image.device)
    red, green, blue = image.unbind(1)
    coefficients = rows @ (red + blue).mul_(0.5).add_(green).mul_(0.5) @ columns.T
    fine = _fineness(height).view(-1, 1) + _fineness(width).view(1, -1)
    dead = fine.to(image.device) * strength[:, 0]
    lost = torch.minimum(torch.maximum(coefficients, -dead), dead)
    return image.sub_((rows.T @ lost @ columns)[:, None])


@lru_cache
def _cosines(size: int) -> Tensor:
    """Orthonormal cosine transform of each block of 8 (the last may be shorter), as one matrix [size, size]."""
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for start in range(0, size, _BLOCK):
        length = min(_BLOCK, size - start)
        at = torch.arange(length, dtype=torch.float64)
        block = torch.cos(math.pi / length * (at[None] + 0.5) * at[:, None]) * math.sqrt(2 / length)
        block[0] /= math.sqrt(2)
        matrix[start : start + length, start : start + length] = block
    return matrix.float()


def _fineness(size: int) -> Tensor:
    """0 for a block's mean, rising to 1 for its finest wave, [size]."""
    return (torch.arange(size) % _BLOCK).float() / (_BLOCK - 1)
