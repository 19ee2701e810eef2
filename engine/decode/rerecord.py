"""Mode ``rerecord``: every token's program is built, recorded and submitted anew. The baseline."""

from __future__ import annotations

from engine.decode.program import Settings
from engine.decode.step import Resources, Step, mark, run
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer


class Rerecord:
    """Keeps weights, buffers and pipelines from token to token, and nothing else."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._commands = CommandBuffer(resources.device)
        self.recordings = 0

    def step(self, settings: Settings, position: int, params: bytes, stamped: bool) -> Step:
        """Build, record with ONE_TIME_SUBMIT, submit, wait."""
        resources = self._resources
        start = mark()
        program = resources.builder.build(resources.builder.bucket(position), settings)
        twin = resources.stamps.twin(program.ops, resources.kernels) if stamped else None
        built = mark()
        commands = self._commands
        commands.begin(ONE_TIME_SUBMIT)
        commands.record(twin.ops if twin else program.ops, program.barriers)
        commands.end()
        self.recordings += 1
        return run(resources, commands, program, twin, params, (start, built, mark()), rerecorded=True)

    def close(self) -> None:
        """Destroy the command buffer."""
        self._commands.close()
