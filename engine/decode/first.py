"""A reply's first token: sampled from the logits the prefill left, with no layer to run."""

from __future__ import annotations

from engine.decode.program import DecodeProgram
from engine.decode.step import Resources, Step, mark, run
from engine.program.op import Op
from engine.program.schedule import schedule
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.memory import Slice


def first_step(
    resources: Resources, commands: CommandBuffer, target: Slice, state: bytes, ops: list[Op], params: bytes
) -> Step:
    """Set the device's state to the image ``state`` and run the sampling ``ops``; the same in every mode."""
    start = mark()
    barriers = schedule(ops, "needed")
    program = DecodeProgram(ops, barriers, sum(barriers))
    built = mark()
    commands.begin(ONE_TIME_SUBMIT)
    commands.update(target, state)
    commands.record(ops, barriers)
    commands.end()
    return run(resources, commands, program, None, params, (start, built, mark()), rerecorded=True)
