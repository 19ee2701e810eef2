"""Mode ``rerecord``: every token's program is built, recorded and submitted anew. The baseline."""

from __future__ import annotations

from engine.decode.step import Request, Resources, Step, Stopwatch, land, launch, record
from engine.vulkan.commands import ONE_TIME_SUBMIT


class Rerecord:
    """Keeps weights, buffers and pipelines from token to token, and nothing else."""

    in_flight = 0

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._commands = resources.new_commands()
        self._slot = resources.new_slot()
        self.recordings = 0

    def step(self, request: Request) -> Step:
        """Build, record with ONE_TIME_SUBMIT, submit, wait."""
        resources, builder = self._resources, self._resources.builder
        watch = Stopwatch()
        program = builder.build(builder.bucket(request.position), request.settings, self._slot)
        watch.lap("build")
        recording = record(
            resources, program, request.settings, self._slot, self._commands, ONE_TIME_SUBMIT, request.stamped
        )
        self.recordings += 1
        watch.lap("record")
        return land(launch(recording, request, watch, rerecorded=True))

    def collect(self) -> Step:
        """Nothing is ever in flight between two steps."""
        raise RuntimeError("nothing is in flight")

    def close(self) -> None:
        """Destroy the command buffer."""
        self._commands.close()
