"""Data into and out of memory that the host cannot reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer

if TYPE_CHECKING:
    from engine.vulkan.memory import Memory, Slice

PART_BYTES = 32 << 20


class Staging:
    """Two host-visible buffers that take turns, so that filling one overlaps the copy of the other."""

    def __init__(self, memory: Memory) -> None:
        self._upload = [memory.allocate(PART_BYTES, "upload") for _ in range(2)]
        self._readback = memory.allocate(PART_BYTES, "readback")
        self._commands = [CommandBuffer(memory.device) for _ in range(2)]
        self._pending = [False, False]
        self._turn = 0

    def write(self, target: Slice, source: npt.NDArray[np.uint8]) -> None:
        """Copy bytes into a slice; returns when the last of them left ``source``."""
        for start in range(0, source.size, PART_BYTES):
            part = source[start : start + PART_BYTES]
            turn, self._turn = self._turn, self._turn ^ 1
            self._wait(turn)
            self._upload[turn].host()[: part.size] = part
            self._copy(turn, self._upload[turn], target, (0, start, part.size))

    def room(self, turn: int) -> npt.NDArray[np.uint8]:
        """Buffer ``turn``'s memory, uint8 (PART_BYTES,); waits until its last copy has ended."""
        self._wait(turn)
        return self._upload[turn].host()

    def send(self, turn: int, copies: Sequence[tuple[Slice, int]]) -> None:
        """Start copying from buffer ``turn`` to each target what lies at its offset there."""
        commands = self._commands[turn]
        commands.begin(ONE_TIME_SUBMIT)
        for target, offset in copies:
            commands.copy(self._upload[turn], target, [(offset, 0, target.size)])
        commands.end()
        commands.submit()
        self._pending[turn] = True

    def read(self, source: Slice) -> npt.NDArray[np.uint8]:
        """A slice's bytes, after all that was written before."""
        self.flush()
        result = np.empty(source.size, np.uint8)
        for start in range(0, source.size, PART_BYTES):
            size = min(PART_BYTES, source.size - start)
            self._copy(0, source, self._readback, (start, 0, size))
            self._wait(0)
            result[start : start + size] = self._readback.host()[:size]
        return result

    def flush(self) -> None:
        """Wait until every write has arrived."""
        for turn in range(2):
            self._wait(turn)

    def close(self) -> None:
        """Destroy the command buffers; nothing may be pending."""
        for commands in self._commands:
            commands.close()

    def _wait(self, turn: int) -> None:
        if self._pending[turn]:
            self._commands[turn].wait()
            self._pending[turn] = False

    def _copy(self, turn: int, source: Slice, target: Slice, span: tuple[int, int, int]) -> None:
        commands = self._commands[turn]
        commands.begin(ONE_TIME_SUBMIT)
        commands.copy(source, target, [span])
        commands.end()
        commands.submit()
        self._pending[turn] = True
