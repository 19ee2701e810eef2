"""The clock kernels read: how long its tick is, and how many bits of it count."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.program.op import Op
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels

_APART_S = 0.05
_READINGS = 6  # of each end; for the tick, the one between the closest timestamps counts
_WHOLE_NANOSECONDS = 0.02  # closer to 1 ns than this is 1 ns: do not let the measurement's noise bend it


@dataclass(frozen=True, slots=True)
class KernelClock:
    """The device clock as kernels see it (VK_KHR_shader_clock, device scope).

    It stood at ``ticks`` at the device time ``device_ns`` of the timestamps, give or take ``deviation_ns``.
    """

    tick_ns: float
    bits: int  # llvmpipe gives the low 32 bits only, so its clock wraps every 4.3 s
    ticks: int
    device_ns: float
    deviation_ns: float

    @property
    def longest_ns(self) -> float:
        """How long a program's kernels may take for ``relative`` to order their stamps."""
        return (1 << self.bits) * 7 / 8 * self.tick_ns

    def relative(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Ticks after the first element's, from an eighth of the clock's range before it to seven eighths after it."""
        difference = ticks - ticks.flat[0]
        if self.bits == 64:
            return difference.view(np.int64)
        before = 1 << 29
        return (difference + np.uint64(before)).astype(np.uint32).astype(np.int64) - before

    def to_device_ns(self, ticks: int, near_ns: float) -> float:
        """Device time of a kernel's ``ticks``, which were read within half the clock's range of ``near_ns``."""
        expected = round((near_ns - self.device_ns) / self.tick_ns)
        half = 1 << (self.bits - 1)
        beyond = ((ticks - self.ticks - expected + half) & ((1 << self.bits) - 1)) - half
        return self.device_ns + (expected + beyond) * self.tick_ns


@dataclass(frozen=True, slots=True)
class _Reading:
    start_ns: float  # the command buffer's timestamps, in whose middle the kernel read its clock
    end_ns: float
    ticks: int

    @property
    def width_ns(self) -> float:
        return self.end_ns - self.start_ns

    @property
    def middle_ns(self) -> float:
        return (self.start_ns + self.end_ns) / 2


def kernel_clock(device: Device, memory: Memory, kernels: Kernels) -> KernelClock | None:
    """Measure the clock; None where kernels cannot read one, or what they read does not advance.

    VK_KHR_shader_clock states no unit, so two stamps 50 ms apart are held against the timestamps of the
    command buffers around them, whose period the driver does state.
    """
    if not device.has_kernel_clock:
        return None
    slots = memory.allocate(16, "readback")
    kernel = kernels.get("nothing", stamped=True)
    op = Op("clock", kernel, (), (0,), (1, 1, 1))
    op = op.with_kernel(kernel, slots.address.to_bytes(8, "little") + op.push)
    with closing(CommandBuffer(device)) as commands:

        def read() -> _Reading:
            commands.record_all([op], [False], ONE_TIME_SUBMIT)
            commands.run_us()
            return _Reading(*commands.ticks_ns(), int(slots.host().view(np.uint64)[0]))

        first = min((read() for _ in range(_READINGS)), key=lambda reading: reading.width_ns)
        time.sleep(_APART_S)
        later = [read() for _ in range(_READINGS)]
    second = min(later, key=lambda reading: reading.width_ns)
    bits = 64 if max(first.ticks, second.ticks) >> 32 else 32
    ticks = (second.ticks - first.ticks) % (1 << bits)
    if ticks == 0:
        return None
    tick_ns = (second.middle_ns - first.middle_ns) / ticks
    if abs(tick_ns - 1.0) < _WHOLE_NANOSECONDS:
        tick_ns = 1.0
    rough = KernelClock(tick_ns, bits, second.ticks, second.middle_ns, second.width_ns / 2)
    # each reading's kernel ran between its timestamps: what all of them allow is narrower than one
    placed = [(reading, rough.to_device_ns(reading.ticks, reading.middle_ns)) for reading in later]
    earliest = max(reading.start_ns - device_ns for reading, device_ns in placed)
    latest = min(reading.end_ns - device_ns for reading, device_ns in placed)
    device_ns = second.middle_ns + (earliest + latest) / 2
    return KernelClock(tick_ns, bits, second.ticks, device_ns, abs(latest - earliest) / 2)
