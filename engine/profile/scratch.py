"""Running decode programs for their time alone: what they write is saved before and put back after."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from engine.cache import Cache
from engine.decode.state import NO_ID, STATE_DONE, STATE_MARK, STATE_POSITION
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice

_ROWS = 2  # without barriers the last kernel's new position may be seen by the others
_word = struct.Struct("<I")


class Scratch:
    """The parts of a conversation that a decode program overwrites.

    Of the KV ``cache`` the rows at the program's position are kept, of recurrent states all. ``logits`` are those that
    the next reply's first token may still be sampled from. ``counters`` are zero between tokens, and so before each
    run: kernels that raced each other may leave others.
    """

    def __init__(
        self,
        device: Device,
        memory: Memory,
        state: Slice,
        logits: Slice,
        counters: Slice,
        cache: Cache,
    ) -> None:
        self._device, self._memory = device, memory
        self._state, self._logits, self._counters, self._cache = state, logits, counters, cache
        self._saved: Slice | None = None
        self.last_position = cache.context - _ROWS

    @contextmanager
    def at(self, position: int) -> Iterator[CommandBuffer]:
        """Hand out a command buffer that sets the state to feed a token at ``position``, at most ``last_position``.

        Afterwards everything is as it was. Nothing may be in flight.
        """
        image = bytearray(self._memory.read(self._state).tobytes())
        _word.pack_into(image, 4 * STATE_POSITION, position)
        _word.pack_into(image, 4 * STATE_DONE, 0)  # a token behind an end token does nothing
        _word.pack_into(image, 4 * STATE_MARK, NO_ID)  # a prompt's last chunk may have left one
        commands = CommandBuffer(self._device)
        try:
            self._copy(commands, position, restore=False)
            commands.begin()
            commands.update(self._state, bytes(image))
            commands.fill(self._counters, 0)
            commands.end()
            try:
                yield commands
            finally:
                self._device.wait_idle()
                self._copy(commands, position, restore=True)
        finally:
            commands.close()

    def _copy(self, commands: CommandBuffer, position: int, restore: bool) -> None:
        cache = self._cache
        recurrent = [item for layer in cache.recurrent for item in layer]
        parts = [(item, [0], item.size) for item in (self._state, self._logits, self._counters, *recurrent)]
        for item in (item for layer in cache.attention for item in layer):
            row_bytes = item.size // (cache.kv_heads * cache.context)
            rows = [(head * cache.context + position) * row_bytes for head in range(cache.kv_heads)]
            parts.append((item, rows, _ROWS * row_bytes))
        if self._saved is None:
            self._saved = self._memory.allocate(sum(size * len(starts) for _, starts, size in parts))
        commands.begin(ONE_TIME_SUBMIT)
        place = 0
        for item, starts, size in parts:
            saved = self._saved.part(place, size * len(starts))
            spans = [(start, index * size, size) for index, start in enumerate(starts)]
            if restore:
                commands.copy(saved, item, [(there, here, count) for here, there, count in spans])
            else:
                commands.copy(item, saved, spans)
            place += saved.size
        commands.end()
        commands.run_us()
