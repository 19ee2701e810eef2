"""What every mode shares: a token on its way through the GPU, and what it brings back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns
from typing import NamedTuple, Protocol

from engine.decode.flags import Flags
from engine.decode.program import DecodeProgram, ProgramBuilder, Settings, Slot
from engine.decode.state import STEP_BYTES
from engine.profile.kernel_clock import KernelClock
from engine.profile.stamps import StampedProgram, Stamps
from engine.program.resident import ResidentKernels
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Kernels

STEPS = ("build", "record", "patch", "submit", "wait", "readback")


class Lap(NamedTuple):
    """A step of the host's work for a token: wall clock (perf_counter_ns) from start to end, and thread time in it."""

    step: str
    start_ns: int
    end_ns: int
    thread_ns: int


class Stopwatch:
    """Splits a thread's time into named steps: ``laps``, in order."""

    __slots__ = ("_thread_ns", "_wall_ns", "laps")

    def __init__(self) -> None:
        self.laps: list[Lap] = []
        self._wall_ns, self._thread_ns = perf_counter_ns(), thread_time_ns()

    def lap(self, step: str) -> int:
        """Count the time since the last lap for ``step``; returns the wall clock, ns."""
        wall_ns, thread_ns = perf_counter_ns(), thread_time_ns()
        self.laps.append(Lap(step, self._wall_ns, wall_ns, thread_ns - self._thread_ns))
        self._wall_ns, self._thread_ns = wall_ns, thread_ns
        return wall_ns

    def restart(self) -> None:
        """Count for no step what passed since the last lap."""
        self._wall_ns, self._thread_ns = perf_counter_ns(), thread_time_ns()


class Resources(NamedTuple):
    """What modes record and submit with."""

    device: Device
    kernels: Kernels
    builder: ProgramBuilder
    stamps: Stamps
    new_slot: Callable[[], Slot]
    new_commands: Callable[[], CommandBuffer]
    memory: Memory
    resident_builder: Callable[[ResidentKernels], ProgramBuilder]  # the same programs by other kernels
    state: Slice
    arrivals: Slice  # attention's counters, zero between tokens
    flags: Flags
    clock: KernelClock | None


class Request(NamedTuple):
    """What the session wants of a mode: the next token after the state's, as ``settings`` and ``params`` say.

    ``position`` is where the token to be fed stands, counting those in flight; ``remaining`` how many tokens may
    still be submitted, this one included.
    """

    settings: Settings
    position: int
    params: bytes
    stamped: bool
    remaining: int


class Recording(NamedTuple):
    """A recorded command buffer with the program in it and the slot it reads and writes."""

    commands: CommandBuffer
    program: DecodeProgram
    slot: Slot
    stamped: StampedProgram | None


@dataclass(frozen=True, slots=True)
class Step:
    """One finished token."""

    id: int
    settings: Settings
    program: DecodeProgram
    rerecorded: bool
    starved: bool  # the GPU had nothing left to do when this token was submitted
    laps: list[Lap]
    submitted_ns: int  # host wall clock
    finished_ns: int  # host wall clock, when the host saw the fence
    gpu_start_ns: float  # device clock
    gpu_end_ns: float
    stamped: StampedProgram | None
    together: int = 1  # tokens that the host saw at once, this one the first of them; 0: one of the others


@dataclass(slots=True)
class Flight:
    """A submitted token."""

    recording: Recording
    settings: Settings
    rerecorded: bool
    starved: bool
    watch: Stopwatch
    submitted_ns: int = field(default=0)


class Mode(Protocol):
    """A way to get a token's commands to the GPU. One object per engine and mode; same bits from all."""

    @property
    def recordings(self) -> int:
        """Command buffers recorded so far."""

    @property
    def in_flight(self) -> int:
        """Tokens submitted and not returned yet."""

    def step(self, request: Request) -> Step:
        """Return the next token; a stamped one only with nothing in flight."""

    def collect(self) -> Step:
        """Return the oldest token in flight and submit nothing."""

    def close(self) -> None:
        """Destroy the command buffers; nothing may be in flight."""


def record(
    resources: Resources,
    program: DecodeProgram,
    settings: Settings,
    slot: Slot,
    commands: CommandBuffer,
    flags: int,
    twin: bool,
) -> Recording:
    """Record a program, or its stamped twin, into ``commands``, its barriers as ``settings`` says."""
    ops, barriers = resources.flags.recordable(program.ops, program.barriers, settings.barriers)
    stamped = resources.stamps.twin(ops, resources.kernels) if twin else None
    if stamped is None:
        commands.record_all(ops, barriers, flags)
    else:
        commands.record_all(stamped.ops, barriers, flags, stamped.read_back)
    return Recording(commands, program, slot, stamped)


def launch(recording: Recording, request: Request, watch: Stopwatch, rerecorded: bool, starved: bool = True) -> Flight:
    """Patch the slot and submit."""
    pointer = recording.slot.step.pointer
    assert pointer is not None
    ctypes.memmove(pointer, request.params, STEP_BYTES)
    watch.lap("patch")
    recording.commands.submit()
    return Flight(recording, request.settings, rerecorded, starved, watch, watch.lap("submit"))


def land(flight: Flight) -> Step:
    """Wait for a submitted token and read it back."""
    recording, watch = flight.recording, flight.watch
    if (calibration := recording.commands.device.calibration) is not None:
        calibration.refresh()  # while the GPU is busy, and in no step's time
    watch.restart()
    recording.commands.wait()
    finished_ns = watch.lap("wait")
    pointer = recording.slot.readback.pointer
    assert pointer is not None
    token = ctypes.c_uint32.from_address(pointer).value
    start_ns, end_ns = recording.commands.ticks_ns()
    watch.lap("readback")
    return Step(
        token,
        flight.settings,
        recording.program,
        flight.rerecorded,
        flight.starved,
        watch.laps,
        flight.submitted_ns,
        finished_ns,
        start_ns,
        end_ns,
        recording.stamped,
    )
