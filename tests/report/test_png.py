from __future__ import annotations

import io

import pytest
import torch

from coalface.report.png import data_uri, encode_png


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 5), (64, 33)])
def test_pillow_reads_the_same_pixels(height: int, width: int) -> None:
    image_module = pytest.importorskip("PIL.Image")
    image = torch.randint(
        0, 256, (3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(height)
    )
    opened = image_module.open(io.BytesIO(encode_png(image)))
    assert (opened.mode, opened.size) == ("RGB", (width, height))
    assert opened.tobytes() == image.permute(1, 2, 0).contiguous().numpy().tobytes()


def test_smooth_images_are_packed() -> None:
    ramp = torch.arange(128, dtype=torch.uint8).expand(3, 128, 128)
    assert len(encode_png(ramp)) < 128 * 128 * 3 / 50


def test_data_uri() -> None:
    assert data_uri(b"\x89PNG") == "data:image/png;base64,iVBORw=="


@pytest.mark.parametrize("image", [torch.zeros(3, 4, 4), torch.zeros(1, 4, 4, dtype=torch.uint8)])
def test_other_tensors_are_refused(image: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"uint8 \[3, H, W\]"):
        encode_png(image)
