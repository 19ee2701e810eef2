"""Tokens as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open.

The format: "Trace Event Format", by the Chromium project. Times are microseconds from the first event.

Perfetto drops a slice that begins before the one ahead of it on its track has ended, be it by a nanosecond; so times
are written such that every reader gets the same nanoseconds (``microseconds``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from engine.profile.waiting import waits_in_memory

if TYPE_CHECKING:
    from engine.profile.timeline import TokenTrace
    from engine.session import Token

_CPU, _GPU = 1, 2  # processes
_HOST_THREAD, _TOKENS = 1, 2  # threads of the first
_QUEUE, _KERNELS = 1, 2  # threads of the second; overlapping kernels take further ones

Event = dict[str, Any]


def chrome_trace(tokens: Sequence[Token], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The trace of tokens in the order in which they were generated, ready for json.dumps.

    ``metadata`` (device, driver, model, versions) goes in as it is, with what is known of the time axis.
    """
    start_ns = min((lap.start_ns for token in tokens for lap in token.trace.laps), default=0)
    builder = _Builder(start_ns)
    for token in tokens:
        builder.add(token)
    deviations = [token.trace.deviation_ns for token in tokens]
    known = [deviation for deviation in deviations if deviation is not None]
    stamped = [token.trace.stamped.deviation_ns for token in tokens if token.trace.stamped is not None]
    calibrated = bool(tokens) and len(known) == len(deviations)
    axis = {
        "clock": "perf_counter_ns",
        "start_ns": start_ns,
        "calibrated": calibrated,
        "deviation_ns": max(known, default=None),
        "kernel_clock_deviation_ns": max(stamped, default=None),
    }
    events = [*_names(calibrated, builder.kernel_tracks, metadata), *sorted(builder.events, key=_order)]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {**metadata, **axis}}


def microseconds(ns: int) -> float:
    """Whole nanoseconds as the format's microseconds, which times 1,000 give the same number, rounded or cut off.

    Perfetto's importer cut off what the product has behind the point until 2025 (CoerceToTs, json_utils.cc), and 1.001
    times 1,000 is 1000.9999999999999.
    """
    value = ns / 1e3
    return math.nextafter(value, math.inf) if int(value * 1e3) < ns else value


def _order(event: Event) -> tuple[float, float]:
    return event["ts"], -event.get("dur", 0)


def _names(calibrated: bool, kernel_tracks: int, metadata: Mapping[str, Any]) -> Iterator[Event]:
    device = metadata.get("device", "GPU")
    mark = "" if calibrated else " (not calibrated: placed between submit and fence)"
    tracks = {
        (_CPU, _HOST_THREAD): "CPU thread",
        (_CPU, _TOKENS): "tokens",
        (_GPU, _QUEUE): f"GPU queue{mark}",
        (_GPU, _KERNELS): "GPU kernels",
        **{(_GPU, _KERNELS + more): f"GPU kernels {more + 1}" for more in range(1, kernel_tracks)},
    }
    for pid, name in ((_CPU, "CPU"), (_GPU, f"GPU: {device}")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    for (pid, tid), name in tracks.items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


class _Builder:
    """Collects events; whole nanoseconds, so that rounding cannot make neighbours overlap."""

    def __init__(self, start_ns: int) -> None:
        self.events: list[Event] = []
        self._start_ns = start_ns
        self._token_end_ns = start_ns
        self._queue_end_ns: int | None = None
        self._kernel_ends_ns: list[int] = []  # of each kernel track
        self._arrows = 0

    @property
    def kernel_tracks(self) -> int:
        return max(len(self._kernel_ends_ns), 1)

    def add(self, token: Token) -> None:
        trace = token.trace
        for lap in trace.laps:
            args = {"token": trace.index, "thread_us": lap.thread_ns / 1e3}
            self._slice(_CPU, _HOST_THREAD, lap.step, lap.start_ns, lap.end_ns, args)
        self._add_token(token)
        # a new calibration may move the axis by less than its deviation; the barrier that opens a token's buffer
        # says that it never starts before the one before it has ended
        start_ns = round(trace.gpu_start_ns)
        if self._queue_end_ns is not None:
            start_ns = max(start_ns, self._queue_end_ns)
        self._queue_end_ns = end_ns = max(start_ns, round(trace.gpu_end_ns))
        self._slice(_GPU, _QUEUE, f"token {trace.index}", start_ns, end_ns, token.timing.to_json())
        if trace.submit_ns is not None:
            self._arrows += 1
            self._event("s", _CPU, _HOST_THREAD, "submit", trace.submit_ns, cat="submit", id=self._arrows)
            self._event("f", _GPU, _QUEUE, "submit", start_ns, cat="submit", id=self._arrows, bp="e")
        waits = waits_in_memory(token.timing.mode, token.timing.barriers)
        self._add_kernels(trace, "wait" if waits else "barrier")

    def _add_token(self, token: Token) -> None:
        """A slice from the end of the token before to this one's, and the counters there."""
        laps, timing = token.trace.laps, token.timing
        start_ns = laps[0].start_ns if timing.index == 0 else self._token_end_ns
        self._token_end_ns = end_ns = laps[-1].end_ns
        args = {"id": token.id, "text": token.text, "mode": timing.mode, "measured_by": timing.measured_by}
        if token.thinking:
            args["thought"] = token.thought
        self._slice(_CPU, _TOKENS, f"token {timing.index}", start_ns, end_ns, args)
        if timing.index > 0 and timing.measured_by == "clean":  # token 0 is sampled from the prefill's logits
            self._counter("tok/s", end_ns, 1e6 / timing.period_us)
        if timing.kernels_us is not None:
            self._counter("kernels_us", end_ns, timing.kernels_us)
        if timing.bubbles_us is not None:
            self._counter("bubbles_us", end_ns, timing.bubbles_us)

    def _add_kernels(self, trace: TokenTrace, joint: str) -> None:
        kernels = trace.kernels
        for kernel in sorted(kernels, key=lambda kernel: kernel.start_ns):
            start_ns, end_ns = round(kernel.start_ns), round(kernel.end_ns)
            track = next((i for i, busy_ns in enumerate(self._kernel_ends_ns) if busy_ns <= start_ns), None)
            if track is None:
                track = len(self._kernel_ends_ns)
                self._kernel_ends_ns.append(end_ns)
            self._kernel_ends_ns[track] = end_ns
            args = {"token": trace.index, "op": kernel.name, "piece": kernel.piece, "bytes": kernel.bytes_moved}
            self._slice(_GPU, _KERNELS + track, kernel.name, start_ns, end_ns, args)
        ended = accumulate((kernel.end_ns for kernel in kernels), max)  # by all up to this one
        starts = [*accumulate((kernel.start_ns for kernel in reversed(kernels)), min)][
            ::-1
        ]  # of this and all later ones
        for before, after, ended_ns, follows_ns in zip(kernels, kernels[1:], ended, starts[1:], strict=False):
            if after.barrier:
                gap_us = max(follows_ns - ended_ns, 0.0) / 1e3
                args = {"token": trace.index, "after": before.name, "before": after.name, "gap_us": gap_us}
                self._event("i", _GPU, _KERNELS, joint, round(ended_ns), s="t", args=args)

    def _slice(self, pid: int, tid: int, name: str, start_ns: int, end_ns: int, args: dict[str, Any]) -> None:
        self._event("X", pid, tid, name, start_ns, dur=microseconds(end_ns - start_ns), args=args)

    def _counter(self, name: str, at_ns: int, value: float) -> None:
        self._event("C", _CPU, _HOST_THREAD, name, at_ns, args={name: value})

    def _event(self, ph: str, pid: int, tid: int, name: str, at_ns: int, **more: Any) -> None:
        self.events.append(
            {"ph": ph, "pid": pid, "tid": tid, "name": name, "ts": microseconds(at_ns - self._start_ns), **more}
        )
