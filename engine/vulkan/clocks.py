"""The clock kernels read, and how long its tick is."""

from __future__ import annotations

import time

import numpy as np

from engine.program.op import Op
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels

_APART_S = 0.02


def kernel_clock_tick_ns(device: Device, memory: Memory, kernels: Kernels) -> float | None:
    """Nanoseconds a tick of the device clock that kernels read; None where they cannot read one.

    VK_KHR_shader_clock does not state the unit, so it is measured: two stamps 20 ms apart against the
    timestamps of the command buffers that hold them, whose period the driver does state.
    """
    if not device.has_kernel_clock:
        return None
    slots = memory.allocate(16, "readback")
    kernel = kernels.get("nothing", stamped=True)
    op = Op("clock", kernel, (), (0,), (1, 1, 1))
    op = op.with_kernel(kernel, slots.address.to_bytes(8, "little") + op.push)
    commands = CommandBuffer(device)
    readings = []
    try:
        for _ in range(2):
            commands.begin(ONE_TIME_SUBMIT)
            commands.record([op], [False])
            commands.end()
            commands.submit()
            commands.wait()
            stamped = slots.host().view(np.uint64)
            readings.append((sum(commands.ticks_ns()) / 2, (int(stamped[0]) + int(stamped[1])) / 2))
            time.sleep(_APART_S)
    finally:
        commands.close()
    (first_ns, first_ticks), (second_ns, second_ticks) = readings
    if second_ticks <= first_ticks:
        return None
    tick_ns = (second_ns - first_ns) / (second_ticks - first_ticks)
    # a clock in whole nanoseconds is the common case: do not let the measurement's noise bend it
    return 1.0 if abs(tick_ns - 1.0) < 0.02 else tick_ns
