"""A conversation without a GPU: it counts positions and sleeps instead of computing."""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Cancelled, EngineError, Sampling
from tests.made_traces import made_trace

if TYPE_CHECKING:
    from tests.zincchat.fake_engine import FakeEngine

VOCAB_SIZE = 49152


class FakeSession:
    """What ``engine.Session`` offers the app, over a FakeEngine."""

    def __init__(self, engine: FakeEngine) -> None:
        self.ids: list[int] = []
        self.finish_reason: str | None = None
        self.prefill_stats = SimpleNamespace(tokens=0, kept=0, seconds=0.0)
        self._engine = engine
        self._now_ns = time.perf_counter_ns()

    @property
    def position(self) -> int:
        return len(self.ids)

    def prefill(
        self,
        ids: list[int],
        cancel: threading.Event | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        self._engine._check_thread()
        if len(ids) > self._engine.context:
            raise EngineError(f"the prompt has {len(ids)} tokens; the context holds {self._engine.context}")
        kept = next((at for at, (a, b) in enumerate(zip(self.ids, ids, strict=False)) if a != b), len(self.ids))
        kept = min(kept, len(ids) - 1)
        self.ids = ids[:kept]
        started = time.perf_counter()
        while self.position < len(ids):
            if self.position > kept:
                self._hold(-1, cancel)
            if cancel is not None and cancel.is_set():
                raise Cancelled("prefill cancelled")
            self.ids += ids[self.position : self.position + 32]
            if progress is not None:
                progress(self.position, len(ids))
        seconds = time.perf_counter() - started
        self.prefill_stats = SimpleNamespace(tokens=len(ids) - kept, kept=kept, seconds=seconds)
        return np.zeros(VOCAB_SIZE, np.float32)

    def _hold(self, index: int, cancel: threading.Event | None) -> None:
        engine = self._engine
        while engine.hold is not None and engine.hold(engine, index) and not engine.go_on.wait(0.01):
            if cancel is not None and cancel.is_set():
                return

    def generate(
        self,
        sampling: Sampling,
        max_tokens: int = 256,
        ignore_eos: bool = False,
        cancel: threading.Event | None = None,
    ) -> Iterator[Any]:
        engine = self._engine
        engine.samplings.append(sampling)
        self.finish_reason = None
        before: tuple[str, bool, str] | None = None
        pieces = itertools.cycle(engine.pieces()) if ignore_eos else engine.pieces()
        for index, (text, thought) in enumerate(pieces):
            engine._check_thread()
            self._hold(index, cancel)
            if cancel is not None and cancel.is_set():
                self.finish_reason = "cancelled"
                return
            if index == max_tokens or self.position >= engine.context:
                self.finish_reason = "length" if index == max_tokens else "context"
                return
            if engine.fail_at == index:
                engine.fail_at = None
                raise EngineError("the device was lost: close other programs that use it, then send again")
            time.sleep(engine._token_s)
            settings = (engine.mode, engine.fusion, engine.barriers)
            timing = replace(engine.make_timing(index, settings, before != settings), position=self.position + 1)
            before = settings
            engine.timings.append(timing)
            self.ids.append(zlib.crc32((text or thought).encode()) % VOCAB_SIZE)
            trace = made_trace(timing, self._now_ns)
            self._now_ns += round(timing.period_us * 1000)
            id, thinking = self.ids[-1], bool(thought)
            yield SimpleNamespace(id=id, text=text, timing=timing, trace=trace, thought=thought, thinking=thinking)
        self.finish_reason = "stop"
