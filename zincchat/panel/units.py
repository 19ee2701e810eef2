"""Numbers as the panel writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine import ModelInfo


def ms(time_us: float) -> str:
    """Microseconds as milliseconds with three significant figures at most: 0.61, 36.2, 412."""
    time_ms = time_us / 1000
    if abs(time_ms) < 10:
        return f"{time_ms:.2f}"
    return f"{time_ms:.1f}" if abs(time_ms) < 100 else f"{time_ms:,.0f}"


def rate(per_second: float) -> str:
    """A rate with two or three significant figures: 6.9, 27.4, 1,640."""
    return f"{per_second:,.1f}" if per_second < 100 else f"{per_second:,.0f}"


def bandwidth(gb_s: float) -> str:
    """GB/s as ``rate`` writes it; below 0.1 with two significant figures; a dash where nothing is read."""
    if not gb_s:
        return "–"
    return rate(gb_s) if gb_s >= 0.1 else f"{gb_s:.2g}"


def megabytes(count_bytes: float) -> str:
    """Bytes as MB (10^6), or GB where that reads better."""
    return f"{count_bytes / 1e9:.1f} GB" if count_bytes >= 1e10 else f"{count_bytes / 1e6:,.0f} MB"


def gauge(part: float, whole: float, width: int) -> str:
    """A bar of ``width`` cells filled to ``part`` of ``whole``."""
    filled = min(width, max(0, round(part / whole * width))) if whole else 0
    return "▓" * filled + "░" * (width - filled)


def model_label(model: ModelInfo) -> str:
    """The model's name with its quantisation, which many names hold already."""
    return model.name if model.quantisation in model.name else f"{model.name} {model.quantisation}"
