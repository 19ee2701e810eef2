"""What the GPU stands idle between two submissions even where the second was queued long before."""

from __future__ import annotations

import statistics
from contextlib import ExitStack, closing

from engine.errors import EngineError
from engine.program.op import Op
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels

_PAIRS = 9
_FIRST_DISPATCHES, _MOST_DISPATCHES = 512, 1 << 16


def queued_gap_us(device: Device, kernels: Kernels, memory: Memory) -> float:
    """The median, us, from the end timestamp of one buffer to the start timestamp of the next, queued behind it.

    The first is a chain of empty kernels; a pair counts only if the first had not ended when the second was queued,
    and the chain is lengthened until that is so. Nothing may be in flight. Raise EngineError where it never is.
    """
    kernel = kernels.get("nothing")
    op = Op("nothing", kernel, (), (0,), (1, 1, 1))
    # as tokens are: each puts its timestamps into memory after its end
    with ExitStack() as cleanup:
        first, second = (
            cleanup.enter_context(closing(CommandBuffer(device, memory.allocate(16, "readback")))) for _ in range(2)
        )
        second.record_all([op], [False])
        dispatches = _FIRST_DISPATCHES
        while dispatches <= _MOST_DISPATCHES:
            first.record_all([op] * dispatches, [True] * dispatches)
            gaps = [gap for gap in (_gap_us(first, second) for _ in range(1 + _PAIRS)) if gap is not None]
            if len(gaps) > _PAIRS // 2:
                return statistics.median(gaps)
            dispatches *= 2
    raise EngineError("the GPU never had two buffers queued, so the gap between them cannot be measured")


def _gap_us(first: CommandBuffer, second: CommandBuffer) -> float | None:
    first.submit()
    second.submit()
    queued = not first.finished
    first.wait()
    second.wait()
    return (second.ticks_ns()[0] - first.ticks_ns()[1]) / 1e3 if queued else None
