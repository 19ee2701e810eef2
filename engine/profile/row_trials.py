"""Timing ways to divide a model's matrices: whole tokens of a decode program, some row kernels built otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import perf_counter
from typing import NamedTuple, Self

from engine.decode.flags import Recordable
from engine.decode.program import DecodeProgram
from engine.errors import EngineError
from engine.program.matrix_kernels import ROW_DEFINES, row_defines
from engine.program.op import Op
from engine.program.operands import Weight
from engine.program.row_choices import Choice
from engine.program.sample import pick_of_parts
from engine.program.tuning import HEAD_KERNEL, ROW_KERNELS, Matrix
from engine.vulkan.device import Device
from engine.vulkan.pipelines import Defines, Kernel, Kernels

_COLD_S = 0.2  # without work, after which a GPU's clocks may have come down
# how ops and barriers are recorded; the shortest GPU times of such recordings, us, after raising clocks or not
Record = Callable[[Sequence[Op], Sequence[bool]], Recordable]
LeastUs = Callable[[Sequence[Recordable], bool], list[float]]
Changes = Mapping[Matrix, Choice]  # of a token's matrices those that are divided otherwise than the program has them


class Workload(NamedTuple):
    """A matrix of a model with all ops of a token that multiply by such a one."""

    matrix: Matrix
    ops: list[Op]

    @property
    def bytes(self) -> int:
        """What a token reads for it."""
        return sum(op.bytes_moved for op in self.ops)


def workloads(ops: Iterable[Op], weights: Iterable[Weight]) -> list[Workload]:
    """Those of a decode program, the most bytes first."""
    by_planes = {id(part.quants): part for weight in weights for part in (weight.parts or (weight,))}
    found: dict[Matrix, list[Op]] = {}
    for op in ops:
        if op.kernel.name in ROW_KERNELS:
            weight = by_planes[id(op.buffers[0])]
            found.setdefault(Matrix(op.kernel.name, weight.type, weight.rows, weight.cols), []).append(op)
    return sorted((Workload(*item) for item in found.items()), key=lambda work: work.bytes, reverse=True)


def within(works: Iterable[Workload], ops: Iterable[Op]) -> list[Workload]:
    """The same, in the same order, of their ops only those that are among ``ops``."""
    kept = set(map(id, ops))
    return [work._replace(ops=[op for op in work.ops if id(op) in kept]) for work in works]


class RowTrials:
    """Times tokens on a device; nothing else may be in flight.

    ``works`` are those of ``program``, which is recorded as ``record`` says and timed by ``least_us``; ``kernels`` are
    those that its ops run by. What is built besides is gone after ``close``.
    """

    def __init__(
        self,
        kernels: Kernels,
        program: DecodeProgram,
        works: Sequence[Workload],
        record: Record,
        least_us: LeastUs,
        built: Callable[[], None] = lambda: None,
    ) -> None:
        """``built`` is called after each kernel."""
        self._device: Device = kernels.device
        self._program, self._ops = program, {work.matrix: work.ops for work in works}
        self._record, self._least_us, self._built = record, least_us, built
        self._waiting = record(program.ops, program.barriers)[0]  # the same ops, by the kernels that are recorded
        self._places = {id(op): index for index, op in enumerate(program.ops)}
        self._kernels = Kernels(kernels.device, keep=False)
        self._kernels.base = dict(kernels.base)
        self._found: dict[tuple[object, ...], Kernel] = {}
        self._busy_until = -inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Destroy what was built."""
        self._device.wait_idle()
        self._kernels.close()

    def kernels(self, choices: Iterable[Choice]) -> int:
        """How many ``build`` would build for these."""
        return len(self._jobs(choices))

    def build(self, choices: Iterable[Choice], seconds: float) -> None:
        """Build what ``choices`` need, in their order; none is begun after ``seconds``.

        What the driver refuses, or there was no time for, no token is timed with.
        """
        jobs = self._jobs(choices)
        deadline = perf_counter() + seconds

        def build(job: tuple[str, Defines]) -> Kernel | None:
            if perf_counter() > deadline:
                return None
            try:
                return self._kernels.get(*job)
            except EngineError:  # more than this device's registers or memory allow
                return None

        with ThreadPoolExecutor(min(8, os.cpu_count() or 2)) as pool:
            for key, kernel in zip(jobs, pool.map(build, jobs.values()), strict=True):
                if kernel is not None:
                    self._found[key] = kernel
                self._built()

    def token_us(self, tokens: Sequence[Changes]) -> list[float]:
        """The shortest GPU time of the program's token with each of these changes; inf where a kernel is missing."""
        recorded = [self._recorded(changes) for changes in tokens]
        cold = perf_counter() - self._busy_until > _COLD_S
        times = iter(self._least_us([each for each in recorded if each is not None], cold))
        self._busy_until = perf_counter()
        return [inf if each is None else next(times) for each in recorded]

    def _jobs(self, choices: Iterable[Choice]) -> dict[tuple[object, ...], tuple[str, Defines]]:
        jobs: dict[tuple[object, ...], tuple[str, Defines]] = {}
        for choice in choices:
            for usual in dict.fromkeys(self._waiting_op(op).kernel for op in self._ops[choice.matrix]):
                defines = self._defines(usual, choice)
                key = _key(usual.name, defines)
                if defines != usual.defines and key not in self._found:
                    jobs[key] = usual.name, defines
        return jobs

    def _recorded(self, changes: Changes) -> Recordable | None:
        ops = list(self._program.ops)
        kernels: dict[int, Kernel] = {}
        for matrix, choice in changes.items():
            for op in self._ops[matrix]:
                usual = self._waiting_op(op).kernel
                defines = self._defines(usual, choice)
                kernel = usual if defines == usual.defines else self._found.get(_key(usual.name, defines))
                if kernel is None:
                    return None
                place = self._places[id(op)]
                kernels[place] = kernel
                ops[place] = op.with_kernel(op.kernel, op.push)
                ops[place].groups = (choice.division.workgroups, 1, 1)
                if op.kernel.name == HEAD_KERNEL:
                    ops[-1] = pick_of_parts(ops[-1], choice.division.workgroups * choice.division.teams)
        waiting, barriers = self._record(ops, self._program.barriers)
        return [
            op.with_kernel(kernels[index], op.push) if index in kernels else op for index, op in enumerate(waiting)
        ], barriers

    def _waiting_op(self, op: Op) -> Op:
        return self._waiting[self._places[id(op)]]

    def _defines(self, usual: Kernel, choice: Choice) -> Defines:
        (_, type, rows, cols), team, divided = choice
        kept = {name: value for name, value in usual.defines.items() if name not in ROW_DEFINES}
        return kept | row_defines(type, rows, cols, team, divided, self._device.shared_bytes)


def _key(name: str, defines: Mapping[str, str | int]) -> tuple[object, ...]:
    return name, *sorted(defines.items())
