"""Measurements that the engine thread makes between replies: the device's own figures, bubbles, and each remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from engine import Cancelled, EngineError, Sampling, remedy_rows
from zincchat.engine_events import BubblesMeasured, DeviceMeasured, Event, Measuring, SettingMeasured

if TYPE_CHECKING:
    from engine import Engine, Session

TOKENS = 24
_EMPTY_CHAT = [{"role": "user", "content": "What is a pipeline barrier?"}]
_GREEDY = Sampling(temperature=0.0)


def measure_device(engine: Engine) -> DeviceMeasured:
    """Bandwidth, the queued gap and a token's bytes, up to a second the first time; None where a device refuses."""
    probe_gb_s = queued_gap_us = None
    with suppress(EngineError):
        probe_gb_s = engine.probe_gb_s
    with suppress(EngineError):
        queued_gap_us = engine.queued_gap_us
    last = engine.context - 1
    return DeviceMeasured(
        probe_gb_s, queued_gap_us, engine.token_bytes(0)["total"], engine.token_bytes(last)["total"], last
    )


def measure_remedies(
    engine: Engine, session: Session, cancel: threading.Event, report: Callable[[Event], None]
) -> None:
    """Bubbles under the settings in use, then 24 greedy tokens under each of the article's settings in turn.

    They follow on the conversation, whose own tokens all stay in the KV cache. The engine's settings are left changed.
    Raises Cancelled where ``cancel`` was set.
    """
    ids = session.ids[: engine.context - TOKENS - 2] or engine.render(_EMPTY_CHAT)
    rows = remedy_rows({})
    report(Measuring("bubbles", 0, 1 + len(rows)))
    if engine.mode != "persistent":  # one dispatch, which the bubble meter cannot take apart
        report(BubblesMeasured(engine.measure_bubbles(len(ids))))
    stamp_every, engine.stamp_every = engine.stamp_every, 0
    try:
        for done, row in enumerate(rows, 1):
            report(Measuring(row.name, done, 1 + len(rows)))
            engine.mode, engine.barriers, engine.fusion = row.settings.mode, row.settings.barriers, row.settings.fusion
            # The prompt ends in a token of its own: feeding the conversation's last one again would change its cache.
            session.prefill([*ids, ids[-1]], cancel=cancel)
            tokens = session.generate(_GREEDY, max_tokens=TOKENS, ignore_eos=True, cancel=cancel)
            timings = tuple(token.timing for token in tokens)
            if session.finish_reason == "cancelled":
                raise Cancelled
            report(SettingMeasured(timings))
    finally:
        engine.stamp_every = stamp_every
