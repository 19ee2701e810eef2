"""Percentiles are numpy's linear ones."""

from __future__ import annotations

import numpy as np
import pytest

from zincchat.panel.statistics import median, summarise


@pytest.mark.parametrize("values", [[3.0], [2.0, 1.0], [5.0, 1.0, 4.0, 2.0], [float(n * n % 97) for n in range(81)]])
def test_summary_equals_numpy(values: list[float]) -> None:
    summary = summarise(values)
    assert summary is not None
    assert summary.last == values[-1]
    assert summary.n == len(values)
    assert summary.p50 == median(values) == pytest.approx(np.percentile(values, 50))
    assert summary.p95 == pytest.approx(np.percentile(values, 95))
    assert summary.maximum == max(values)


def test_nothing_has_no_summary() -> None:
    assert summarise([]) is None
