"""Running the settings, interleaved, and keeping what each of their passes gave.

A repeat runs every setting once: a clean pass, from which throughput and every CPU figure come, and next to it
a stamped pass. Every second repeat runs in the reverse order (ABBA), so that a device that warms up, throttles
or shares its computer favours neither one setting nor the stamped passes.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zincchat.bench.setting import Setting
from zincchat.garbage import NEVER, YOUNG_OBJECTS

if TYPE_CHECKING:
    from threading import Event

    from engine import Engine, KernelSpan, TokenTiming, TokenTrace

WARM_UP_TOKENS = 8
STAMPED_PASS_TOKENS = 48
STAMP_EVERY = 4  # tokens of a stamped pass; those between are clean, and what the stamped ones are compared with
_SEED = 20261129


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

    @property
    def middle(self) -> int:
        """The position that the median decode step is fed at."""
        return (self.decode_tokens + 1) // 2

    @property
    def stamped_pass_tokens(self) -> int:
        """Decode steps of a stamped pass."""
        return min(self.decode_tokens, STAMPED_PASS_TOKENS)

    @property
    def stamped_pass_start(self) -> int:
        """Tokens of context before a stamped pass: it reads as much KV as the clean pass does in its middle."""
        return max(1, (self.decode_tokens - self.stamped_pass_tokens) // 2)


@dataclass(frozen=True)
class CleanPass:
    """One run without any instrument."""

    tok_s: float
    recordings: int  # decode command buffers recorded
    tokens: list[TokenTiming]


@dataclass(frozen=True)
class StampedPass:
    """One run in which every few tokens ran the stamped kernels; ``kernels`` are those tokens', if they are kept."""

    tokens: list[TokenTiming]
    kernels: list[list[KernelSpan]] = field(default_factory=list)

    @property
    def stamped(self) -> list[TokenTiming]:
        """Those that did, or that were measured between bounds where kernels have no clock."""
        return [timing for timing in self.tokens if timing.measured_by != "clean"]

    @property
    def between(self) -> list[TokenTiming]:
        """The clean ones."""
        return [timing for timing in self.tokens if timing.measured_by == "clean"]


@dataclass
class Samples:
    """What was measured of one setting: an entry a repeat."""

    clean: list[CleanPass] = field(default_factory=list)
    stamped: list[StampedPass] = field(default_factory=list)


@dataclass
class Measurements:
    """All settings' samples, and the prefill rate of each repeat (no setting changes the prefill)."""

    samples: dict[Setting, Samples]
    prefill_tok_s: list[float] = field(default_factory=list)


def schedule(settings: Sequence[Setting], repeat: int) -> list[tuple[Setting, bool]]:
    """The passes of one repeat in order, each with whether it is stamped; odd repeats are reversed."""
    passes = [(setting, stamped) for setting in settings for stamped in (False, True)]
    return passes if repeat % 2 == 0 else passes[::-1]


def kernel_setting(settings: Sequence[Setting]) -> Setting:
    """Whose kernels are told: those of the first fused setting whose kernels load all they need themselves.

    Without one: of the first fused one whose ops are dispatches of their own, whose weights are on their way before
    they begin. Modes run the same kernels.
    """
    from engine import loads_ahead

    def rank(setting: Setting) -> tuple[bool, bool, bool]:
        return not setting.fusion, loads_ahead(setting.mode, setting.barriers), setting.mode == "persistent"

    return min(settings, key=rank)


def measure(
    engine: Engine,
    settings: Sequence[Setting],
    workload: Workload,
    cancel: Event,
    progress: Callable[[str], None] = lambda text: None,
    warm: Callable[[], None] = lambda: None,
) -> Measurements:
    """Warm up, call ``warm``, then run ``workload`` for every setting.

    Once ``cancel`` is set it stops early: by engine.Cancelled from a prefill, or with passes missing.
    """
    result = Measurements({setting: Samples() for setting in settings})
    of_kernels = kernel_setting(settings)
    ids = _random_ids(engine, max(workload.prefill_tokens, workload.stamped_pass_start))
    prompt = ids[: workload.prefill_tokens]
    stamp_every = engine.stamp_every
    engine.stamp_every = 0
    engine.request_stamps()  # waits until the stamped kernels are compiled, which would compete for the CPU
    try:
        progress("warm-up: prefill")
        _prefill(engine, prompt, cancel)
        for setting in settings:
            progress(f"warm-up: {setting}")
            setting.apply(engine)
            _clean_pass(engine, ids[:1], min(workload.decode_tokens, WARM_UP_TOKENS), cancel)
            _stamped_pass(engine, ids, workload, cancel)
        warm()
        with _no_full_collections():
            for repeat in range(workload.repeats):
                progress(f"repeat {repeat + 1} of {workload.repeats}: prefill")
                result.prefill_tok_s.append(_prefill(engine, prompt, cancel))
                for setting, stamped in schedule(settings, repeat):
                    progress(f"repeat {repeat + 1} of {workload.repeats}: {setting}")
                    setting.apply(engine)
                    gc.collect()
                    samples = result.samples[setting]
                    if stamped:
                        kept = setting is of_kernels
                        samples.stamped.append(_stamped_pass(engine, ids, workload, cancel, keep_kernels=kept))
                    else:
                        samples.clean.append(_clean_pass(engine, ids[:1], workload.decode_tokens, cancel))
    finally:
        engine.stamp_every = stamp_every
    return result


@contextmanager
def _no_full_collections() -> Iterator[None]:
    """The garbage collector as the chat sets it while it replies; full collections run between passes."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _random_ids(engine: Engine, count: int) -> list[int]:
    """``count`` valid ids, the same each time; what they are does not change the work."""
    chooser = random.Random(_SEED)
    return [chooser.randrange(engine.model.vocab_size) for _ in range(count)]


def _prefill(engine: Engine, prompt: list[int], cancel: Event) -> float:
    """Tokens per second of the whole prompt on an empty context."""
    session = engine.session()
    session.prefill(prompt, cancel=cancel)
    stats = session.prefill_stats
    return stats.tokens / stats.seconds


def _clean_pass(engine: Engine, prompt: list[int], count: int, cancel: Event) -> CleanPass:
    recordings = engine.recordings
    tok_s, timings, _stamped = _decode(engine, prompt, count, cancel)
    return CleanPass(tok_s, engine.recordings - recordings, timings)


def _stamped_pass(
    engine: Engine, ids: list[int], workload: Workload, cancel: Event, keep_kernels: bool = False
) -> StampedPass:
    count = workload.stamped_pass_tokens
    engine.stamp_every = min(STAMP_EVERY, count + 1)
    try:
        _tok_s, timings, stamped = _decode(engine, ids[: workload.stamped_pass_start], count, cancel)
    finally:
        engine.stamp_every = 0
    return StampedPass(timings, [trace.kernels for trace in stamped] if keep_kernels else [])


def _decode(
    engine: Engine, prompt: list[int], count: int, cancel: Event
) -> tuple[float, list[TokenTiming], list[TokenTrace]]:
    """Tokens per second over ``count`` greedy tokens after the first, from a context of ``prompt``; their timings, and
    the traces of those that were stamped.

    The first token is sampled from the prefill's logits, so it costs no decode step. A clean token's trace is not kept:
    with it a recorded program would live on, and the next one take new memory.
    """
    from engine import Sampling

    session = engine.session()
    session.prefill(prompt, cancel=cancel)
    timings: list[TokenTiming] = []
    stamped: list[TokenTrace] = []
    started = ended = time.perf_counter()
    for token in session.generate(Sampling(temperature=0.0), max_tokens=count + 1, ignore_eos=True, cancel=cancel):
        ended = time.perf_counter()
        if not timings:
            started = ended
        timings.append(token.timing)
        if token.trace.stamped is not None:
            stamped.append(token.trace)
    seconds = ended - started
    return (len(timings) - 1) / seconds if seconds > 0 else 0.0, timings[1:], stamped
