"""The device's clock on the host's: readings lie between two looks at the host's clock, and intervals agree."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from engine.vulkan.calibration import Calibration, HostAxis
from tests.engine.gpu import Gpu

SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu() as opened:
        if opened.device.calibration is None:
            pytest.skip("this driver offers no calibrated timestamps")
        yield opened


@pytest.fixture
def calibration(gpu: Gpu) -> Calibration:
    found = gpu.device.calibration
    assert found is not None
    return found


def test_a_reading_is_on_the_clock_of_perf_counter(calibration: Calibration) -> None:
    before = time.perf_counter_ns()
    reading = calibration.read()
    after = time.perf_counter_ns()
    assert before - reading.deviation_ns <= reading.host_ns <= after + reading.deviation_ns
    readings = [calibration.read() for _ in range(20)]  # some of them may have been interrupted
    assert 0 <= min(reading.deviation_ns for reading in readings) < 1_000_000


def test_gpu_work_lies_between_its_submit_and_its_fence(gpu: Gpu, calibration: Calibration) -> None:
    gpu.run()
    before = time.perf_counter_ns()
    gpu.run()
    after = time.perf_counter_ns()
    axis = calibration.axis
    start, end = (axis.to_host_ns(ns) for ns in gpu.commands.ticks_ns())
    assert axis.deviation_ns is not None
    deviation = axis.deviation_ns + abs(axis.rate - 1) * (after - axis.host_ns)  # a rate from interrupted readings
    assert before - deviation <= start <= end <= after + deviation


def test_it_is_read_again_once_a_second_and_measures_the_rate(
    calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.vulkan.calibration._EVERY_NS", 0)
    calibration.refresh()
    first = calibration.axis
    monkeypatch.setattr("engine.vulkan.calibration._EVERY_NS", 1000 * SECOND_NS)
    calibration.refresh()
    assert calibration.axis is first
    monkeypatch.setattr("engine.vulkan.calibration._EVERY_NS", SECOND_NS // 10)
    time.sleep(0.2)
    calibration.refresh()
    second = calibration.axis
    assert second is not first
    assert second.host_ns - first.host_ns >= 0.2 * SECOND_NS
    assert first.deviation_ns is not None and second.deviation_ns is not None
    deviations = first.deviation_ns + second.deviation_ns
    assert second.rate == pytest.approx(1, abs=1e-3 + deviations / (second.host_ns - first.host_ns))


def test_an_axis_maps_device_time_by_its_rate() -> None:
    axis = HostAxis(device_ns=1000.0, host_ns=50_000, rate=1.5, deviation_ns=3)
    assert axis.to_host_ns(1000.0) == 50_000
    assert axis.to_host_ns(1010.0) == 50_015
