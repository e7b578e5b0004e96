"""Many images on one page, to be looked at."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor


def contact_sheet(images: Tensor, columns: int, gap: int = 2) -> Tensor:
    """Images uint8 [n, 3, h, w], row by row, as one uint8 [3, H, W]; white between them and in empty places."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or len(images) == 0:
        raise ValueError(f"images must be uint8 [n, 3, h, w] with n ≥ 1, not {images.dtype} {list(images.shape)}")
    if columns < 1 or gap < 0:
        raise ValueError(f"a sheet needs at least one column and no negative gap, not columns={columns}, gap={gap}")
    n, _, height, width = images.shape
    rows = -(-n // columns)
    white = images.new_full((rows * columns - n, 3, height, width), 255)
    framed = F.pad(torch.cat([images, white]), (0, gap, 0, gap), value=255)
    page = framed.view(rows, columns, 3, height + gap, width + gap).permute(2, 0, 3, 1, 4)
    page = page.reshape(3, rows * (height + gap), columns * (width + gap))
    return page[:, : page.shape[1] - gap, : page.shape[2] - gap].contiguous()


def write_png(image: Tensor, path: Path | str, colours: int | None = None) -> Path:
    """A uint8 image [3, H, W] as a PNG file; with ``colours`` (2 … 256) as a third of the bytes, by a palette."""
    try:
        from PIL import Image  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise ImportError("writing PNG files needs pillow: pip install 'coalface[app]'") from error
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3:
        raise ValueError(f"an image is uint8 [3, H, W], not {image.dtype} {list(image.shape)}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(image.permute(1, 2, 0).cpu().numpy())
    if colours is not None:
        picture = picture.quantize(colours, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    return path
