"""Comparing command buffers on a machine that drifts: each runs in turn, forwards and backwards, and medians count."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from engine.vulkan.commands import CommandBuffer


def interleaved(
    variants: Mapping[str, CommandBuffer],
    before: CommandBuffer,
    rounds: int,
    finished: Callable[[str, float], None] = lambda name, elapsed_us: None,
) -> dict[str, float]:
    """The median GPU time, us, of each recorded buffer over ``rounds`` pairs of runs, in the order ABBA.

    ``before`` is queued ahead of every run, so that each finds the same state; one run of each more, the first, is a
    warm-up. ``finished(name, elapsed_us)`` is called after each run, warm-up included. Nothing may be in flight.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for number in range(2 * rounds + 1):
        for name in order if number % 2 else reversed(order):
            elapsed_us = run_us(variants[name], before)
            times[name].append(elapsed_us)
            finished(name, elapsed_us)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def run_us(commands: CommandBuffer, before: CommandBuffer) -> float:
    """The GPU time, us, of one run of a recorded buffer with ``before`` queued ahead of it."""
    before.submit()
    commands.submit()
    before.wait()
    commands.wait()
    start_ns, end_ns = commands.ticks_ns()
    return (end_ns - start_ns) / 1e3
