"""Mode ``persistent``: resident workgroups walk a token's program as a tape, for up to eight tokens in one dispatch."""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from engine.decode.program import DecodeProgram, ProgramBuilder, Settings, Slot
from engine.decode.state import STEP_BYTES
from engine.decode.step import Request, Resources, Step, Stopwatch
from engine.decode.tape import MOST_TOKENS, RECORD_BYTES, Made, aborted, made
from engine.decode.walker import Run, Walker, check, most_workgroups
from engine.errors import EngineError
from engine.profile.stamps import StampedProgram
from engine.program.op import Op
from engine.program.resident import ResidentKernels
from engine.program.tuning import group_invocations
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Resident

_AHEAD = 2  # dispatches: one runs, one is queued
_DISPATCH_US = 5_000.0
_MAX_PROGRAMS = 16  # buckets x switches; the least recently used goes first
_FEATURES = ("vulkanMemoryModel", "vulkanMemoryModelDeviceScope", "workgroupMemoryExplicitLayout")


def unavailable(device: Device) -> str | None:
    """Why a device cannot have this mode, as far as that is known without a test; None where it may."""
    if device.row_kernels:
        return "its workgroups would wait for each other on the CPU: it is made for GPUs"
    if device.binding == "descriptors":
        return "it reads addresses from a tape, which the descriptor build cannot"
    missing = [name for name in _FEATURES if name not in device.features]
    return f"{device.info.name} lacks {', '.join(missing)}" if missing else None


@dataclass(slots=True)
class _Place:
    """The memory of a dispatch that may be in flight."""

    slot: Slot
    run: Run
    tapes: dict[tuple[object, ...], _Recorded] = field(default_factory=dict)


@dataclass(slots=True)
class _Recorded:
    commands: CommandBuffer
    tape: Slice
    program: DecodeProgram
    stamped: StampedProgram | None


@dataclass(slots=True)
class _Flight:
    place: _Place
    recorded: _Recorded
    settings: Settings
    tokens: int
    rerecorded: bool
    starved: bool
    watch: Stopwatch
    submitted_ns: int


class Persistent:
    """A ring of dispatches, each of a few tokens; the state on the device leads from one to the next."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._places = [_Place(resources.new_slot(), Run(resources.memory)) for _ in range(_AHEAD)]
        self._walkers: dict[tuple[tuple[str, ...], frozenset[str], bool], Walker] = {}
        self._group = group_invocations(resources.device.subgroup_size, resources.device.most_invocations)
        self._labels: dict[tuple[int, tuple[str, ...]], frozenset[str]] = {}
        self._builders: dict[int, tuple[ResidentKernels, ProgramBuilder]] = {}
        self._flights: deque[_Flight] = deque()
        self._ready: deque[Step] = deque()
        self._ended = False  # the last token that is ready is an end token
        self._turn = 0
        self._token_us: float | None = None
        self._spare: list[tuple[CommandBuffer, Slice]] = []  # with the tape's memory
        self.dispatch_us = _DISPATCH_US
        self.recordings = 0

    @property
    def in_flight(self) -> int:
        """Tokens submitted and not returned yet."""
        return len(self._ready) + sum(flight.tokens for flight in self._flights)

    def step(self, request: Request) -> Step:
        """Keep dispatches queued, then return the oldest token made."""
        if request.stamped:
            self._submit(request, request.position, 1)
            return self.collect()
        position, remaining = request.position, request.remaining
        while len(self._flights) < _AHEAD and remaining > 0 and not self._ended:
            tokens = min(self._tokens_a_dispatch(), remaining, self._room(position))
            self._submit(request, position, tokens)
            position += tokens
            remaining -= tokens
        return self.collect()

    def collect(self) -> Step:
        """Return the oldest token in flight."""
        watch = Stopwatch()
        if not self._ready:
            self._land(self._flights.popleft())
        step = self._ready.popleft()
        if not step.laps:  # it came with another: to hand it out is all the host's work for it
            watch.lap("readback")
            step.laps.extend(watch.laps)
        self._ended = self._ended and bool(self._ready)
        return step

    def close(self) -> None:
        """Destroy the command buffers; nothing may be in flight."""
        for place in self._places:
            self._spare += [(recorded.commands, recorded.tape) for recorded in place.tapes.values()]
            place.tapes.clear()
        for commands, _ in self._spare:
            commands.close()
        self._spare.clear()

    def prepare(self, passes: tuple[str, ...]) -> None:
        """Build and test the kernels for these fusion passes; nothing may be in flight. EngineError where it fails."""
        for bucket in self._builder.outer_buckets:
            self._walker(bucket, passes, stamped=False)

    def _tokens_a_dispatch(self) -> int:
        if self._token_us is None:
            return 1
        return max(1, min(MOST_TOKENS, int(self.dispatch_us / self._token_us)))

    def _room(self, position: int) -> int:
        """Tokens from ``position`` to its bucket's end."""
        return self._builder.bucket(position) - position

    @property
    def _builder(self) -> ProgramBuilder:
        return self._resources.builder

    def _submit(self, request: Request, position: int, tokens: int) -> None:
        watch = Stopwatch()
        place = self._places[self._turn]
        self._turn = (self._turn + 1) % _AHEAD
        recorded, fresh = self._recorded(place, position, request.settings, request.stamped, watch)
        starved = not self._flights or self._flights[-1].recorded.commands.finished
        pointer = place.slot.step.pointer
        assert pointer is not None
        ctypes.memmove(pointer, request.params, STEP_BYTES)
        place.run.begin(tokens)
        watch.lap("patch")
        recorded.commands.submit()
        submitted_ns = watch.lap("submit")
        self._flights.append(_Flight(place, recorded, request.settings, tokens, fresh, starved, watch, submitted_ns))

    def _recorded(
        self, place: _Place, position: int, settings: Settings, stamped: bool, watch: Stopwatch
    ) -> tuple[_Recorded, bool]:
        bucket = self._builder.bucket(position)
        key = (bucket, settings.passes, settings.barriers, stamped)
        recorded = place.tapes.pop(key, None)
        known = recorded is not None
        if recorded is None:
            recorded = self._record(place, bucket, settings, stamped, watch)
        place.tapes[key] = recorded
        if len(place.tapes) > _MAX_PROGRAMS:
            oldest = place.tapes.pop(next(iter(place.tapes)))
            self._spare.append((oldest.commands, oldest.tape))
        return recorded, not known

    def _record(self, place: _Place, bucket: int, settings: Settings, stamped: bool, watch: Stopwatch) -> _Recorded:
        resources = self._resources
        memory = resources.memory
        walker = self._walker(bucket, settings.passes, stamped)
        stamped = stamped and walker is not self._walker(bucket, settings.passes, stamped=False)
        _, builder = self._builder_for(walker.resident.workgroups)
        program = builder.build(bucket, settings, place.slot)
        watch.lap("build")
        tape_bytes = len(program.ops) * RECORD_BYTES
        tape = self._spare[-1][1] if self._spare else None
        if tape is None or tape.size < tape_bytes:
            tape = memory.allocate(tape_bytes)
        commands = self._spare.pop()[0] if self._spare else resources.new_commands()
        twin = resources.stamps.resident(program.ops, walker.resident.workgroups) if stamped else None
        commands.begin()
        commands.fill(place.run.control, 0)
        stamps = twin.address if twin else 0
        commands.record([walker.op(tape, len(program.ops), place.run, resources.state, stamps)], [False])
        commands.end(twin.read_back if twin else None)
        memory.write(tape, np.frombuffer(walker.tape(program.ops, program.barriers), np.uint8))
        memory.flush()
        self.recordings += 1
        watch.lap("record")
        barriers = sum(program.barriers) + 1  # one between two tokens
        return _Recorded(commands, tape, program._replace(barrier_count=barriers, dispatches=1), twin)

    def _builder_for(self, workgroups: int) -> tuple[ResidentKernels, ProgramBuilder]:
        found = self._builders.get(workgroups)
        if found is None:
            kernels = ResidentKernels(self._resources.kernels, Resident(self._group, workgroups))
            found = self._builders[workgroups] = (kernels, self._resources.resident_builder(kernels))
        return found

    def _walker(self, bucket: int, passes: tuple[str, ...], stamped: bool) -> Walker:
        """The kernel of a bucket's programs: where buckets attend by other kernels, none has those of both.

        Where the stamped one fails, be it that fewer of its workgroups run at the same time, the clean one.
        """
        labels = self._kernel_labels(bucket, passes)
        walker = self._walkers.get((passes, labels, stamped))
        if walker is not None:
            return walker

        def build(workgroups: int) -> tuple[ResidentKernels, Walker]:
            kernels, builder = self._builder_for(workgroups)
            ops = self._ops(builder, bucket, passes)
            label = "resident stamped" if stamped else "resident"
            resident = Resident(self._group, workgroups)
            return kernels, Walker(self._resources.kernels, kernels.joined(ops, stamped), resident, label)

        device, memory = self._resources.device, self._resources.memory
        if stamped:
            walker = clean = self._walker(bucket, passes, stamped=False)
            with suppress(EngineError):
                kernels, twin = build(clean.resident.workgroups)
                if check(device, memory, kernels, twin) is None:
                    walker = twin
        else:
            known = max((each.resident.workgroups for each in self._walkers.values()), default=None)
            _, walker = build(most_workgroups(device, memory, build, known))
        self._walkers[passes, labels, stamped] = walker
        return walker

    def _kernel_labels(self, bucket: int, passes: tuple[str, ...]) -> frozenset[str]:
        """Those of a bucket's programs, however many workgroups there are.

        Between buckets they tell which kernel is needed, not between passes: what the row kernel is built with follows
        from its ops.
        """
        found = self._labels.get((bucket, passes))
        if found is None:
            _, builder = self._builder_for(self._resources.device.multiprocessors or 1)
            ops = self._ops(builder, bucket, passes)
            found = self._labels[bucket, passes] = frozenset(op.kernel.label for op in ops)
        return found

    def _ops(self, builder: ProgramBuilder, bucket: int, passes: tuple[str, ...]) -> list[Op]:
        return builder.build(bucket, Settings("persistent", passes, "needed"), self._places[0].slot).ops

    def _land(self, flight: _Flight) -> None:
        """Wait for a dispatch and make its tokens ready."""
        commands, watch = flight.recorded.commands, flight.watch
        if (calibration := commands.device.calibration) is not None:
            calibration.refresh()
        watch.restart()
        commands.wait()
        finished_ns = watch.lap("wait")
        left = flight.place.run.left()
        if aborted(left):
            self._abort()
        tokens = made(left, flight.tokens)
        start_ns, end_ns = commands.ticks_ns()
        watch.lap("readback")
        self._token_us = (end_ns - start_ns) / 1e3 / len(tokens)
        ends_ns = self._ends_ns(tokens, start_ns, end_ns)
        begin_ns = start_ns
        for index, (token, until_ns) in enumerate(zip(tokens, ends_ns, strict=True)):
            self._ready.append(
                Step(
                    token.id,
                    flight.settings,
                    flight.recorded.program,
                    flight.rerecorded and index == 0,
                    flight.starved and index == 0,
                    watch.laps if index == 0 else [],
                    flight.submitted_ns,
                    finished_ns,
                    begin_ns,
                    until_ns,
                    flight.recorded.stamped,
                    len(tokens) if index == 0 else 0,
                )
            )
            begin_ns = until_ns
        if tokens[-1].last:  # what is queued behind it makes nothing
            self._ended = True
            self._drain()

    def _ends_ns(self, tokens: list[Made], start_ns: float, end_ns: float) -> list[float]:
        """The device time at which each token ended; the last one with the dispatch."""
        clock = self._resources.clock
        ends = []
        for index, token in enumerate(tokens[:-1]):
            if clock is None:
                ends.append(start_ns + (end_ns - start_ns) * (index + 1) / len(tokens))
            else:
                ends.append(min(max(clock.to_device_ns(token.end_ticks, start_ns), start_ns), end_ns))
        return [*ends, end_ns][: len(tokens)]

    def _drain(self) -> None:
        while self._flights:
            self._flights.popleft().recorded.commands.wait()

    def _abort(self) -> None:
        self._drain()
        self._ready.clear()
        self._ended = False
        resources = self._resources
        commands = resources.new_commands()
        commands.begin()
        commands.fill(resources.arrivals, 0)
        commands.end()
        commands.run_us()
        commands.close()
        raise EngineError(
            "mode persistent: a workgroup waited in vain for the others: take another mode, and ask again"
        )
