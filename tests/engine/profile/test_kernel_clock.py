"""The clock kernels read, in device time: by its measured offset, across the wrap of 32 bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.profile.kernel_clock import KernelClock, kernel_clock
from engine.program.op import Op
from tests.engine.gpu import Gpu


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu() as opened:
        yield opened


def test_a_stamp_lies_between_the_timestamps_of_its_buffer(gpu: Gpu) -> None:
    clock = kernel_clock(gpu.device, gpu.memory, gpu.kernels)
    if clock is None:
        pytest.skip("the kernels of this device cannot read a clock")
    slots = gpu.memory.allocate(16, "readback")
    kernel = gpu.kernels.get("nothing", stamped=True)
    op = Op("clock", kernel, (), (0,), (1, 1, 1))
    for _ in range(5):
        gpu.run(op.with_kernel(kernel, slots.address.to_bytes(8, "little") + op.push))
        start_ns, end_ns = gpu.commands.ticks_ns()
        stamp_ns = clock.to_device_ns(int(slots.host().view(np.uint64)[0]), start_ns)
        assert start_ns - clock.deviation_ns <= stamp_ns <= end_ns + clock.deviation_ns


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("first", [0, 5, 1 << 31, (1 << 32) - 1])
def test_stamps_are_ordered_across_the_wrap(bits: int, first: int) -> None:
    clock = KernelClock(1.0, bits, ticks=0, device_ns=0.0, deviation_ns=0.0)
    assert clock.longest_ns > 3.7e9
    after = [0, 40, -400_000_000, 2_200_000_000, 3_700_000_000]
    ticks = np.array([(first + ticks) % (1 << bits) for ticks in after], np.uint64)
    assert clock.relative(ticks).tolist() == after


@pytest.mark.parametrize(("bits", "tick_ns"), [(32, 1.0), (64, 1.0), (64, 31.25), (32, 10.0)])
def test_any_later_stamp_is_placed(bits: int, tick_ns: float) -> None:
    clock = KernelClock(tick_ns, bits, ticks=4_000_000_000, device_ns=5e9, deviation_ns=0.0)
    for passed_ns in (0, 1e6, 4e9, 6e11):
        ticks = (clock.ticks + round(passed_ns / tick_ns)) % (1 << bits)
        for off_ns in (-1e8, 0, 1e8):
            placed_ns = clock.to_device_ns(ticks, clock.device_ns + passed_ns + off_ns)
            assert placed_ns == pytest.approx(clock.device_ns + passed_ns, abs=tick_ns)
