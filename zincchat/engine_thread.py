"""The one thread that owns the engine and every Vulkan object behind it."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engine import Cancelled, EngineError
from zincchat.alternation import Alternation
from zincchat.chat.fit import PromptTooLongError, fit
from zincchat.engine_events import (
    Event,
    Loaded,
    LoadFailed,
    LoadProgress,
    MeasuringEnded,
    Prefilled,
    PrefillProgress,
    ReplyEnded,
    ReplyFailed,
    TokenArrived,
    TooLong,
    Trimmed,
)
from zincchat.measuring import measure_device, measure_remedies

if TYPE_CHECKING:
    from engine import Engine, Sampling, Session
    from zincchat.chat.conversation import Prompt

SLOWEST_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """One reply to generate. ``sampling`` None takes the model's own with ``seed`` put in.

    ``thinking`` None, or a model without a switch for it, leaves it to the model's template.
    """

    number: int
    prompt: Prompt
    sampling: Sampling | None
    seed: int
    max_tokens: int | None
    thinking: bool | None
    sent_s: float
    cancel: threading.Event


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """A round of measurements; a reply that is requested meanwhile ends it."""

    cancel: threading.Event


class _LoadAbandonedError(Exception):
    """Raised inside the progress callback where the app quits while the model loads."""


class EngineThread:
    """Takes requests by a queue, reports through ``events``; only the live settings are set from other threads."""

    def __init__(self, open_engine: Callable[..., Engine]) -> None:
        """Keep ``open_engine``, which is called as ``open_engine(progress=...)`` in the thread."""
        self.events: deque[Event] = deque()
        self._open_engine = open_engine
        self._requests: queue.SimpleQueue[ReplyRequest | MeasureRequest | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._engine: Engine | None = None
        self._session: Session | None = None
        self._settings_lock = threading.Lock()
        self._settings_held: dict[str, Any] | None = None  # the user's, while a measurement uses others
        self._alternation: Alternation | None = None
        self._cancel = threading.Event()
        # A daemon, so that a driver call that never returns cannot keep the process alive.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def request(self, request: ReplyRequest | MeasureRequest) -> None:
        """Queue a reply or a measurement, which waits for the model to load and for what runs; that is cancelled."""
        self._cancel.set()
        self._cancel = request.cancel
        self._requests.put(request)

    def cancel(self) -> None:
        """Stop the newest request at the next token or prefill chunk; what has arrived stays."""
        self._cancel.set()

    def set_live(self, name: str, value: Any) -> None:
        """Set ``mode``, ``fusion`` or ``barriers``, which the engine takes up at the next token boundary.

        What it has just come to refuse it does not take: the reply that failed of it says so.
        """
        with self._settings_lock:
            if self._settings_held is not None:
                self._settings_held[name] = value
            elif self._engine is not None:
                with suppress(EngineError):
                    setattr(self._engine, name, value)

    def alternate(self, alternation: Alternation | None) -> None:
        """Have replies run under two settings in turn from the next token on; None: no more."""
        with self._settings_lock:
            self._alternation = alternation

    def stop(self) -> None:
        """Cancel, close the engine in its own thread and wait for that, but not forever."""
        self._stopping.set()
        self._cancel.set()
        self._requests.put(None)
        if self._thread.is_alive():
            self._thread.join(SLOWEST_STOP_S)

    def _run(self) -> None:
        try:
            engine = self._open_engine(progress=self._report_loading)
        except _LoadAbandonedError:
            return
        except Exception as error:
            self.events.append(LoadFailed(_one_line(error)))
            return
        try:
            self.events.append(LoadProgress("warm-up", 0, 0))
            with suppress(EngineError):  # the first reply meets it again, and says it
                engine.warm_up()
            self._engine = engine
            self.events.append(
                Loaded(
                    engine.model,
                    engine.device,
                    engine.context,
                    engine.weight_bytes,
                    engine.device_bytes,
                    engine.kv_token_bytes,
                    engine.state_bytes,
                    engine.sampling,
                    engine.mode,
                    engine.fusion,
                    engine.barriers,
                    engine.refused_modes,
                    engine.refused_barriers,
                )
            )
            self._serve(engine)
        finally:
            self._engine = None
            engine.close()

    def _report_loading(self, stage: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise _LoadAbandonedError
        self.events.append(LoadProgress(stage, done, total))

    def _serve(self, engine: Engine) -> None:
        measured = False
        while True:
            if not measured and self._requests.empty():
                measured = True
                self.events.append(measure_device(engine))
            request = self._requests.get()
            if request is None:
                return
            if isinstance(request, MeasureRequest):
                self._measure(engine, request)
            elif request.cancel.is_set():
                self.events.append(ReplyEnded(request.number, "cancelled"))
            else:
                self._try_reply(engine, request)

    def _measure(self, engine: Engine, request: MeasureRequest) -> None:
        problem = ""
        with self._settings_lock:
            self._settings_held = {name: getattr(engine, name) for name in ("mode", "fusion", "barriers")}
        try:
            self._session = self._session or engine.session()
            measure_remedies(engine, self._session, request.cancel, self.events.append)
        except Cancelled:
            problem = "the measurement was stopped"
        except Exception as error:
            self._session = None
            problem = _one_line(error)
        finally:
            with self._settings_lock:
                held, self._settings_held = self._settings_held, None
                for name, value in held.items():
                    try:
                        setattr(engine, name, value)
                    except EngineError as error:  # refused in the course of the measurement
                        problem = str(error)
        self.events.append(MeasuringEnded(problem))

    def _try_reply(self, engine: Engine, request: ReplyRequest) -> None:
        try:
            self._session = self._session or engine.session()
            self._reply(engine, self._session, request)
        except Cancelled:
            self.events.append(ReplyEnded(request.number, "cancelled"))
        except PromptTooLongError as error:
            self.events.append(TooLong(request.number, error.prompt_tokens, error.context_tokens))
        except Exception as error:
            self._session = None  # its KV cache cannot be trusted after a failure
            self.events.append(ReplyFailed(request.number, _one_line(error)))

    def _reply(self, engine: Engine, session: Session, request: ReplyRequest) -> None:
        number = request.number
        thinking = request.thinking if engine.model.thinking is not None else None
        fitted = fit(request.prompt, partial(engine.render, thinking=thinking), engine.context)
        if fitted.dropped_turns:
            self.events.append(Trimmed(number, fitted.dropped_turns))
        session.prefill(
            fitted.ids,
            cancel=request.cancel,
            progress=lambda done, total: self.events.append(PrefillProgress(number, done, total)),
        )
        stats = session.prefill_stats
        self.events.append(Prefilled(number, stats.tokens, stats.kept, stats.seconds))
        sampling = request.sampling or engine.sampling
        tokens = session.generate(
            _with_seed(sampling, request.seed),
            max_tokens=request.max_tokens or engine.context,
            cancel=request.cancel,
        )
        for token in tokens:
            self._take_turns(engine)
            since_send_s = time.perf_counter() - request.sent_s
            self.events.append(TokenArrived(number, token, session.position, since_send_s, engine.device_bytes))
        self.events.append(ReplyEnded(number, session.finish_reason or "stop"))

    def _take_turns(self, engine: Engine) -> None:
        with self._settings_lock:
            if self._alternation is None:
                return
            wanted = self._alternation.next()
            engine.mode, engine.fusion, engine.barriers = wanted.mode, wanted.fusion, wanted.barriers


def _with_seed(sampling: Sampling, seed: int) -> Sampling:
    return replace(sampling, seed=seed)


def _one_line(error: Exception) -> str:
    """An EngineError's own line; anything else is a fault of zincchat or the driver and says its kind."""
    text = " ".join(str(error).split())
    return text if isinstance(error, EngineError) else f"unexpected {type(error).__name__}: {text}"
