"""From a finished step to the record of its token."""

from __future__ import annotations

from engine.decode.program import Settings
from engine.decode.step import STEPS, Step
from engine.profile.records import TokenTiming
from engine.profile.stamps import account
from engine.vulkan.clocks import KernelClock


def timing(
    index: int,
    settings: Settings,
    step: Step,
    period_ns: int,
    exposed_ns: int,
    gpu_before_ns: float | None,
    clock: KernelClock | None,
    bubbles_range_us: tuple[float, float] | None,
) -> TokenTiming:
    """The record of token ``index``. ``gpu_before_ns`` is the device time at which the work before it ended,
    None where something else ran in between."""
    cpu: dict[str, float] = {}
    for name, before, after in zip(STEPS, step.marks, step.marks[1:], strict=False):
        cpu[f"{name}_us"] = (after.thread_ns - before.thread_ns) / 1e3
        cpu[f"{name}_wall_us"] = (after.wall_ns - before.wall_ns) / 1e3
    kernels_us = bubbles_us = pieces_us = None
    if step.stamped is not None and clock is not None:
        pieces = [op.piece for op in step.program.ops]
        kernels_us, bubbles_us, pieces_us = account(step.stamped.spans_ns(clock), pieces)
    return TokenTiming(
        index=index,
        mode=settings.mode,
        fusion=settings.fusion,
        barriers=settings.barriers,
        rerecorded=step.rerecorded,
        dispatches=len(step.program.ops),
        barrier_count=step.program.barrier_count,
        period_us=period_ns / 1e3,
        exposed_cpu_us=exposed_ns / 1e3,
        **cpu,
        gpu_total_us=(step.gpu_end_ns - step.gpu_start_ns) / 1e3,
        gpu_idle_before_us=None if gpu_before_ns is None else (step.gpu_start_ns - gpu_before_ns) / 1e3,
        kernels_us=kernels_us,
        bubbles_us=bubbles_us,
        pieces_us=pieces_us,
        measured_by="clean" if step.stamped is None and bubbles_range_us is None else "twin",
        bubbles_range_us=bubbles_range_us,
    )
