"""Last, median, 95th percentile and maximum of a list of measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RATIO_TOKENS = 8  # a ratio of medians of fewer is at the mercy of one token that was disturbed, or of a switch


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The value at ``fraction`` (0 to 1) of an ascending, non-empty list, interpolated linearly."""
    place = fraction * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """The middle of a non-empty list in any order."""
    return percentile(sorted(values), 0.5)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """An interval that holds the true median with at least 95%, from one value of the list to another.

    Between the k-th smallest and the k-th largest of n it lies unless fewer than k values fall on one side of it:
    1 - 2 * P(binomial(n, 1/2) < k). None where even the least and the greatest value promise less, for n below 6.
    """
    beyond, k = 1.0, 0  # ways, of 2 ** n, that at most k values fall on one side
    while 2 * beyond <= 0.05 * 2.0 ** len(values):
        k += 1
        beyond += math.comb(len(values), k)
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


@dataclass(frozen=True, slots=True)
class Summary:
    """The four figures of one table row, in the unit of the values, and how many values there were."""

    last: float
    p50: float
    p95: float
    maximum: float
    n: int


def summarise(values: Sequence[float]) -> Summary | None:
    """The summary of ``values`` in order of arrival; None where there is none."""
    if not values:
        return None
    ordered = sorted(values)
    return Summary(values[-1], percentile(ordered, 0.5), percentile(ordered, 0.95), ordered[-1], len(ordered))
