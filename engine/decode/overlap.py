"""Mode ``overlap``: as ``rerecord``, but the next token is built and recorded while the GPU runs this one."""

from __future__ import annotations

from engine.decode.program import Settings
from engine.decode.step import Recording, Request, Resources, Step, Stopwatch, land, launch, record
from engine.vulkan.commands import ONE_TIME_SUBMIT


class Overlap:
    """Two command buffers take turns. A token's build and record times are those of the recording made during it."""

    in_flight = 0

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._buffers = [(resources.new_commands(), resources.new_slot()) for _ in range(2)]
        self._turn = 0
        self._next: tuple[int, Settings, Recording] | None = None  # its bucket, settings and recording
        self.recordings = 0

    def step(self, request: Request) -> Step:
        """Submit what was recorded during the token before, record the next, then wait."""
        builder = self._resources.builder
        watch = Stopwatch()
        recording = self._take(builder.bucket(request.position), request)
        if recording is None:  # the first token, or a switch was flipped
            recording = self._record(request.position, request, request.stamped, watch)
        flight = launch(recording, request, watch, rerecorded=True)
        if request.remaining > 1:
            bucket = builder.bucket(request.position + 1)
            self._next = (bucket, request.settings, self._record(request.position + 1, request, False, watch))
        return land(flight)

    def _take(self, bucket: int, request: Request) -> Recording | None:
        waiting, self._next = self._next, None
        if waiting is None or request.stamped or waiting[:2] != (bucket, request.settings):
            return None
        return waiting[2]

    def _record(self, position: int, request: Request, stamped: bool, watch: Stopwatch) -> Recording:
        builder = self._resources.builder
        commands, slot = self._buffers[self._turn]
        self._turn ^= 1
        program = builder.build(builder.bucket(position), request.settings, slot)
        watch.lap("build")
        recording = record(self._resources, program, request.settings, slot, commands, ONE_TIME_SUBMIT, stamped)
        self.recordings += 1
        watch.lap("record")
        return recording

    def collect(self) -> Step:
        """Nothing is ever in flight between two steps."""
        raise RuntimeError("nothing is in flight")

    def close(self) -> None:
        """Destroy the command buffers."""
        for commands, _ in self._buffers:
            commands.close()
