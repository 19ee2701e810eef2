"""Measuring prefill and decode: interleaved runs over settings, and what is taken from them.

Each repeat runs every setting once, in an order that is reversed every second time, so that a device
that warms up or throttles does not favour one setting. Throughput comes from clean tokens only; one
more pass with stamps on gives the figures measured inside the kernels.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zincchat.panel.statistics import percentile

if TYPE_CHECKING:
    from threading import Event

    from engine import Engine, TokenTiming

CPU_STEPS = ("build", "record", "patch", "submit", "wait", "readback")
CPU_FIELDS = (*(f"{step}_us" for step in CPU_STEPS), *(f"{step}_wall_us" for step in CPU_STEPS))
CLEAN_FIELDS = (*CPU_FIELDS, "exposed_cpu_us", "gpu_total_us", "gpu_idle_before_us")
STAMPED_FIELDS = ("kernels_us", "bubbles_us")
_SEED = 20261129


@dataclass(frozen=True)
class Setting:
    """One combination of the engine's switches."""

    mode: str
    barriers: str
    fusion: bool

    def apply(self, engine: Engine) -> None:
        """Switch ``engine`` to it."""
        engine.mode, engine.barriers, engine.fusion = self.mode, self.barriers, self.fusion

    def __str__(self) -> str:
        return f"{self.mode}, barriers {self.barriers}"


@dataclass
class Samples:
    """What was measured of one setting, over all repeats."""

    prefill_tok_s: list[float] = field(default_factory=list)
    decode_tok_s: list[float] = field(default_factory=list)
    recordings: list[int] = field(default_factory=list)  # decode command buffers recorded, a repeat
    clean: list[TokenTiming] = field(default_factory=list)
    stamped: list[TokenTiming] = field(default_factory=list)


@dataclass(frozen=True)
class Workload:
    """How much is measured: ``decode_tokens`` decode steps and ``prefill_tokens`` prompt tokens a repeat."""

    prefill_tokens: int
    decode_tokens: int
    repeats: int

    @property
    def context(self) -> int:
        """The KV cache this needs: a prompt, or one token and the decoded ones after it."""
        return max(self.prefill_tokens, self.decode_tokens + 1)


def measure(
    engine: Engine,
    settings: Sequence[Setting],
    workload: Workload,
    cancel: Event,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[Setting, Samples]:
    """Warm up, then run ``workload`` for every setting; stops early, with what it has, once ``cancel`` is set."""
    samples = {setting: Samples() for setting in settings}
    prompt = _random_ids(engine, workload.prefill_tokens)
    stamp_every = engine.stamp_every
    engine.stamp_every = 0
    engine.request_stamps()  # waits until the stamped kernels are compiled, which would compete for the CPU
    try:
        for setting in settings:
            progress(f"warm-up: {setting}")
            setting.apply(engine)
            _prefill(engine, prompt, cancel)
            _decode(engine, prompt[0], min(workload.decode_tokens, 8), cancel)
        for repeat in range(workload.repeats):
            for setting in settings if repeat % 2 == 0 else reversed(settings):
                progress(f"repeat {repeat + 1} of {workload.repeats}: {setting}")
                setting.apply(engine)
                _measure_once(engine, prompt, workload, samples[setting], cancel)
        engine.stamp_every = _stamp_interval(stamp_every, workload.decode_tokens)
        for setting in settings:
            progress(f"stamped tokens: {setting}")
            setting.apply(engine)
            _rate, timings = _decode(engine, prompt[0], workload.decode_tokens, cancel)
            samples[setting].stamped += [timing for timing in timings if timing.measured_by != "clean"]
    finally:
        engine.stamp_every = stamp_every
    return samples


def _stamp_interval(usual: int, decode_tokens: int) -> int:
    """The engine's own interval, shortened until a short run still holds about eight stamped tokens."""
    return max(1, min(usual or 16, decode_tokens // 8))


def _random_ids(engine: Engine, count: int) -> list[int]:
    """``count`` valid ids, the same each time; what they are does not change the work."""
    chooser = random.Random(_SEED)
    return [chooser.randrange(engine.model.vocab_size) for _ in range(count)]


def _measure_once(engine: Engine, prompt: list[int], workload: Workload, samples: Samples, cancel: Event) -> None:
    prefill_rate = _prefill(engine, prompt, cancel)
    recordings = engine.recordings
    decode_rate, timings = _decode(engine, prompt[0], workload.decode_tokens, cancel)
    if cancel.is_set():
        return
    samples.prefill_tok_s.append(prefill_rate)
    samples.decode_tok_s.append(decode_rate)
    samples.recordings.append(engine.recordings - recordings)
    samples.clean += timings


def _prefill(engine: Engine, prompt: list[int], cancel: Event) -> float:
    """Tokens per second of the whole prompt on an empty context."""
    session = engine.session()
    session.prefill(prompt, cancel=cancel)
    stats = session.prefill_stats
    return stats.tokens / stats.seconds


def _decode(engine: Engine, first_id: int, count: int, cancel: Event) -> tuple[float, list[TokenTiming]]:
    """Tokens per second over ``count`` greedy tokens after the first, from a context of one token; their timings.

    The first token is sampled from the prefill's logits, so it costs no decode step.
    """
    from engine import Sampling

    session = engine.session()
    session.prefill([first_id], cancel=cancel)
    timings: list[TokenTiming] = []
    started = ended = time.perf_counter()
    for token in session.generate(Sampling(temperature=0.0), max_tokens=count + 1, ignore_eos=True, cancel=cancel):
        ended = time.perf_counter()
        if not timings:
            started = ended
        timings.append(token.timing)
    seconds = ended - started
    return (len(timings) - 1) / seconds if seconds > 0 else 0.0, timings[1:]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 5th and 95th percentile of a non-empty list, linear between neighbours."""
    ordered = sorted(values)
    return {name: percentile(ordered, at) for name, at in (("median", 0.5), ("p5", 0.05), ("p95", 0.95))}


def median(values: Sequence[float | None]) -> float | None:
    """The median of those that were measured; None where none was."""
    measured = sorted(value for value in values if value is not None)
    return percentile(measured, 0.5) if measured else None


def run_figures(setting: Setting, samples: Samples, floor_tok_s: float | None) -> dict[str, Any]:
    """One entry of the JSON's ``runs``; microseconds are medians over tokens, null where not measured.

    ``floor_tok_s`` is the streaming floor, where the device's bandwidth was measured.
    """
    clean, stamped = samples.clean, samples.stamped
    recorded = [timing for timing in clean if timing.rerecorded]
    decode = spread(samples.decode_tok_s)
    ranges = [timing.bubbles_range_us for timing in stamped if timing.bubbles_range_us is not None]
    clean_gpu_us, stamped_gpu_us = (median([t.gpu_total_us for t in tokens]) for tokens in (clean, stamped))
    return {
        "mode": setting.mode,
        "fusion": setting.fusion,
        "barriers": setting.barriers,
        "dispatches": _whole(median([timing.dispatches for timing in clean])),
        "barrier_count": _whole(median([timing.barrier_count for timing in clean])),
        "prefill_tok_s": spread(samples.prefill_tok_s),
        "decode_tok_s": decode,
        **{name: median([getattr(timing, name) for timing in clean]) for name in CLEAN_FIELDS},
        **{name: median([getattr(timing, name) for timing in stamped]) for name in STAMPED_FIELDS},
        "bubbles_range_us": [median([pair[end] for pair in ranges]) for end in (0, 1)] if ranges else None,
        "pieces_us": _median_pieces(stamped),
        "stamped_tokens": len(stamped),
        "stamp_cost_fraction": stamped_gpu_us / clean_gpu_us - 1 if stamped_gpu_us and clean_gpu_us else None,
        "floor_fraction": decode["median"] / floor_tok_s if floor_tok_s else None,
        "recordings": _whole(median(samples.recordings)),
        "record_us_per_dispatch": median([timing.record_us / timing.dispatches for timing in recorded]),
        "build_us_per_op": median([timing.build_us / timing.dispatches for timing in recorded]),
        "patch_submit_us": median([timing.patch_us + timing.submit_us for timing in clean]),
    }


def _median_pieces(stamped: Sequence[TokenTiming]) -> dict[str, float | None] | None:
    pieces = [timing.pieces_us for timing in stamped if timing.pieces_us is not None]
    return {name: median([piece[name] for piece in pieces]) for name in pieces[0]} if pieces else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
