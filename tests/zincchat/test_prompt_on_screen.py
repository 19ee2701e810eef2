"""The prompt: what its keys do, its history, and a message that cannot be sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from tests.zincchat.app_driver import chatting
from tests.zincchat.fake_engine import ANSWER
from zincchat.engine_thread import EngineThread
from zincchat.options import ChatOptions
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.transcript import Transcript


async def test_a_message_longer_than_the_context_returns_to_the_prompt() -> None:
    async with chatting(context=64) as chat:
        text = "long " * 100
        await chat.enter(text.strip())
        await chat.until(lambda: "the context holds 64" in chat.status)
        assert chat.prompt == text.strip()
        assert not chat.app.conversation.turns
        for key in ("enter", "x"):
            chat.app.query_one(Prompt).post_message(events.Key(key, key if key == "x" else None))
        await chat.until(lambda: "Up brings it back" in chat.status)
        assert chat.prompt == "x"
        await chat.pilot.press("up")
        assert chat.prompt == text.strip()
        chat.app.query_one(Prompt).clear()
        assert await chat.ask("short")


async def test_a_message_sent_during_a_reply_stays_in_the_prompt() -> None:
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        await chat.enter("impatient")
        assert chat.prompt == "impatient"
        assert "Esc stops it" in chat.status


async def test_keys_pressed_right_after_enter_begin_the_next_message() -> None:
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.type("first")
        prompt = chat.app.query_one(Prompt)
        for key in ("enter", "enter", "n", "e", "x", "t"):  # all waiting before the first is handled
            prompt.post_message(events.Key(key, key if len(key) == 1 else None))
        await chat.until(lambda: chat.prompt == "next")
        await chat.until(lambda: chat.reply)
        assert [turn.question for turn in chat.app.conversation.turns] == ["first"]
        assert chat.status == ""


async def test_escape_does_not_wait_behind_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    typed_at_stop: list[int] = []
    monkeypatch.setattr(EngineThread, "cancel", lambda thread: typed_at_stop.append(len(chat.prompt)))
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        for key in [*"x" * 300, "escape"]:
            chat.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await chat.until(lambda: len(chat.prompt) == 300)
        assert typed_at_stop and typed_at_stop[0] < 300


async def test_enter_sends_and_other_keys_break_the_line() -> None:
    async with chatting() as chat:
        await chat.pilot.press("a", "ctrl+j", "b", "shift+enter", "c")
        assert chat.prompt == "a\nb\nc"
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.engine.prompts)
        assert chat.engine.prompts[-1][0]["content"] == "a\nb\nc"


async def test_up_and_down_walk_the_history_and_keep_the_draft(tmp_path: Path) -> None:
    options = ChatOptions(history_path=tmp_path / "deep" / "history")
    async with chatting(options=options) as chat:
        await chat.ask("one")
        await chat.ask("two")
        await chat.type("draft")
        await chat.pilot.press("up")
        assert chat.prompt == "two"
        await chat.pilot.press("up", "up")
        assert chat.prompt == "one"
        await chat.pilot.press("down", "down")
        assert chat.prompt == "draft"
    async with chatting(options=options) as chat:
        await chat.pilot.press("up")
        assert chat.prompt == "two"


async def test_an_unwritable_history_is_mentioned_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with chatting(options=ChatOptions(history_path=tmp_path / "file" / "history")) as chat:
        assert await chat.ask("one") == ANSWER
        assert "history" in chat.status
        assert await chat.ask("two") == ANSWER
        assert chat.status == ""


async def test_page_keys_scroll_the_chat_from_the_prompt() -> None:
    async with chatting(answer=ANSWER * 4) as chat:
        await chat.ask("go")
        transcript = chat.app.query_one(Transcript)
        bottom = transcript.scroll_y
        assert bottom == transcript.max_scroll_y > 0
        await chat.pilot.press("pageup")
        await chat.pilot.pause()
        assert transcript.scroll_y < bottom
        await chat.pilot.press("pagedown")
        await chat.pilot.pause()
        assert transcript.scroll_y == bottom
