"""Bounds on a token's bubbles for a device whose kernels cannot read a clock.

Below: the null twin, the same pipelines told to return at once, which leaves launching and synchronising.
Above: the token with its barriers minus the same token without them. All three run on the real buffers with
the state saved and put back; they write the KV cache only at the position that the next token writes anyway.
"""

from __future__ import annotations

import statistics

from engine.decode.program import DecodeProgram
from engine.program.op import Op
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Kernels

_REPEATS = 5
_RETURN_AT_ONCE = bytes(8)  # the twin's stamp address


class Brackets:
    """Measures (lower_us, upper_us) of a program's bubbles; nothing may be in flight."""

    def __init__(self, device: Device, memory: Memory, kernels: Kernels, state: Slice) -> None:
        self._commands = CommandBuffer(device)
        self._kernels, self._state = kernels, state
        self._saved = memory.allocate(state.size)

    def measure(self, program: DecodeProgram) -> tuple[float, float]:
        """Medians of five runs each, microseconds; the lower bound never exceeds the upper."""
        null = [op.with_kernel(self._kernels.null_twin(op.kernel), _RETURN_AT_ONCE + op.push) for op in program.ops]
        free = [False] * len(program.ops)
        self._commands.copy_now(self._state, self._saved)
        lower, clean, unordered = (
            statistics.median(self._gpu_us(ops, barriers) for _ in range(_REPEATS))
            for ops, barriers in ((null, program.barriers), (program.ops, program.barriers), (program.ops, free))
        )
        upper = max(clean - unordered, 0.0)
        return min(lower, upper), max(lower, upper)

    def _gpu_us(self, ops: list[Op], barriers: list[bool]) -> float:
        commands = self._commands
        commands.copy_now(self._saved, self._state)
        commands.begin(ONE_TIME_SUBMIT)
        commands.record(ops, barriers)
        commands.end()
        commands.submit()
        commands.wait()
        start_ns, end_ns = commands.ticks_ns()
        commands.copy_now(self._saved, self._state)
        return (end_ns - start_ns) / 1e3

    def close(self) -> None:
        """Destroy the command buffer."""
        self._commands.close()
