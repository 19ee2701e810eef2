"""How a token's times get onto one axis."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from engine.decode.program import DecodeProgram
from engine.profile.kernel_clock import KernelClock
from engine.profile.timeline import causal_axis, place
from tests.made_traces import made_trace
from tests.zincchat.cli.fake_engine import timing

PROGRAM = DecodeProgram([], [], 0)
CLOCK = KernelClock(1.0, 64, ticks=0, device_ns=1000.0, deviation_ns=50.0)


@pytest.mark.parametrize(
    ("first_stamp", "first_ns"),
    [
        (500, 1500.0),  # as measured
        (390, 1400.0),  # the clock has drifted: no kernel starts before the token's first timestamp
        (610, 1600.0),  # or ends after its last one
    ],
)
def test_kernels_lie_where_the_clock_says_and_between_the_timestamps(first_stamp: int, first_ns: float) -> None:
    spans_ns = np.array([[0.0, 100.0], [150.0, 400.0]])
    assert place(PROGRAM, spans_ns, CLOCK, first_stamp, (1400.0, 2000.0)).first_device_ns == first_ns


def test_the_deviation_is_no_more_than_the_timestamps_leave_open() -> None:
    spans_ns = np.array([[0.0, 590.0]])
    assert place(PROGRAM, spans_ns, CLOCK, 500, (1400.0, 2000.0)).deviation_ns == 10.0
    assert place(PROGRAM, spans_ns, CLOCK, 500, (1000.0, 9000.0)).deviation_ns == 50.0


def test_spans_longer_than_the_token_begin_at_its_first_timestamp() -> None:
    placed = place(PROGRAM, np.array([[0.0, 700.0]]), CLOCK, 500, (1400.0, 2000.0))
    assert (placed.first_device_ns, placed.deviation_ns) == (1400.0, 0.0)


def test_without_calibration_the_axis_moves_only_as_order_demands() -> None:
    axis = causal_axis(None, 5000, 9000, (100.0, 1100.0))
    assert axis.deviation_ns is None
    assert axis.to_host_ns(100.0) == 5000
    axis = causal_axis(axis, 10_000, 20_000, (6000.0, 7000.0))  # 1,100 ns from submit to start are possible: kept
    assert axis.to_host_ns(6000.0) == 10_900
    axis = causal_axis(axis, 30_000, 40_000, (20_000.0, 21_000.0))  # would start before its submit
    assert axis.to_host_ns(20_000.0) == 30_000
    axis = causal_axis(axis, 40_000, 51_000, (40_000.0, 42_000.0))  # would end after its fence
    assert axis.to_host_ns(42_000.0) == 51_000


def test_a_trace_can_be_held_with_a_copied_view() -> None:
    trace = made_trace(timing(3, "reuse", True, "needed", stamped=True))
    assert copy.deepcopy({"traces": [trace]})["traces"][0] is trace


def test_kernels_have_their_names_and_times() -> None:
    record = timing(3, "reuse", True, "needed", stamped=True)
    trace = made_trace(record)
    first, second, third = trace.kernels
    assert first[:4] == ("embed", "Q8_0", "small", 64)
    assert first.start_ns == trace.gpu_start_ns
    assert [kernel.barrier for kernel in trace.kernels] == [False, False, True]
    assert third.start_ns - second.end_ns == pytest.approx(record.bubbles_us * 1000)
    assert made_trace(timing(2, "reuse", True, "needed")).kernels == []
