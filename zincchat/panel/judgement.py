"""The engine's verdict, the streaming floor and the native record cost, from the tokens since a setting changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import Verdict, floor_fraction, floor_tok_s, starved_us, verdict
from zincchat.panel.runs import STAMPED_TOKENS_NEEDED
from zincchat.panel.statistics import median

if TYPE_CHECKING:
    from zincchat.panel.segment import Segment
    from zincchat.panel.view import PanelView


def bytes_per_token(view: PanelView, segment: Segment) -> int | None:
    """Bytes that the segment's tokens had to read, in the median; None before there is one and its device is measured.

    Of the same tokens as their median period: a token's position alone decides how many there are.
    """
    if view.device is None or not segment.fed_positions:
        return None
    return view.device.token_bytes(round(median(segment.fed_positions)))


def starved(view: PanelView, segment: Segment) -> float | None:
    """Median idle time of the GPU beyond the gap between queued submissions, microseconds; None where not known."""
    if view.device is None or view.device.queued_gap_us is None or not segment.gpu_idle_us:
        return None
    return starved_us(median(segment.gpu_idle_us), view.device.queued_gap_us)


def floor(view: PanelView, segment: Segment) -> tuple[float, float] | None:
    """Tokens a second of the streaming floor and the fraction (0 to 1) of it reached; None where not known."""
    token_bytes = bytes_per_token(view, segment)
    if view.device is None or token_bytes is None or not view.device.probe_gb_s or not segment.token_us:
        return None
    probe_gb_s = view.device.probe_gb_s
    return floor_tok_s(probe_gb_s, token_bytes), floor_fraction(probe_gb_s, token_bytes, median(segment.token_us))


def judge(view: PanelView, segment: Segment) -> Verdict | None:
    """The verdict; None before the third stamped token, or where the device's own figures are missing."""
    idle_us, token_bytes = starved(view, segment), bytes_per_token(view, segment)
    if view.device is None or idle_us is None or token_bytes is None or not segment.gpu_us:
        return None
    bubbles_us: float | tuple[float, float]
    if len(segment.bubbles_us) >= STAMPED_TOKENS_NEEDED and segment.kernels_us:
        bubbles_us, kernels_us = median(segment.bubbles_us), median(segment.kernels_us)
    elif segment.bubbles_low_us:
        bubbles_us, kernels_us = (median(segment.bubbles_low_us), median(segment.bubbles_high_us)), None
    else:
        return None
    return verdict(
        period_us=median(segment.token_us),
        starved_us=idle_us,
        gpu_total_us=median(segment.gpu_us),
        kernels_us=kernels_us,
        bubbles_us=bubbles_us,
        token_bytes=token_bytes,
        probe_gb_s=view.device.probe_gb_s,
        mode=segment.settings.mode,
        barriers=segment.settings.barriers,
    )
