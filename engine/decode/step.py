"""What every mode shares: the resources of a token's submission, its clock marks, and its tail."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import NamedTuple, Protocol

from engine.decode.program import DecodeProgram, ProgramBuilder, Settings
from engine.decode.state import STEP_BYTES
from engine.profile.stamps import StampedProgram, Stamps
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernels

STEPS = ("build", "record", "patch", "submit", "wait", "readback")


class Mark(NamedTuple):
    """A point in time on the host, ns."""

    wall_ns: int
    thread_ns: int


def mark() -> Mark:
    """Now, by the wall clock and by this thread's CPU time."""
    return Mark(perf_counter_ns(), thread_time_ns())


@dataclass(frozen=True, slots=True)
class Step:
    """One finished token as a mode returns it. ``marks`` are the seven boundaries of STEPS."""

    id: int
    marks: tuple[Mark, ...]
    program: DecodeProgram
    rerecorded: bool
    gpu_start_ns: float
    gpu_end_ns: float
    stamped: StampedProgram | None


class Resources(NamedTuple):
    """What modes submit with. ``step_slot`` is host-written, ``readback`` holds the sampled id."""

    device: Device
    kernels: Kernels
    builder: ProgramBuilder
    stamps: Stamps
    step_slot: Slice
    readback: Slice


class Mode(Protocol):
    """A way to get a token's commands to the GPU. One object per engine and mode; same bits from all."""

    recordings: int  # command buffers recorded so far

    def step(self, settings: Settings, position: int, params: bytes, stamped: bool) -> Step:
        """Feed the state's token at ``position`` and sample the next with StepParams ``params``."""

    def close(self) -> None:
        """Destroy the command buffers; nothing may be pending."""


def patch(resources: Resources, params: bytes) -> None:
    """Write a token's StepParams into the slot the recorded commands read."""
    pointer = resources.step_slot.pointer
    assert pointer is not None
    ctypes.memmove(pointer, params, STEP_BYTES)


def run(
    resources: Resources,
    commands: CommandBuffer,
    program: DecodeProgram,
    stamped: StampedProgram | None,
    params: bytes,
    marks: tuple[Mark, Mark, Mark],
    rerecorded: bool,
) -> Step:
    """Patch, submit, wait and read back: the tail of the modes that have one token in flight."""
    patch(resources, params)
    patched = mark()
    commands.submit()
    submitted = mark()
    commands.wait()
    waited = mark()
    pointer = resources.readback.pointer
    assert pointer is not None
    token = ctypes.c_uint32.from_address(pointer).value
    start_ns, end_ns = commands.ticks_ns()
    return Step(token, (*marks, patched, submitted, waited, mark()), program, rerecorded, start_ns, end_ns, stamped)
