"""Spread, ratios and their intervals."""

from __future__ import annotations

import random

import pytest

from zincchat.bench.statistics import coverage, median, paired_ratio, spread, unpaired_ratio


def test_spread_interpolates_between_neighbours() -> None:
    assert spread([30.0, 10.0, 20.0]) == {"median": 20.0, "p5": 11.0, "p95": 29.0}
    assert spread([7.0]) == {"median": 7.0, "p5": 7.0, "p95": 7.0}


def test_the_median_leaves_out_what_was_not_measured() -> None:
    assert median([3.0, None, 1.0]) == 2.0
    assert median([None]) is None


def test_a_drift_that_both_share_leaves_a_paired_ratio_alone() -> None:
    base = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0]
    ratio = paired_ratio([1.5 * value for value in base], base)
    assert ratio == pytest.approx({"median": 1.5, "low": 1.5, "high": 1.5})


def test_six_repeats_span_all_their_ratios_and_one_has_no_interval() -> None:
    ratios = [0.90, 0.95, 1.00, 1.02, 1.10, 1.20]
    ratio = paired_ratio(ratios, [1.0] * 6)
    assert ratio["median"] == pytest.approx(1.01)
    assert 0.90 <= ratio["low"] < 0.97
    assert 1.08 < ratio["high"] <= 1.20
    assert paired_ratio([2.0], [1.0]) == {"median": 2.0, "low": None, "high": None}


def test_more_repeats_narrow_the_interval_below_the_spread() -> None:
    chooser = random.Random(7)
    ratios = [chooser.gauss(1.0, 0.1) for _ in range(60)]
    ratio, ratios_spread = paired_ratio(ratios, [1.0] * 60), spread(ratios)
    assert ratio["high"] - ratio["low"] < 0.3 * (ratios_spread["p95"] - ratios_spread["p5"])


def test_the_same_values_give_the_same_interval() -> None:
    values = [1.0, 1.3, 0.8, 1.1, 0.9]
    assert paired_ratio(values, values[::-1]) == paired_ratio(values, values[::-1])
    assert unpaired_ratio(values, [1.0, 1.2]) == unpaired_ratio(values, [1.0, 1.2])


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    chooser = random.Random(5)
    hits = 0
    for _ in range(60):
        base = [chooser.lognormvariate(3, 0.3) for _ in range(10)]
        ratio = paired_ratio([1.2 * value * chooser.lognormvariate(0, 0.05) for value in base], base)
        hits += ratio["low"] <= 1.2 <= ratio["high"]
    assert hits >= 51  # 95% of 60 is 57; with 85% the chance of fewer than 51 would be a half


def test_what_few_repeats_can_cover() -> None:
    assert [coverage(n) for n in (1, 2, 5)] == [0.0, 0.5, 0.9375]
    assert coverage(6) > 0.95


def test_different_runs_are_resampled_each_by_itself() -> None:
    ratio = unpaired_ratio([20.0, 22.0, 18.0], [10.0, 10.0, 10.0, 10.0])
    assert ratio["median"] == 2.0
    assert (ratio["low"], ratio["high"]) == (1.8, 2.2)
    assert unpaired_ratio([20.0], [10.0, 12.0])["low"] is None
