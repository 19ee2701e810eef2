"""Tokens that a RowTuner measures: which, under which barriers, and what a wait in vain means."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from engine.decode.flags import Flags, Recordable
from engine.decode.program import DecodeProgram, ProgramBuilder, Settings, Slot
from engine.errors import EngineError
from engine.flag_policy import FlagPolicy
from engine.profile.instruments import Instruments
from engine.profile.interleave import Rounds
from engine.profile.short_token import shortened
from engine.program.attend_division import sees_many
from engine.program.lower import Lowering
from engine.program.op import Op
from engine.program.operands import Weight
from engine.progress import Progress
from engine.row_tuner import RowTuner
from engine.vulkan.pipelines import KernelSet

_NEAR_POSITION = 64
_FAR_POSITION = 4000  # or the last that a token can be measured at
_ROUNDS = Rounds(1, 10, 0.25)  # of up to twenty tokens
_FEW_ROUNDS = Rounds(1, 1, 0.0)
_LONG_US = 10_000.0  # a token of more is timed with fewer layers


class RowMeasurement:
    """Has ``tuner`` divide the rows of ``matrices`` by tokens of ``builder``, whose rows ``lowering`` divides.

    Nothing may be in flight. Where kernels wait in vain the policy ``flags`` ends, and rows stay as they were.
    """

    def __init__(
        self,
        tuner: RowTuner,
        builder: ProgramBuilder,
        lowering: Lowering,
        instruments: Instruments,
        waits: Flags,
        flag_policy: FlagPolicy,
        slot: Slot,
        matrices: Sequence[Weight],
    ) -> None:
        self._tuner, self._builder, self._lowering = tuner, builder, lowering
        self._instruments, self._waits, self._flag_policy = instruments, waits, flag_policy
        self._slot, self._matrices = slot, matrices

    def near(self, progress: Progress) -> None:
        """Divide rows for short contexts, with all fused that there are kernels for and under the usual barriers.

        Where a token takes long, as many of its layers are timed as take about 10 ms, with all else of a token.
        """
        passes = self._lowering.passes
        barriers = self._flag_policy.usual(passes)
        position = min(_NEAR_POSITION, self._instruments.last_position)

        def record(ops: Sequence[Op], waits: Sequence[bool]) -> Recordable:
            return self._waits.recordable(ops, waits, barriers)

        def least_us(recordable: Sequence[Recordable], clocks: bool, rounds: Rounds = _ROUNDS) -> list[float]:
            times_us = self._instruments.least_recorded_us(recordable, position, rounds._replace(clocks=clocks))
            self._flag_policy.require()
            return times_us

        def share(program: DecodeProgram) -> float:
            """How much of the token takes as long as one may; clocks are raised only if it seems to take longer."""
            recorded = record(program.ops, program.barriers)
            for clocks in (False, True):
                (token_us,) = least_us([recorded], clocks, _FEW_ROUNDS)
                if token_us <= _LONG_US:
                    return 1.0
            return _LONG_US / token_us

        with suppress(EngineError):
            program = self._program(position, Settings("reuse", passes, barriers))
            part = share(program)
            timed = program if part == 1.0 else shortened(program, part, position)
            self._tuner.measure(program, timed, record, least_us, self._matrices, progress)
        self._flag_policy.forget()

    def far(self, passes: tuple[str, ...], barriers: str, progress: Progress) -> bool:
        """Divide rows for long contexts, if the context is one: whether that changed them."""
        position = min(_FAR_POSITION, self._instruments.last_position)
        if not sees_many(self._builder.bucket(position)):
            return False

        def least_us(sets: Sequence[KernelSet]) -> list[float]:
            programs = []
            for kernels in sets:
                self._lowering.far = kernels
                programs.append(self._program(position, Settings("reuse", passes, barriers)))
            times_us = self._instruments.least_us(programs, position, barriers)
            self._flag_policy.require()
            return times_us

        with suppress(EngineError):  # a kernel may be refused, too
            self._tuner.measure_far(position, least_us, self._matrices, progress)
        if self._lowering.far is self._tuner.far:
            return False
        self._lowering.far = self._tuner.far
        self._flag_policy.forget()
        return True

    def _program(self, position: int, settings: Settings) -> DecodeProgram:
        return self._builder.build(self._builder.bucket(position), settings, self._slot)
