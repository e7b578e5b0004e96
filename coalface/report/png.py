"""A PNG encoder in a few lines: a page of faces must not depend on an imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode_png(image: Tensor) -> bytes:
    """A uint8 image [3, H, W] as a PNG file, without loss."""
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3 or 0 in image.shape:
        raise ValueError(f"an image is uint8 [3, H, W], not {image.dtype} {list(image.shape)}")
    _, height, width = image.shape
    pixels = image.detach().cpu().permute(1, 2, 0).reshape(height, 3 * width)
    # Filter 2, "up": the difference from the line above (uint8 wraps as the format asks), which zlib packs better.
    above = torch.cat([pixels.new_zeros(1, 3 * width), pixels[:-1]])
    lines = torch.cat([pixels.new_full((height, 1), 2), pixels - above], dim=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB, no interlace
    data = zlib.compress(lines.contiguous().numpy().tobytes(), 9)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def data_uri(png: bytes) -> str:
    """The file as text that a page can hold."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
