"""Running a decode program for its time alone, between two tokens.

The state is saved and put back around each run, and the KV cache is written only at the position that the next
token writes anyway, so nothing of the conversation changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.program.op import Op
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice


class ScratchRun:
    """Times ops on the engine's own buffers; nothing may be in flight."""

    def __init__(self, device: Device, memory: Memory, state: Slice) -> None:
        self._commands = CommandBuffer(device)
        self._state = state
        self._saved = memory.allocate(state.size)

    def gpu_us(self, ops: Sequence[Op], barriers: Sequence[bool], flags: int = ONE_TIME_SUBMIT) -> float:
        """GPU time of one run, microseconds."""
        commands = self._commands
        commands.copy_now(self._state, self._saved)
        commands.begin(flags)
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
