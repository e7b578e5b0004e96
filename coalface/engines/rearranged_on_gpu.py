"""``rearranged`` by Triton: each program moves one tile, and both sides of the copy go along rows of memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from coalface.engines.rearranged import Windows

TILE = 64  # numbers along a side of a square tile


def neighbourhoods(images: Tensor, windows: Windows, pixels_last: bool) -> Tensor:
    """See ``rearranged``."""
    models, number, channels, height, width = images.shape
    high, wide = windows.over(height), windows.over(width)
    pixels, looked_at = number * high * wide, windows.side**2 * channels
    shape = (models, looked_at, pixels) if pixels_last else (models, pixels, looked_at)
    out = images.new_empty(shape)
    rows = out.mT if pixels_last else out
    narrow = min(TILE, triton.next_power_of_2(channels))
    tile = TILE * TILE // max(16, narrow)
    grid = (triton.cdiv(pixels, tile), triton.cdiv(channels, narrow), models)
    model, image, _, row, column = images.stride()
    _copy_windows[grid](
        images,
        rows,
        pixels,
        *rows.stride(),
        *(model, image, row, column),
        *(channels, height, width, high, wide),
        *windows,
        tile=tile,
        narrow=narrow,
    )
    return rows


def turned(weight: Tensor) -> Tensor:
    """See ``rearranged``."""
    models, outputs, inputs, side, _ = weight.shape
    out = weight.new_empty(models, inputs, side, side, outputs)
    grid = (triton.cdiv(outputs, TILE), triton.cdiv(inputs, TILE), models * side**2)
    _copy_turned[grid](weight.permute(0, 1, 3, 4, 2).contiguous(), out, outputs, inputs, taps=side**2, tile=TILE)
    return out.permute(0, 1, 4, 2, 3)


@triton.jit  # type: ignore[untyped-decorator]
def _copy_windows(  # type: ignore[no-untyped-def]
    images,  # [M, n, C, H, W], channels last
    rows,  # [M, pixels, side² · C]
    pixels,
    to_model,  # strides of the rows
    to_pixel,
    to_channel,
    from_model,  # strides of the images
    from_image,
    from_row,
    from_column,
    channels: tl.constexpr,  # known beforehand, as all below: places are then found by multiplying
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,  # output pixels
    wide: tl.constexpr,
    side: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    tile: tl.constexpr,
    narrow: tl.constexpr,
):
    pixel = tl.program_id(0) * tile + tl.arange(0, tile)
    channel = tl.program_id(1) * narrow + tl.arange(0, narrow)
    model = tl.program_id(2).to(tl.int64)
    image, top, left = pixel // (high * wide), pixel // wide % high * stride, pixel % wide * stride
    exists, there = pixel < pixels, (channel < channels)[None, :]
    place = rows + model * to_model + pixel.to(tl.int64)[:, None] * to_pixel
    mine = images + model * from_model + image.to(tl.int64) * from_image
    for tap in tl.static_range(side * side):
        row, column = top + tap // side - padding, left + tap % side - padding
        inside = exists & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        start = mine + row.to(tl.int64) * from_row + column.to(tl.int64) * from_column
        read = tl.load(start[:, None] + channel[None, :], mask=inside[:, None] & there, other=0.0)
        beside = (tap * channels + channel).to(tl.int64)[None, :] * to_channel
        tl.store(place + beside, read, mask=exists[:, None] & there)


@triton.jit  # type: ignore[untyped-decorator]
def _copy_turned(weight, out, outputs, inputs, taps: tl.constexpr, tile: tl.constexpr):  # type: ignore[no-untyped-def]
    # [M, outputs, taps, inputs] -> [M, inputs, taps, outputs], the taps from last to first
    output = (tl.program_id(0) * tile + tl.arange(0, tile)).to(tl.int64)[:, None]
    input_ = (tl.program_id(1) * tile + tl.arange(0, tile)).to(tl.int64)[None, :]
    model, tap = tl.program_id(2) // taps, tl.program_id(2) % taps
    there = (output < outputs) & (input_ < inputs)
    read = tl.load(weight + ((model * outputs + output) * taps + tap) * inputs + input_, mask=there)
    tl.store(out + ((model * inputs + input_) * taps + taps - 1 - tap) * outputs + output, read, mask=there)
