"""The verdict on medians."""

from __future__ import annotations

import pytest

from engine.profile.verdict import BANDWIDTH, KERNELS, STALLED, STARVED, UNDECIDED, verdict

# 1 GB read at 4,000 GB/s takes 250 us
BUS = {"token_bytes": 1_000_000_000, "probe_gb_s": 4000.0}


def judge(starved, kernels, bubbles, **other):
    period = starved + kernels + (bubbles if not isinstance(bubbles, tuple) else bubbles[1])
    given = {"period_us": period, "starved_us": starved, "gpu_total_us": period - starved, **BUS, **other}
    ranged = isinstance(bubbles, tuple)
    return verdict(kernels_us=None if ranged else kernels, bubbles_us=bubbles, **given)


@pytest.mark.parametrize(("starved", "kernels", "bubbles", "kind"), [
    (2000, 400, 150, STARVED),
    (30, 400, 150, STALLED),
    (30, 300, 10, BANDWIDTH),
    (30, 900, 10, KERNELS),
    (200, 250, 200, STARVED),  # a tie is the CPU's: its remedy is a key
    (199, 250, 200, STALLED),
    (0, 250, 27, BANDWIDTH),  # a loss under a tenth of the period
    (0, 250, 28, STALLED),
    (0, 358, 0, KERNELS),  # 69.8% of the bus
    (0, 357, 0, BANDWIDTH),
])  # fmt: skip
def test_kinds(starved, kernels, bubbles, kind):
    assert judge(starved, kernels, bubbles).kind == kind


def test_the_line_has_the_figures_it_rests_on():
    line = judge(2000, 400, 150).line
    assert line == "GPU starved by the CPU: 2.00 of 2.55 ms, bubbles 0.15, kernels 0.40 at 62% of the bus"
    line = judge(30, 400, 150).line
    assert line == "GPU stalled on barriers: 0.150 of 0.580 ms, starved 0.030, kernels 0.400 at 62% of the bus"
    assert "reach 28% of the bus" in judge(30, 900, 10).line
    assert judge(30, 300, 10).line.startswith("bound by bandwidth: 83% of the bus, kernels 0.300 of 0.340 ms")


@pytest.mark.parametrize(("starved", "kernels", "bubbles", "kind"), [
    (0, 250, (100, 200), STALLED),
    (0, 1000, (10, 900), UNDECIDED),
    (500, 1000, (10, 400), STARVED),
    (500, 1000, (10, 900), UNDECIDED),
    (0, 250, (1, 2), BANDWIDTH),
    (0, 2500, (1, 2), KERNELS),
])  # fmt: skip
def test_bounds_in_place_of_bubbles(starved, kernels, bubbles, kind):
    assert judge(starved, kernels, bubbles).kind == kind


@pytest.mark.parametrize(("kernels", "bubbles", "kind", "bus"), [
    (300, 100, STALLED, "62 to 83%"),
    (260, 10, BANDWIDTH, "93 to 96%"),
    (340, 30, UNDECIDED, "68 to 74%"),  # 70% of the bus parts two verdicts
    (900, 20, KERNELS, "27 to 28%"),
])  # fmt: skip
def test_where_weights_come_ahead_the_bus_works_in_bubbles_too(kernels, bubbles, kind, bus):
    for ahead in ({"mode": "reuse", "barriers": "flags"}, {"mode": "persistent", "barriers": "needed"}):
        found = judge(0, kernels, bubbles, **ahead)
        assert found.kind == kind and bus in found.line
    assert " to " not in judge(0, kernels, bubbles, mode="reuse", barriers="needed").line


def test_a_stall_is_named_after_what_kernels_wait_at():
    for mode, barriers, words in (
        ("reuse", "flags", "waits in memory"), ("persistent", "flags", "barriers"), ("reuse", "every", "barriers"),
    ):  # fmt: skip
        line = judge(0, 300, 100, mode=mode, barriers=barriers).line
        assert line.startswith(f"GPU stalled on {words}: 0.100 of 0.400 ms")


def test_bounds_are_shown_as_a_range():
    line = judge(0, 1000, (10, 900)).line
    assert (
        line == "undecided: bubbles 0.01 to 0.90 of 1.90 ms, starved 0.00, kernels 1.00 to 1.89 at 13 to 25% of the bus"
    )


def test_a_bus_nobody_measured_is_not_judged():
    found = judge(0, 250, 1, probe_gb_s=None)
    assert found.kind == KERNELS and "not measured" in found.line and "%" not in found.line
    assert judge(0, 250, 250, probe_gb_s=None).kind == STALLED


def test_stamps_that_make_tokens_longer_judge_nothing():
    found = judge(0, 400, 150, gpu_total_us=430)
    assert found.kind == UNDECIDED
    assert (
        found.line
        == "undecided: stamps make tokens longer, kernels 0.400 and bubbles 0.150 where clean ones take 0.430 ms"
    )
    assert judge(0, 400, 150, gpu_total_us=445).kind == STALLED
