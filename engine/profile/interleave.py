"""Comparing command buffers on a machine that drifts: each runs in turn, forwards and backwards, and medians count."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

from engine.vulkan.commands import CommandBuffer

_CLOCKS_SECONDS = 0.5
_LONG_US = 10_000.0


class Rounds(NamedTuple):
    """``least`` to ``most`` ABBA, which end after ``seconds``.

    On a GPU, unless ``settle`` is False, each run follows one of its own that counts for nothing, as a token follows
    tokens like it: a program whose kernels' code has to be fetched again takes 2% longer on an H200. Of one that takes
    ten milliseconds that is little, and it is left out.
    """

    least: int
    most: int
    seconds: float
    clocks: bool = True  # raised before: not needed where the GPU is busy anyway
    settle: bool = True


def interleaved(
    variants: Mapping[str, CommandBuffer],
    before: CommandBuffer,
    rounds: Rounds,
    finished: Callable[[str, float], None] = lambda name, elapsed_us: None,
) -> dict[str, list[float]]:
    """The GPU times, us, of runs of each recorded buffer in the order ABBA; the i-th of each were neighbours in time.

    ``before`` is queued ahead of every run, so that each finds the same state; one run of each more, the first, is a
    warm-up too. ``finished(name, elapsed_us)`` is called after each that is not only to raise clocks or to settle.
    Nothing may be in flight.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    gpu = not before.device.is_cpu
    if rounds.clocks:
        raise_clocks(variants[order[0]], before)
    started, number = perf_counter(), 0
    while number <= 2 * rounds.least or (
        number <= 2 * rounds.most and (number % 2 == 0 or perf_counter() - started < rounds.seconds)
    ):
        for name in order if number % 2 else reversed(order):
            if gpu and rounds.settle and not (times[name] and times[name][-1] > _LONG_US):
                run_us(variants[name], before)
            elapsed_us = run_us(variants[name], before)
            times[name].append(elapsed_us)
            finished(name, elapsed_us)
        number += 1
    return {name: values[1:] for name, values in times.items()}


def raise_clocks(commands: CommandBuffer, before: CommandBuffer) -> None:
    """Keep a GPU busy with runs that count for nothing until its clocks are up.

    An H200 that stood idle runs at 345 MHz of 1,980, and raises them after 0.2 to 0.35 s of work.
    """
    started = perf_counter()
    while not before.device.is_cpu and perf_counter() - started < _CLOCKS_SECONDS:
        run_us(commands, before)


def median_error(values: Sequence[float]) -> float:
    """Half the width of the interval that holds the true median with about 95%: 1.96 standard errors.

    The standard error of a median is 1.253 deviations / sqrt(n), the deviation 1.483 times the median absolute one.
    """
    middle = statistics.median(values)
    deviation = 1.483 * statistics.median(abs(value - middle) for value in values)
    return 1.96 * 1.253 * deviation / math.sqrt(len(values))


def run_us(commands: CommandBuffer, before: CommandBuffer) -> float:
    """The GPU time, us, of one run of a recorded buffer with ``before`` queued ahead of it."""
    before.submit()
    commands.submit()
    before.wait()
    commands.wait()
    start_ns, end_ns = commands.ticks_ns()
    return (end_ns - start_ns) / 1e3
