"""Numbers as people read them. A number that is missing, infinite or NaN is a dash, never a lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

DASH = "–"
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def finite(value: Any) -> float | None:
    """The number, or None for anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def rate_text(value: float | None, decimals: int = 4) -> str:
    """0.6312"""
    return DASH if value is None else f"{value:.{decimals}f}"


def interval_text(low: float | None, high: float | None) -> str:
    """[0.6107–0.6514], or nothing where an end is missing; without a blank, so that no narrow table breaks it."""
    return "" if low is None or high is None else f"[{low:.4f}–{high:.4f}]"


def share_text(value: float | None) -> str:
    """88 %"""
    return DASH if value is None else f"{round(100 * value)} %".replace("-", "−")


def count_text(value: Any) -> str:
    """12,000 or 1.9 M"""
    number = finite(value)
    if number is None:
        return DASH
    return f"{number:,.0f}" if abs(number) < 1e6 else f"{number / 1e6:,.1f} M"


def bytes_text(value: Any) -> str:
    """12.3 MB; units of a thousand, as networks count."""
    number = finite(value)
    if number is None:
        return DASH
    step = 0
    while abs(number) >= 999.5 and step < len(BYTE_UNITS) - 1:
        number, step = number / 1000, step + 1
    digits = 0 if step == 0 or abs(number) >= 99.95 else 1
    return f"{number:.{digits}f} {BYTE_UNITS[step]}"


def seconds_text(value: Any) -> str:
    """0.42 s, 12.3 s, 2 min 05 s, 3 h 04 min"""
    number = finite(value)
    if number is None:
        return DASH
    if number < 59.95:
        return f"{number:.2f} s" if number < 9.995 else f"{number:.1f} s"
    whole = round(number)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def clock_text(seconds: float) -> str:
    """1:05 or 1:02:05, as clocks and progress bars write it"""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def fmr_text(fmr: float) -> str:
    """1e-3 for a power of ten, else 0.002"""
    power = math.log10(fmr) if fmr > 0 else math.nan
    return f"1e{round(power)}" if abs(power - round(power)) < 1e-9 and power < 0 else f"{fmr:g}"


def told_apart(values: Sequence[float]) -> list[str]:
    """The values with two decimals, or with up to four where two of them would otherwise read the same."""
    texts: list[str] = []
    for decimals in (2, 3, 4):
        texts = [f"{value:.{decimals}f}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts
