"""A reply's first token: sampled from the logits the prefill left, with no layer to run."""

from __future__ import annotations

from collections.abc import Callable

from engine.decode.program import DecodeProgram, Slot
from engine.decode.step import Recording, Request, Step, Stopwatch, land, launch
from engine.program.op import Op
from engine.program.schedule import Scheduler
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.memory import Slice


class First:
    """Sets the device's state and samples; the same in every mode. ``sample`` makes the ops for a slot."""

    def __init__(self, commands: CommandBuffer, slot: Slot, state: Slice, sample: Callable[[Slot], list[Op]]) -> None:
        self._commands, self._slot, self._state, self._sample = commands, slot, state, sample
        self._scheduler = Scheduler()

    def step(self, request: Request, image: bytes) -> Step:
        """Sample with the state set to ``image`` (engine.decode.state)."""
        watch = Stopwatch()
        ops, barriers = self._scheduler.schedule(self._sample(self._slot), "needed")
        program = DecodeProgram(ops, barriers, sum(barriers))
        watch.lap("build")
        commands = self._commands
        commands.begin(ONE_TIME_SUBMIT)
        commands.update(self._state, image)
        commands.record(ops, barriers)
        commands.end()
        watch.lap("record")
        return land(launch(Recording(commands, program, self._slot, None), request, watch, rerecorded=True))

    def close(self) -> None:
        """Destroy the command buffer."""
        self._commands.close()
