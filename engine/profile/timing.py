"""From a finished step to the record of its token."""

from __future__ import annotations

from engine.decode.program import Settings
from engine.decode.step import STEPS, Step
from engine.profile.records import TokenTiming
from engine.profile.stamps import account


def timing(
    index: int,
    settings: Settings,
    step: Step,
    period_ns: int,
    exposed_ns: int,
    gpu_before_ns: float,
    tick_ns: float | None,
) -> TokenTiming:
    """The record of token ``index``. ``gpu_before_ns`` is the device time at which the work before it ended."""
    cpu: dict[str, float] = {}
    for name, before, after in zip(STEPS, step.marks, step.marks[1:], strict=False):
        cpu[f"{name}_us"] = (after.thread_ns - before.thread_ns) / 1e3
        cpu[f"{name}_wall_us"] = (after.wall_ns - before.wall_ns) / 1e3
    kernels_us = bubbles_us = pieces_us = None
    if step.stamped is not None and tick_ns is not None:
        pieces = [op.piece for op in step.program.ops]
        kernels_us, bubbles_us, pieces_us = account(step.stamped.spans(), pieces, tick_ns)
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
        gpu_idle_before_us=(step.gpu_start_ns - gpu_before_ns) / 1e3,
        kernels_us=kernels_us,
        bubbles_us=bubbles_us,
        pieces_us=pieces_us,
        measured_by="twin" if step.stamped is not None else "clean",
    )
