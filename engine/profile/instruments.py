"""What is measured outside any token: bandwidth, queued gap, bubbles, submit hint, which fusion passes pay."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property

from engine.decode.flags import Flags, Recordable
from engine.decode.program import DecodeProgram, ProgramBuilder, Settings, Slot
from engine.profile.bubble_meter import ROUNDS, BubbleMeter
from engine.profile.bubble_report import BubbleReport
from engine.profile.choose import choose
from engine.profile.interleave import Rounds, interleaved, median_error, raise_clocks, run_us
from engine.profile.kernel_clock import KernelClock
from engine.profile.probe import Probe, probe_bandwidth
from engine.profile.queued_gap import queued_gap_us
from engine.profile.scratch import Scratch
from engine.program.schedule import NEEDED
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels

_PROGRAM_ROUNDS = Rounds(1, 40, 1.5)
_HINT_ROUNDS = Rounds(6, 32, 2.0, settle=False)


@dataclass(frozen=True, slots=True)
class SubmitHint:
    """Median GPU time, us, of the same program recorded with and without VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT."""

    with_us: float
    without_us: float
    error_us: float  # half the 95% interval of the difference


class Instruments:
    """Measurements between turns. Nothing may be in flight, and they change nothing of the conversation."""

    def __init__(
        self,
        device: Device,
        memory: Memory,
        kernels: Kernels,
        builder: ProgramBuilder,
        scratch: Scratch,
        clock: KernelClock | None,
        flags: Flags,
    ) -> None:
        self._device, self._memory, self._kernels = device, memory, kernels
        self._builder, self._scratch, self._flags = builder, scratch, flags
        self._meter = BubbleMeter(device, memory, kernels, clock, flags)

    @cached_property
    def probe(self) -> Probe:
        """The read bandwidth; measured at the first request, up to a second."""
        return probe_bandwidth(self._device, self._memory, self._kernels)

    @cached_property
    def queued_gap_us(self) -> float:
        """The GPU's idle time between queued submissions; measured at the first request."""
        return queued_gap_us(self._device, self._kernels, self._memory)

    def bubbles(self, position: int, settings: Settings, slot: Slot, rounds: Rounds = ROUNDS) -> BubbleReport:
        """Run the bubble meter over the program that feeds a token at ``position``, sampling as ``slot`` says."""
        position = min(position, self._scratch.last_position)
        program = self._builder.build(self._builder.bucket(position), settings, slot)
        gap_us = self.queued_gap_us
        with self._scratch.at(position) as before:
            return self._meter.measure(program, before, position, settings, gap_us, rounds)

    def run_once(self, settings: Settings, slot: Slot) -> None:
        """Run the token fed at position 0 once clean and once stamped."""
        program = self._builder.build(self._builder.bucket(0), settings, slot)
        with self._scratch.at(0) as before:
            self._meter.run_once(program, before, settings)

    @property
    def last_position(self) -> int:
        """The last one at which a token can be measured."""
        return self._scratch.last_position

    def least_us(self, programs: Sequence[DecodeProgram], position: int = 0, barriers: str = NEEDED) -> list[float]:
        """The shortest GPU time of each of several programs, run in turns, of the token fed at ``position``.

        They were built for ``barriers``.
        """
        recordable = [self._flags.recordable(each.ops, each.barriers, barriers) for each in programs]
        return self.least_recorded_us(recordable, position, _PROGRAM_ROUNDS)

    def least_recorded_us(self, recordable: Sequence[Recordable], position: int, rounds: Rounds) -> list[float]:
        """The same of what is to be recorded."""
        with ExitStack() as cleanup:
            recorded = [cleanup.enter_context(closing(CommandBuffer(self._device))) for _ in recordable]
            for commands, each in zip(recorded, recordable, strict=True):
                commands.record_all(*each)
            before = cleanup.enter_context(self._scratch.at(position))
            times = interleaved({str(index): each for index, each in enumerate(recorded)}, before, rounds)
        return [min(each) for each in times.values()]

    def choose_passes(self, offered: Sequence[str], slot: Slot) -> tuple[str, ...]:
        """Measure which ``offered`` fusion passes pay on the token fed at position 0, sampling as ``slot`` says."""
        with ExitStack() as cleanup:
            before = cleanup.enter_context(self._scratch.at(0))
            recorded: dict[tuple[str, ...], CommandBuffer] = {}

            def gpu_us(passes: tuple[str, ...]) -> float:
                if passes not in recorded:
                    commands = recorded[passes] = cleanup.enter_context(closing(CommandBuffer(self._device)))
                    program = self._builder.build(self._builder.bucket(0), Settings("reuse", passes, "needed"), slot)
                    commands.record_all(program.ops, program.barriers)
                    if len(recorded) == 1:
                        raise_clocks(commands, before)
                return run_us(recorded[passes], before)

            return choose(offered, gpu_us)

    def submit_hint(self, position: int, settings: Settings, slot: Slot) -> SubmitHint:
        """Time the same program with and without the hint, a fresh recording for each run with it, as it demands."""
        position = min(position, self._scratch.last_position)
        program = self._builder.build(self._builder.bucket(position), settings, slot)
        recordable = self._flags.recordable(program.ops, program.barriers, settings.barriers)
        with ExitStack() as cleanup:
            once, kept = (cleanup.enter_context(closing(CommandBuffer(self._device))) for _ in range(2))

            def finished(name: str, elapsed_us: float) -> None:
                if name == "with":
                    once.record_all(*recordable, ONE_TIME_SUBMIT)

            once.record_all(*recordable, ONE_TIME_SUBMIT)
            kept.record_all(*recordable)
            before = cleanup.enter_context(self._scratch.at(position))
            times = interleaved({"without": kept, "with": once}, before, _HINT_ROUNDS, finished)
        differences = [one - other for one, other in zip(times["with"], times["without"], strict=True)]
        return SubmitHint(
            statistics.median(times["with"]), statistics.median(times["without"]), median_error(differences)
        )
