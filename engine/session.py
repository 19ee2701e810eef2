"""Session: one conversation's KV cache, and the tokens generated into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.decode.sampling import Sampling
from engine.decode.state import pack_step
from engine.errors import Cancelled, EngineError
from engine.profile.records import TokenTiming
from engine.profile.timing import timing
from engine.text.stream import TextStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class PrefillStats:
    """What the last prefill did: tokens fed, tokens kept from before, and seconds it took."""

    tokens: int
    kept: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. ``text`` may be empty: an incomplete character waits for its other bytes."""

    id: int
    text: str
    timing: TokenTiming


class Session:
    """A conversation in the engine's KV cache.

    ``ids`` are those in the cache, ``prefill_stats`` what the last prefill did, ``finish_reason`` why the
    last reply ended: "stop", "length", "context" or "cancelled", None while it runs.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ids: list[int] = []
        self.prefill_stats = PrefillStats(0, 0, 0.0)
        self.finish_reason: str | None = None
        self._logits_ready = False

    @property
    def position(self) -> int:
        """Tokens in the KV cache."""
        return len(self.ids)

    def prefill(
        self, ids: Sequence[int], cancel: Event | None = None, progress: Callable[[int, int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Make the cache hold exactly ``ids`` and return the logits after them, float32 (vocab,).

        ``ids`` is the whole prompt: what it shares with the cache from the start is kept, the rest is fed.
        ``progress(done_tokens, total_tokens)`` counts those fed. Raise EngineError if the prompt is empty,
        has ids beyond the vocabulary or is longer than the context, and Cancelled when ``cancel`` was set.
        """
        engine = self._engine
        ids = [int(i) for i in ids]
        if not ids:
            raise EngineError("the prompt is empty")
        if len(ids) > engine.context:
            raise EngineError(
                f"the prompt has {len(ids)} tokens, the context holds {engine.context}: shorten it or raise --context"
            )
        if min(ids) < 0 or max(ids) >= engine.model.vocab_size:
            raise EngineError(f"the prompt has an id outside the vocabulary of {engine.model.vocab_size}")
        start = perf_counter()
        kept = min(_common_prefix(self.ids, ids), len(ids) - 1)
        del self.ids[kept:]
        self._logits_ready = False
        size = engine._prefill.chunk_tokens
        while len(self.ids) < len(ids):
            if cancel is not None and cancel.is_set():
                raise Cancelled
            position = len(self.ids)
            chunk = ids[position : (position // size + 1) * size]
            engine._prefill.feed(chunk, position, last=position + len(chunk) == len(ids))
            self.ids += chunk
            if progress is not None:
                progress(len(self.ids) - kept, len(ids) - kept)
        self.prefill_stats = PrefillStats(len(ids) - kept, kept, perf_counter() - start)
        self._logits_ready = True
        return engine._prefill.logits()

    def generate(
        self,
        sampling: Sampling,
        max_tokens: int = 256,
        ignore_eos: bool = False,
        cancel: Event | None = None,
    ) -> Iterator[Token]:
        """Yield up to ``max_tokens`` tokens after a prefill; the end token is not yielded.

        With ``ignore_eos`` end tokens are ordinary ones. Each token is one step of the engine's current mode;
        settings are read before each. Raise EngineError unless a prefill came before.
        """
        if not self._logits_ready:
            raise EngineError("generate needs a prefill before it")
        if max_tokens < 1:
            raise EngineError(f"max_tokens is {max_tokens}; it must be 1 or more")
        self._logits_ready = False
        return self._generate(sampling, max_tokens, ignore_eos, cancel)

    def _generate(self, sampling: Sampling, max_tokens: int, ignore_eos: bool, cancel: Event | None) -> Iterator[Token]:
        tokenizer = self._engine._tokenizer
        stream = TextStream(tokenizer) if tokenizer else None
        held: Token | None = None  # its last character is incomplete: only the next token, or the end, tells
        for id, record in self._steps(sampling, max_tokens, ignore_eos, cancel):
            text = stream.push(id) if stream else ""
            if held is not None:
                yield held
            held = Token(id, text, record)
            if stream is None or not stream.pending:
                yield held
                held = None
        if held is not None and stream is not None:
            yield Token(held.id, held.text + stream.flush(), held.timing)

    def _steps(
        self, sampling: Sampling, max_tokens: int, ignore_eos: bool, cancel: Event | None
    ) -> Iterator[tuple[int, TokenTiming]]:
        engine = self._engine
        params = pack_step(sampling)
        stops: frozenset[int] = frozenset() if ignore_eos else engine.stop_ids
        self.finish_reason = "cancelled"  # unless the loop says otherwise: the caller may drop the generator
        finished_ns = free_ns = perf_counter_ns()  # free: since when nothing is queued on the GPU
        gpu_end_ns: float | None = engine._prefill.end_ns
        token = 0
        for index in range(max_tokens):
            if cancel is not None and cancel.is_set():
                return
            settings = engine._settings()
            bubbles_range = None
            if index == 0:
                step = engine._first_step(self.ids, params)
            elif self.position >= engine.context:
                self.finish_reason = "context"
                return
            else:
                bubbles_range = engine._bubbles_range(index, self.position, settings)
                if bubbles_range is not None:  # measuring it is not part of the token
                    finished_ns = free_ns = perf_counter_ns()
                    gpu_end_ns = None
                step = engine._mode_object(settings.mode).step(
                    settings, self.position, params, engine._wants_stamp(index)
                )
                self.ids.append(token)
            token = step.id
            if token in stops:
                self.finish_reason = "stop"
                return
            now_ns = perf_counter_ns()
            exposed_ns = step.marks[4].wall_ns - free_ns
            record = timing(
                index, settings, step, now_ns - finished_ns, exposed_ns, gpu_end_ns, engine._clock, bubbles_range
            )
            finished_ns, free_ns, gpu_end_ns = now_ns, step.marks[5].wall_ns, step.gpu_end_ns
            yield token, record
        self.finish_reason = "length"


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
