"""Mode ``reuse``: recorded once a context bucket, then patched and resubmitted."""

from __future__ import annotations

from typing import NamedTuple

from engine.decode.program import DecodeProgram, Settings
from engine.decode.step import Resources, Step, mark, run
from engine.profile.stamps import StampedProgram
from engine.vulkan.commands import CommandBuffer

_MAX_KEPT = 16  # recordings: buckets x switches, the least recently used goes first


class _Recording(NamedTuple):
    commands: CommandBuffer
    program: DecodeProgram
    stamped: StampedProgram | None


class Reuse:
    """Keeps a recording for each (bucket, fusion, barriers, stamped) in use; a flip back finds its own again."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._kept: dict[tuple[int, bool, str, bool], _Recording] = {}
        self.recordings = 0

    def step(self, settings: Settings, position: int, params: bytes, stamped: bool) -> Step:
        """Resubmit this bucket's recording; build and record it first where there is none."""
        resources = self._resources
        bucket = resources.builder.bucket(position)
        key = (bucket, settings.fusion, settings.barriers, stamped)
        start = mark()
        recording = self._kept.pop(key, None)
        if recording is not None:
            self._kept[key] = recording
            return run(resources, *recording, params, (start, start, start), rerecorded=False)
        program = resources.builder.build(bucket, settings)
        twin = resources.stamps.twin(program.ops, resources.kernels) if stamped else None
        built = mark()
        recording = _Recording(self._buffer(), program, twin)
        recording.commands.begin()
        recording.commands.record(twin.ops if twin else program.ops, program.barriers)
        recording.commands.end()
        self.recordings += 1
        self._kept[key] = recording
        return run(resources, *recording, params, (start, built, mark()), rerecorded=True)

    def _buffer(self) -> CommandBuffer:
        if len(self._kept) < _MAX_KEPT:
            return CommandBuffer(self._resources.device)
        return self._kept.pop(next(iter(self._kept))).commands

    def close(self) -> None:
        """Destroy the recordings."""
        for recording in self._kept.values():
            recording.commands.close()
        self._kept.clear()
