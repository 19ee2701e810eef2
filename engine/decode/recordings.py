"""Recordings kept for resubmission, a ring of them for each context bucket and setting."""

from __future__ import annotations

from engine.decode.program import DecodeProgram, Settings, Slot
from engine.decode.step import Recording, Resources, Stopwatch, record
from engine.vulkan.commands import CommandBuffer

_MAX_RINGS = 16  # buckets x switches; the least recently used goes first


class Recordings:
    """Rings of ``size`` recordings, recorded without ONE_TIME_SUBMIT; a flip back finds its own again.

    All but the first of a ring are the same program on another slot. ``recordings`` counts command buffers
    recorded.
    """

    def __init__(self, resources: Resources, size: int) -> None:
        self._resources, self._size = resources, size
        self._rings: dict[tuple[int, tuple[str, ...], str, bool], list[Recording]] = {}
        self._slots = [resources.new_slot() for _ in range(size)]
        self._spare: list[CommandBuffer] = []
        self.recordings = 0

    def ring(self, position: int, settings: Settings, stamped: bool, watch: Stopwatch) -> tuple[list[Recording], bool]:
        """The ring for feeding a token at ``position``, and whether it was recorded just now.

        A stamped ring has one recording.
        """
        builder = self._resources.builder
        bucket = builder.bucket(position)
        key = (bucket, settings.passes, settings.barriers, stamped)
        ring = self._rings.pop(key, None)
        known = ring is not None
        if ring is None:
            program = builder.build(bucket, settings, self._slots[0])
            watch.lap("build")
            ring = [self._record(program, settings, self._slots[0], stamped)]
            for slot in self._slots[1 : 1 if stamped else self._size]:
                ring.append(self._record(builder.with_slot(program, slot), settings, slot, False))
            watch.lap("record")
        self._rings[key] = ring
        return ring, not known

    def make_room(self) -> None:
        """Forget the least recently used rings beyond the limit; nothing may be in flight."""
        while len(self._rings) > _MAX_RINGS:
            self._spare += [recording.commands for recording in self._rings.pop(next(iter(self._rings)))]

    def close(self) -> None:
        """Destroy the command buffers."""
        for ring in self._rings.values():
            self._spare += [recording.commands for recording in ring]
        for commands in self._spare:
            commands.close()
        self._rings.clear()
        self._spare.clear()

    def _record(self, program: DecodeProgram, settings: Settings, slot: Slot, stamped: bool) -> Recording:
        commands = self._spare.pop() if self._spare else self._resources.new_commands()
        self.recordings += 1
        return record(self._resources, program, settings, slot, commands, 0, stamped)
