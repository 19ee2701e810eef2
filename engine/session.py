"""Session: one conversation's KV cache, and the tokens generated into it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event
from time import perf_counter
from weakref import ref

import numpy as np
import numpy.typing as npt

from engine.decode.program import Settings
from engine.decode.sampling import Sampling
from engine.decode.state import NO_ID, known_stops, pack_step
from engine.decode.step import Mode, Request
from engine.errors import Cancelled, EngineError
from engine.profile.records import TokenTiming
from engine.profile.timeline import TokenTrace
from engine.profile.timing import TokenClock
from engine.runtime import Runtime
from engine.snapshots import Snapshots
from engine.text.model_text import ModelText
from engine.text.reply_text import Piece, ReplyText


@dataclass(frozen=True, slots=True)
class PrefillStats:
    """What the last prefill did: tokens fed, tokens kept from before, and seconds it took."""

    tokens: int
    kept: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token.

    ``text`` is what it adds to the answer, ``thought`` what it adds to the thoughts before it; both may be empty: an
    incomplete character waits for its other bytes, and think tags are in neither. ``thinking``: the token is part of
    a think block, its tags included.
    """

    id: int
    text: str
    timing: TokenTiming
    trace: TokenTrace
    thought: str = ""
    thinking: bool = False


class Session:
    """A conversation in the engine's KV cache.

    ``ids`` are those in the cache, ``prefill_stats`` what the last prefill did, ``finish_reason`` why the
    last reply ended: "stop", "length", "context" or "cancelled", None while it runs. A prefill ends a reply that
    still runs. Once a newer session has the cache, or the engine is closed, only these figures are left.
    """

    def __init__(
        self,
        runtime: Runtime,
        text: ModelText,
        stop_ids: frozenset[int],
        settings: Callable[[], Settings],
        context: int,
        vocab_size: int,
    ) -> None:
        """Not for callers: use ``Engine.session``. ``settings`` is asked before each token."""
        self._runtime, self._text, self._stop_ids = runtime, text, stop_ids
        self._settings, self._context, self._vocab_size = settings, context, vocab_size
        self.ids: list[int] = []
        self.prefill_stats = PrefillStats(0, 0, 0.0)
        self.finish_reason: str | None = None
        self._logits_ready = False
        self._prompt_tokens = 0  # those of ``ids`` that a prefill left
        self._snapshots = Snapshots(runtime.snapshots, stop_ids)
        self._ended: str | None = None
        self._reply: ref[Generator[Token, None, None]] | None = None  # weak: dropping the generator ends the reply

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
        has ids beyond the vocabulary or is longer than the context, or the model is damaged, and Cancelled when
        ``cancel`` was set.
        """
        self._need_cache()
        prefill = self._runtime.prefill
        ids = [int(i) for i in ids]
        if not ids:
            raise EngineError("the prompt is empty")
        if len(ids) > self._context:
            raise EngineError(
                f"the prompt has {len(ids)} tokens, the context holds {self._context}: shorten it or raise --context"
            )
        if min(ids) < 0 or max(ids) >= self._vocab_size:
            raise EngineError(f"the prompt has an id outside the vocabulary of {self._vocab_size}")
        self._end_reply()
        start = perf_counter()
        self._logits_ready = False
        kept, end_ns = self._snapshots.go_back(self.ids, ids, replied=self.position > self._prompt_tokens)
        prefill.end_ns = end_ns or prefill.end_ns
        del self.ids[kept:]
        self._prompt_tokens = kept
        place = self._snapshots.place(ids, kept)
        while len(self.ids) < len(ids):
            if cancel is not None and cancel.is_set():
                raise Cancelled
            position = len(self.ids)
            end = min(position + prefill.chunk_tokens, len(ids))
            mark = self._snapshots.mark(ids, position, end, place)
            prefill.feed(ids[position:end], position, end == len(ids), mark - 1 - position if mark else NO_ID)
            self.ids += ids[position:end]
            self._prompt_tokens = end
            if mark:
                self._snapshots.keep(mark, ids, place)
            if progress is not None:
                progress(len(self.ids) - kept, len(ids) - kept)
        self.prefill_stats = PrefillStats(len(ids) - kept, kept, perf_counter() - start)
        logits = prefill.logits()
        if not np.isfinite(logits).all():
            self.ids.clear()
            raise EngineError("the model's logits are not finite numbers: its weights are damaged: download it again")
        self._logits_ready = True
        return logits

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
        self._need_cache()
        if not self._logits_ready:
            raise EngineError("generate needs a prefill before it")
        if max_tokens < 1:
            raise EngineError(f"max_tokens is {max_tokens}; it must be 1 or more")
        self._logits_ready = False
        reply = self._generate(sampling, max_tokens, ignore_eos, cancel)
        self._reply = ref(reply)
        return reply

    def end(self, reason: str) -> None:
        """End a reply that still runs, and refuse prefill and generate from now on: EngineError(reason)."""
        self._end_reply()
        self._ended = self._ended or reason

    def _end_reply(self) -> None:
        reply = self._reply() if self._reply is not None else None
        if reply is None:
            return
        try:
            reply.close()
        except ValueError as error:  # its next token is being made now
            raise EngineError("a reply is being generated in another thread: cancel it and wait for its end") from error

    def _need_cache(self) -> None:
        if self._ended is not None:
            raise EngineError(self._ended)

    def _generate(
        self, sampling: Sampling, max_tokens: int, ignore_eos: bool, cancel: Event | None
    ) -> Generator[Token, None, None]:
        text = ReplyText(self._text.tokenizer, self._text.think_tags, self.ids) if self._text.tokenizer else None
        held: Token | None = None  # the end of its text is incomplete: only the next token, or the end, tells
        # closed by name: where this generator is dropped, Python 3.12 leaves an inner one open until it is collected
        with closing(self._steps(sampling, max_tokens, ignore_eos, cancel)) as steps:
            for id, timing, trace in steps:
                piece = text.push(id) if text else Piece("", "", False)
                if held is not None:
                    yield held
                held = Token(id, piece.text, timing, trace, piece.thought, piece.thinking)
                if text is None or not text.pending:
                    yield held
                    held = None
        if held is not None and text is not None:
            rest = text.flush()
            yield replace(held, text=held.text + rest.text, thought=held.thought + rest.thought)

    def _steps(
        self, sampling: Sampling, max_tokens: int, ignore_eos: bool, cancel: Event | None
    ) -> Generator[tuple[int, TokenTiming, TokenTrace], None, None]:
        runtime = self._runtime
        stops: frozenset[int] = frozenset() if ignore_eos else self._stop_ids
        params, known = pack_step(sampling, stops), known_stops(stops)
        self.finish_reason = "cancelled"  # unless the loop says otherwise: the caller may drop the generator
        clock = TokenClock(runtime.clock, runtime.calibration, runtime.prefill.end_ns)
        settings = self._settings()
        mode: Mode | None = None
        token, due = 0, False
        try:
            for index in range(max_tokens):
                wanted = self._settings()
                cancelled = cancel is not None and cancel.is_set()
                bubbles_range = None
                due = due or (index > 0 and runtime.stamp_due(index))
                if mode is not None and mode.in_flight and (cancelled or due or wanted != settings):
                    step = mode.collect()  # what is in flight comes first
                elif cancelled:
                    return
                elif index == 0:
                    step = runtime.first_step(self.ids, params, wanted)
                elif self.position >= self._context:
                    self.finish_reason = "context"
                    return
                else:
                    if runtime.flag_policy.prepare(wanted):
                        clock.interrupted()
                    settings, mode = wanted, runtime.begin_mode(wanted)
                    if due and runtime.clock is None and settings.mode != "persistent":
                        bubbles_range = runtime.bubbles_range(self.position, settings)
                        clock.interrupted()
                    remaining = min(max_tokens - index, self._context - self.position) - mode.in_flight
                    position = self.position + mode.in_flight
                    stamped = due and runtime.clock is not None
                    step = mode.step(Request(settings, position, params, stamped, remaining))
                    due = False
                if mode is not None and (problem := runtime.flag_policy.problem(mode)) is not None:
                    raise EngineError(problem)
                if index > 0:
                    self.ids.append(token)
                token = step.id
                if token in stops:
                    self.finish_reason = "stop"
                    return
                yield token, *clock.timing(index, self.position - 1, step, bubbles_range)
            self.finish_reason = "length"
        except EngineError:
            self._forget()
            raise
        finally:
            while mode is not None and mode.in_flight:  # a dropped generator, or tokens behind an end token
                step = mode.collect()
                if token not in known:
                    self.ids.append(token)
                    token = step.id
            if mode is not None and runtime.flag_policy.problem(mode) is not None:
                self._forget()

    def _forget(self) -> None:
        """What the device holds is unknown: the next prefill begins anew."""
        self.ids.clear()
        self._prompt_tokens = 0
