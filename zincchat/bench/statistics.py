"""What is said of a list of measurements: spread, and ratios with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zincchat.panel.statistics import percentile

RESAMPLES = 10_000
CONFIDENCE = 0.95
_SEED = 20261129


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 5th and 95th percentile of a non-empty list, linear between neighbours."""
    ordered = sorted(values)
    return {name: percentile(ordered, at) for name, at in (("median", 0.5), ("p5", 0.05), ("p95", 0.95))}


def median(values: Sequence[float | None]) -> float | None:
    """The median of those that were measured; None where none was."""
    measured = sorted(value for value in values if value is not None)
    return percentile(measured, 0.5) if measured else None


def coverage(repeats: int) -> float:
    """The most that an interval for a median can cover: from the least to the greatest of ``repeats`` values.

    Both ends miss the true median only if all values lie on one side of it: 1 - 2 * 0.5 ** repeats.
    """
    return max(0.0, 1 - 2 * 0.5**repeats)


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> dict[str, float | None]:
    """The median of ``values[i] / base[i]`` with a 95% percentile-bootstrap interval over the pairs.

    Pairs were measured near each other in time, so that a drift shared by both leaves their ratio alone.
    ``low`` and ``high`` are None for fewer than two pairs. The seed is fixed: the same values, the same interval.
    """
    ratios = np.divide(values, base)
    if len(ratios) < 2:
        return {"median": float(np.median(ratios)), "low": None, "high": None}
    drawn = _resample(np.random.default_rng(_SEED), ratios)
    return _with_interval(float(np.median(ratios)), np.median(drawn, axis=1))


def unpaired_ratio(values: Sequence[float], base: Sequence[float]) -> dict[str, float | None]:
    """The ratio of the medians of two lists from different runs, each resampled by itself; else as paired_ratio."""
    ratio = float(np.median(values) / np.median(base))
    if min(len(values), len(base)) < 2:
        return {"median": ratio, "low": None, "high": None}
    generator = np.random.default_rng(_SEED)
    above, below = (np.median(_resample(generator, np.asarray(each)), axis=1) for each in (values, base))
    return _with_interval(ratio, above / below)


def _resample(generator: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """(RESAMPLES, n) draws with replacement."""
    return values[generator.integers(0, len(values), (RESAMPLES, len(values)))]


def _with_interval(ratio: float, drawn: np.ndarray) -> dict[str, float | None]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return {"median": ratio, "low": float(low), "high": float(high)}
