"""The marks between the bars, where a setting changed."""

from __future__ import annotations

import dataclasses

import pytest

from tests.zincchat.app_driver import chatting
from zincchat.widgets.token_bars import TokenBars


@pytest.mark.parametrize(
    ("before", "mark"),
    [
        ({"mode": "persistent", "fusion": False, "barriers": "every"}, "persistent·unfused·every → reuse·fused·needed"),
        ({"mode": "rerecord"}, "rerecord → reuse at token 1000"),
    ],
)
async def test_a_mark_fits_its_line(before: dict[str, object], mark: str) -> None:
    async with chatting() as chat:
        await chat.ask("go")
        bars, history = chat.app.query_one(TokenBars), chat.app.panel.view.history
        older, newer = (dataclasses.replace(token, position=1000) for token in list(history.tokens)[-2:])
        history.tokens[-2] = dataclasses.replace(older, timing=dataclasses.replace(older.timing, **before))
        history.tokens[-1] = newer
        (line,) = ["".join(text for text, _ in line) for line in bars.lines() if "→" in line[0][0]][:1]
        assert len(line) <= bars.content_size.width
        assert line.strip(" ─") == mark
