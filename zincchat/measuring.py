"""Measurements that the engine thread makes between replies: the device's own figures, bubbles, and each remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from engine import Cancelled, EngineError, RunSettings, Sampling, remedy_rows
from zincchat.engine_events import BubblesMeasured, DeviceMeasured, Event, Measuring, SettingMeasured

if TYPE_CHECKING:
    from engine import Engine, Session, Token

TOKENS = 24
STAMP_EVERY = 4  # of the tokens that tell where the time goes
IN_USE = "the settings in use"
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
    """Bubbles and the parts of a token under the settings in use, then 24 greedy tokens under each of the article's.

    All follow on the conversation, whose own tokens all stay in the KV cache. The engine's settings are left changed.
    Raises Cancelled where ``cancel`` was set.
    """
    ids = session.ids[: engine.context - TOKENS - 2] or engine.render(_EMPTY_CHAT)
    in_use = RunSettings(engine.mode, engine.barriers, engine.fusion)
    rows = [row for row in remedy_rows({}) if row.settings != in_use and _offered(engine, row.settings)]
    steps = 2 + len(rows)
    report(Measuring("bubbles", 0, steps))
    if engine.mode != "persistent":  # one dispatch, which the bubble meter cannot take apart
        report(BubblesMeasured(engine.measure_bubbles(len(ids))))

    def tokens(stamp_every: int) -> tuple[Token, ...]:
        # The prompt ends in a token of its own: feeding the conversation's last one again would change its cache.
        session.prefill([*ids, ids[-1]], cancel=cancel)
        engine.stamp_every = stamp_every
        found = tuple(session.generate(_GREEDY, max_tokens=TOKENS, ignore_eos=True, cancel=cancel))
        if session.finish_reason == "cancelled":
            raise Cancelled
        return found

    stamp_every = engine.stamp_every
    try:
        report(Measuring(IN_USE, 1, steps))
        clean = tokens(0)
        # of the second round only what is stamped: it empties a pipeline before the tokens between
        stamped = [token for token in tokens(STAMP_EVERY) if token.timing.measured_by != "clean"]
        report(SettingMeasured((*clean, *stamped)))
        for done, row in enumerate(rows, 2):
            report(Measuring(row.name, done, steps))
            engine.mode, engine.barriers, engine.fusion = row.settings.mode, row.settings.barriers, row.settings.fusion
            try:
                report(SettingMeasured(tokens(0)))
            except EngineError:
                if _offered(engine, row.settings):
                    raise  # else it was refused when it was first tried: its row stays empty
    finally:
        engine.stamp_every = stamp_every


def _offered(engine: Engine, settings: RunSettings) -> bool:
    return settings.mode not in engine.refused_modes and settings.barriers not in engine.refused_barriers
