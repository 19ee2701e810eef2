"""From finished steps to the records of their tokens."""

from __future__ import annotations

from time import perf_counter_ns

from engine.decode.step import STEPS, Step
from engine.profile.kernel_clock import KernelClock
from engine.profile.records import TokenTiming
from engine.profile.stamps import account, span_us
from engine.profile.timeline import TokenTrace, causal_axis, place
from engine.vulkan.calibration import Calibration, HostAxis


class TokenClock:
    """Makes one reply's records: each token against the end of the one before.

    ``gpu_end_ns`` is the device time at which the prefill ended.
    """

    def __init__(self, clock: KernelClock | None, calibration: Calibration | None, gpu_end_ns: float) -> None:
        self._clock, self._calibration = clock, calibration
        self._share_us = 0.0  # of the time until tokens that came together, for each
        self._causal_axis: HostAxis | None = None  # for a device without calibration
        self._gpu_end_ns: float | None = gpu_end_ns
        self._finished_ns = self._free_ns = perf_counter_ns()  # free: since when nothing was queued on the GPU

    def interrupted(self) -> None:
        """Something else ran since the last token: the next one's period starts here."""
        self._finished_ns = self._free_ns = perf_counter_ns()
        self._gpu_end_ns = None

    def timing(
        self, index: int, position: int, step: Step, bubbles_range_us: tuple[float, float] | None
    ) -> tuple[TokenTiming, TokenTrace]:
        """The record and the timeline of token ``index``, just finished: the one before it was fed at ``position``."""
        now_ns = perf_counter_ns()
        period_us = (now_ns - self._finished_ns) / 1e3
        if step.together > 1:
            period_us = self._share_us = period_us / step.together
        elif step.together == 0:
            period_us += self._share_us
        device_ns = (step.gpu_start_ns, step.gpu_end_ns)
        cpu = dict.fromkeys((f"{name}{kind}" for name in STEPS for kind in ("_us", "_wall_us")), 0.0)
        for lap in step.laps:
            cpu[f"{lap.step}_us"] += lap.thread_ns / 1e3
            cpu[f"{lap.step}_wall_us"] += (lap.end_ns - lap.start_ns) / 1e3
        idle_us = None if self._gpu_end_ns is None else (step.gpu_start_ns - self._gpu_end_ns) / 1e3
        # work queued behind other work exposes nothing; behind work that had already ended, what the GPU stood idle
        queued_before = step.submitted_ns < self._free_ns
        exposed_us = (idle_us or 0.0) if queued_before else (step.submitted_ns - self._free_ns) / 1e3
        kernels_us = bubbles_us = edges_us = pieces_us = None
        stamped = None
        # stamps of a token too long for the clock's range tell nothing
        if step.stamped and self._clock and step.gpu_end_ns - step.gpu_start_ns < self._clock.longest_ns:
            pieces = [op.piece for op in step.program.ops]
            spans_ns = step.stamped.spans_ns(self._clock)
            kernels_us, bubbles_us, pieces_us = account(spans_ns, pieces)
            edges_us = (step.gpu_end_ns - step.gpu_start_ns) / 1e3 - span_us(spans_ns)
            stamped = place(step.program, spans_ns, self._clock, step.stamped.first_stamp(), device_ns)
        record = TokenTiming(
            index=index,
            mode=step.settings.mode,
            fusion=bool(step.settings.passes),
            barriers=step.settings.barriers,
            rerecorded=step.rerecorded,
            dispatches=step.program.dispatches or len(step.program.ops),
            barrier_count=step.program.barrier_count,
            period_us=period_us,
            exposed_cpu_us=exposed_us if step.starved else 0.0,
            **cpu,
            gpu_total_us=(step.gpu_end_ns - step.gpu_start_ns) / 1e3,
            gpu_idle_before_us=idle_us,
            kernels_us=kernels_us,
            bubbles_us=bubbles_us,
            pieces_us=pieces_us,
            measured_by="clean" if step.stamped is None and bubbles_range_us is None else "twin",
            bubbles_range_us=bubbles_range_us,
            passes=step.settings.passes,
            position=position + 1,
            edges_us=edges_us,
        )
        self._finished_ns, self._free_ns, self._gpu_end_ns = now_ns, step.finished_ns, step.gpu_end_ns
        return record, TokenTrace(index, position, step.settings, step.laps, self._axis(step), device_ns, stamped)

    def _axis(self, step: Step) -> HostAxis:
        if self._calibration is not None:
            return self._calibration.axis
        submit_ns = next((lap.start_ns for lap in step.laps if lap.step == "submit"), step.submitted_ns)
        device_ns = (step.gpu_start_ns, step.gpu_end_ns)
        self._causal_axis = causal_axis(self._causal_axis, submit_ns, step.finished_ns, device_ns)
        return self._causal_axis
