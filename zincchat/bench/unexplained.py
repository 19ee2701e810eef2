"""What of a clean token's period the measured terms leave, from tokens that were neighbours in time.

The period and the GPU's idle time are a clean token's own, kernels, bubbles and edges a stamped one's. Where a device
changes its speed from second to second, medians of tokens from different seconds differ by more than what is sought
here. So each is subtracted from its like: a clean token's period from its own GPU times, a stamped token's terms from
the GPU time of the clean tokens next to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine import median_error
from zincchat.bench.statistics import median

if TYPE_CHECKING:
    from engine import BubbleReport, TokenTiming
    from zincchat.bench.measure import Samples


def unexplained(samples: Samples, report: BubbleReport | None) -> dict[str, float | None]:
    """``unexplained_us``, half its 95% interval, and its part of the median clean period; None without stamped terms.

    ``report`` has what stamps take of a stamped token's terms; where that was not measured, it stays in.
    """
    stamps_us, stamps_error_us = (report.stamps_us, report.stamps_error_us) if report is not None else (None, None)
    clean = [token for each in samples.clean for token in each.tokens]
    host_us = [
        token.period_us - token.gpu_idle_before_us - token.gpu_total_us
        for token in clean
        if token.gpu_idle_before_us is not None and token.gpu_total_us is not None
    ]
    parts_us = [difference for each in samples.stamped for difference in neighbours_us(each.tokens)]
    period_us = median([token.period_us for token in clean])
    if not host_us or not parts_us or not period_us:
        return dict.fromkeys(("unexplained_us", "unexplained_error_us", "unexplained_fraction"))
    left_us = (median(host_us) or 0.0) + (median(parts_us) or 0.0) + (stamps_us or 0.0)
    return {
        "unexplained_us": left_us,
        "unexplained_error_us": math.hypot(median_error(host_us), median_error(parts_us), stamps_error_us or 0.0),
        "unexplained_fraction": left_us / period_us,
    }


def neighbours_us(tokens: Sequence[TokenTiming]) -> list[float]:
    """For each stamped token the GPU time of the clean ones next to it, less its own kernels, bubbles and edges.

    ``tokens`` are a reply's in order. Of the clean ones the nearest before and the nearest after count, half each; a
    stamped token that has only one of them is left out.
    """
    clean = [index for index, token in enumerate(tokens) if token.measured_by == "clean" and token.gpu_total_us]
    differences = []
    for index, token in enumerate(tokens):
        before = max((place for place in clean if place < index), default=None)
        after = min((place for place in clean if place > index), default=None)
        edges = edges_us(token)
        if edges is None or before is None or after is None:
            continue
        around_us = ((tokens[before].gpu_total_us or 0.0) + (tokens[after].gpu_total_us or 0.0)) / 2
        differences.append(around_us - (token.kernels_us or 0.0) - (token.bubbles_us or 0.0) - edges)
    return differences


def edges_us(token: TokenTiming) -> float | None:
    """Between a stamped token's two timestamps, what is before its first kernel and after its last one."""
    if token.gpu_total_us is None or token.kernels_us is None or token.bubbles_us is None:
        return None
    return token.gpu_total_us - token.kernels_us - token.bubbles_us
