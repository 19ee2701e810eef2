"""Timing ways to divide a model's matrices: chains of the decode program's own ops, their kernels built otherwise."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from time import perf_counter
from typing import NamedTuple, Self

from engine.errors import EngineError
from engine.program.matrix_kernels import ROW_DEFINES, row_defines
from engine.program.op import Op
from engine.program.operands import Weight
from engine.program.row_choices import Choice
from engine.program.tuning import ROW_KERNELS, Matrix
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.pipelines import Defines, Kernel, Kernels

_CHAIN_BYTES = 192 << 20  # longer ones tell nothing new
_QUEUED = 8  # chains, so that a GPU never waits for the host
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 20
_Built = dict[tuple[object, ...], Kernel]


class Limits(NamedTuple):
    """What a measurement may take: kernels in all, and seconds for each time that choices are timed."""

    kernels: int = 60
    build_s: float = 3.0
    clocks_s: float = 0.5  # an H200 that stood idle raises its clocks after 0.2 to 0.35 s of work
    run_s: float = 0.7


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


class RowTrials:
    """Times choices on a device; nothing else may be in flight. It writes what the model's ops write."""

    def __init__(self, kernels: Kernels, works: Sequence[Workload], limits: Limits) -> None:
        """``kernels`` are those that the ops of ``works`` run by: what is built besides is gone after ``close``."""
        self._device, self._limits = kernels.device, limits
        self._works = {work.matrix: work for work in works}
        self._kernels = Kernels(kernels.device, keep=False)
        self._kernels.base = dict(kernels.base)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Destroy what was built."""
        self._device.wait_idle()
        self._kernels.close()

    def times_us(self, choices: Sequence[Choice], built: Callable[[], None] = lambda: None) -> dict[Choice, float]:
        """The shortest GPU time of an op by each choice, without those that could not be built (in time).

        Choices are built in their order, with ``built`` called after each kernel, then run in turns. Each dispatch of
        a chain waits for the one before and has another layer's weights; between two chains over the same weights come
        those of the model's other matrices, as in a token, so that no cache is warmer than it is there.
        """
        kernels = self._build(choices, built)
        with ExitStack() as cleanup:
            chains: dict[Matrix, list[_Chain]] = {}
            for choice in choices:
                ops = self._ops(choice, kernels)
                if ops:
                    commands = cleanup.enter_context(closing(CommandBuffer(self._device)))
                    commands.record_all(ops, [True] * len(ops))
                    chains.setdefault(choice.matrix, []).append(_Chain(choice, commands, len(ops)))
            if not chains:
                return {}
            return self._least_us(list(chains.values()))

    def _ops(self, choice: Choice, kernels: _Built) -> list[Op]:
        """As many ops as make a chain, by the choice's kernels; none where one of these is missing."""
        ops: list[Op] = []
        total = 0
        for op in self._works[choice.matrix].ops:
            defines = self._defines(op, choice)
            kernel = op.kernel if defines == op.kernel.defines else kernels.get(_key(op.kernel.name, defines))
            if kernel is None:
                return []
            other = op.with_kernel(kernel, op.push)
            other.groups = (choice.division.workgroups, 1, 1)
            ops.append(other)
            total += op.bytes_moved
            if total >= _CHAIN_BYTES:
                break
        return ops

    def _defines(self, op: Op, choice: Choice) -> Defines:
        (_, type, rows, cols), team, divided = choice
        kept = {name: value for name, value in op.kernel.defines.items() if name not in ROW_DEFINES}
        return kept | row_defines(type, rows, cols, team, divided, self._device.shared_bytes)

    def _build(self, choices: Sequence[Choice], built: Callable[[], None]) -> _Built:
        jobs: dict[tuple[object, ...], tuple[str, Defines]] = {}
        for choice in choices:
            for op in self._works[choice.matrix].ops:
                defines = self._defines(op, choice)
                if defines != op.kernel.defines:
                    jobs[_key(op.kernel.name, defines)] = op.kernel.name, defines
        deadline = perf_counter() + self._limits.build_s

        def build(job: tuple[str, Defines]) -> Kernel | None:
            if perf_counter() > deadline:
                return None
            try:
                return self._kernels.get(*job)
            except EngineError:  # more than this device's registers or memory allow
                return None

        kernels: _Built = {}
        with ThreadPoolExecutor(min(8, os.cpu_count() or 2)) as pool:
            for key, kernel in zip(jobs, pool.map(build, jobs.values()), strict=True):
                if kernel is not None:
                    kernels[key] = kernel
                built()
        return kernels

    def _least_us(self, by_matrix: list[list[_Chain]]) -> dict[Choice, float]:
        steps = range(max(map(len, by_matrix)))
        order = [chains[step % len(chains)] for step in steps for chains in by_matrix]
        queue: deque[_Chain] = deque()
        gpu = not self._device.is_cpu

        def land(times: dict[Choice, float] | None) -> None:
            chain = queue.popleft()
            chain.commands.wait()
            if times is not None:
                start_ns, end_ns = chain.commands.ticks_ns()
                elapsed_us = (end_ns - start_ns) / 1e3 / chain.length
                times[chain.choice] = min(times.get(chain.choice, elapsed_us), elapsed_us)

        def run_all(times: dict[Choice, float] | None) -> None:
            for chain in order:
                while len(queue) >= (_QUEUED if gpu else 1) or chain in queue:
                    land(times)
                chain.commands.submit()
                queue.append(chain)
            while queue and times is not None:
                land(times)

        started = perf_counter()
        run_all(None)
        while gpu and perf_counter() - started < self._limits.clocks_s:
            run_all(None)
        while queue:
            land(None)
        times: dict[Choice, float] = {}
        started, rounds = perf_counter(), 0
        while rounds < _LEAST_ROUNDS or (rounds < _MOST_ROUNDS and perf_counter() - started < self._limits.run_s):
            run_all(times)
            rounds += 1
        return times


class _Chain(NamedTuple):
    choice: Choice
    commands: CommandBuffer
    length: int  # dispatches


def _key(name: str, defines: Mapping[str, str | int]) -> tuple[object, ...]:
    return name, *sorted(defines.items())
