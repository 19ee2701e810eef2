"""The chat as a user sees it: sending, streaming, stopping, and everything that can go wrong on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import Markdown, Static

from engine import MODES
from tests.zincchat.app_driver import Chat, chatting
from tests.zincchat.fake_engine import ANSWER
from zincchat.chat.slash import COMMANDS
from zincchat.engine_thread import EngineThread
from zincchat.options import ChatOptions
from zincchat.screens import help
from zincchat.screens.help import HelpScreen
from zincchat.widgets.load_line import LoadLine
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.transcript import Transcript


async def test_a_message_streams_its_reply() -> None:
    async with chatting(token_s=0.01) as chat:
        await chat.enter("What is a barrier?")
        assert chat.prompt == ""
        await chat.until(lambda: 10 < len(chat.reply) < len(ANSWER) - 50)
        await chat.until(lambda: chat.reply == ANSWER)
        assert "What is a barrier?" in chat.transcript
        assert chat.engine.prompts[-1] == [{"role": "user", "content": "What is a barrier?"}]


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        "- one\n\n- two\n\n  more of two\n- three\n\n1. a\n2. b\n\nend",
        "```\nnot closed\n\n| a |\n",
        "# Title\n\ntext [link][1] here\n\n> quote\n\n[1]: https://example.org\n",
        "~~~~\n```\ninner\n```\n~~~~\nafter\n\n***\n\n    indented\n\nlast *line*",
    ],
)
async def test_a_streamed_reply_looks_like_one_parsed_at_once(text: str) -> None:
    def blocks(markdown: Markdown) -> list[tuple[str, str]]:
        return [(type(child).__name__, str(getattr(child, "content", ""))) for child in markdown.walk_children()]

    async with chatting(answer=text, token_s=0.004) as chat:
        assert await chat.ask("go") == text
        streamed = chat.app.replies.newest.query_one(Markdown)  # type: ignore[union-attr]
        whole = Markdown(chat.reply)
        await chat.app.mount(whole)
        await chat.pilot.pause(0.1)
        assert blocks(streamed) == blocks(whole)


async def test_escape_stops_an_endless_reply_and_keeps_what_came() -> None:
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.enter("go on")
        await chat.until(lambda: len(chat.reply) > 20)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        assert "stopped" in chat.transcript
        partial = chat.reply
        assert chat.app.conversation.turns[-1].reply == partial
        await chat.enter("and now?")
        await chat.until(lambda: len(chat.engine.prompts) == 2)
        assert chat.engine.prompts[-1][1] == {"role": "assistant", "content": partial}


async def test_escape_stops_in_the_prefill() -> None:
    async with chatting(prefill_tok_s=300) as chat:
        await chat.enter("word " * 1500)
        await chat.until(lambda: "reading the prompt" in chat.transcript)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        assert chat.session.position < 1500
        assert "stopped before the first token" in chat.transcript


async def test_typing_and_sending_while_the_model_loads() -> None:
    async with chatting(load_s=0.4, wait=False) as chat:
        await chat.until(lambda: "weights" in chat.app.query_one(LoadLine).render().plain)
        assert "MB" in chat.app.query_one(LoadLine).render().plain
        await chat.enter("early question")
        assert "early question" in chat.transcript
        await chat.until(lambda: chat.reply == ANSWER)
        assert not chat.app.query_one(LoadLine).display
        assert [str(name.content) for name in chat.app.query("Reply .speaker").results(Static)] == [
            chat.engine.model.name
        ]


async def test_stopping_a_message_that_waits_for_the_model_returns_it() -> None:
    async with chatting(load_s=0.5, wait=False) as chat:
        await chat.enter("early question")
        await chat.pilot.press("escape")
        assert chat.prompt == "early question"
        await chat.loaded()
        await chat.pilot.pause(0.2)
        assert not chat.engine.prompts


async def test_ctrl_c_says_how_to_stop_and_how_to_leave() -> None:
    async with chatting(repeat=True, token_s=0.02) as chat:
        await chat.enter("go")
        await chat.pilot.press("ctrl+c")
        assert "Esc stops the reply, Ctrl+Q leaves" in chat.status
        assert chat.app.replying
        await chat.pilot.press("escape")


async def test_a_model_that_cannot_be_loaded_ends_the_app_with_its_line(tmp_path: Path) -> None:
    options = ChatOptions(history_path=tmp_path / "history")
    async with chatting(fail="model.gguf: the file is cut off", load_s=0.2, wait=False, options=options) as chat:
        await chat.type("a draft")
        await chat.until(lambda: chat.app.return_code == 1)
        assert [str(line) for line in chat.app._exit_renderables] == ["zincchat: model.gguf: the file is cut off"]
    assert "a draft" in (tmp_path / "history").read_text()


async def test_a_model_without_a_template_cannot_chat() -> None:
    async with chatting(can_chat=False, wait=False) as chat:
        await chat.until(lambda: chat.app.return_code == 1)
        assert "chat template" in str(chat.app._exit_renderables[0])


async def test_an_engine_error_keeps_the_conversation() -> None:
    async with chatting(fail_at=12) as chat:
        await chat.ask("first")
        assert "the device was lost" in chat.transcript
        partial = chat.reply
        assert partial and ANSWER.startswith(partial)
        assert await chat.ask("second") == ANSWER
        assert [message["content"] for message in chat.engine.prompts[-1]] == ["first", partial, "second"]


async def test_new_regenerate_copy_and_system() -> None:
    async with chatting() as chat:
        await chat.enter("/system Be brief.")
        await chat.ask("first")
        assert chat.engine.prompts[-1][0] == {"role": "system", "content": "Be brief."}
        await chat.enter("/copy")
        assert chat.app.clipboard == ANSWER
        first = chat.app.replies.newest
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: len(chat.engine.prompts) == 2 and not chat.app.replying)
        assert chat.engine.prompts[1] == chat.engine.prompts[0]
        assert chat.engine.samplings[0].seed != chat.engine.samplings[1].seed
        assert first is not None and not first.is_attached
        assert len(chat.app.conversation.turns) == 1
        await chat.pilot.press("ctrl+n")
        await chat.pilot.pause()
        assert "first" not in chat.transcript
        await chat.ask("fresh")
        assert [message["content"] for message in chat.engine.prompts[-1]] == ["Be brief.", "fresh"]


async def test_the_system_prompt_can_be_edited_on_its_screen() -> None:
    async with chatting(options=ChatOptions(system="old")) as chat:
        await chat.enter("/system")
        await chat.pilot.pause()
        await chat.pilot.press("end", "!", "ctrl+s")
        await chat.pilot.pause()
        assert chat.app.conversation.system == "old!"
        await chat.enter("/system")
        await chat.pilot.pause()
        await chat.pilot.press("end", "?", "escape")
        await chat.pilot.pause()
        assert chat.app.conversation.system == "old!"


async def test_regenerate_while_replying_starts_over() -> None:
    async with chatting(repeat=True, token_s=0.005) as chat:
        await chat.enter("go")
        await chat.until(lambda: len(chat.reply) > 20)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: len(chat.engine.prompts) == 2)
        await chat.until(lambda: len(chat.reply) > 20)
        assert ANSWER.startswith(chat.reply[:20])
        assert len(chat.app.conversation.turns) == 1


async def test_a_full_context_stops_the_reply_and_the_next_message_drops_the_oldest_turn() -> None:
    async with chatting(context=120, options=ChatOptions(system="stay")) as chat:
        await chat.ask("first " * 10)
        await chat.ask("second " * 10)
        assert "the context is full" in chat.transcript
        await chat.ask("third")
        assert "dropped the oldest" in chat.transcript
        sent = [message["content"] for message in chat.engine.prompts[-1]]
        assert sent[0] == "stay" and sent[-1] == "third"
        assert not any(content.startswith("first") for content in sent)
        assert chat.app.panel.view.context_used_tokens <= 120


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


async def test_unknown_commands_and_wrong_arguments_say_so_and_lose_nothing() -> None:
    async with chatting() as chat:
        for text, complaint in (
            ("/etc/passwd is what?", "there is no command /etc/passwd"),
            ("/mode warp", f"/mode takes {' or '.join(MODES)}, not warp"),
            ("/scale wide", "/scale takes milliseconds"),
            ("/panel big", "/panel takes panel, full, kernels, line, off"),
        ):
            await chat.enter(text)
            assert complaint in chat.status
            assert chat.prompt == text
            chat.app.query_one(Prompt).clear()
        await chat.ask(" /etc/passwd is what?")
        assert chat.engine.prompts[-1][0]["content"] == "/etc/passwd is what?"


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


async def test_a_mode_that_is_not_offered_here_says_why_and_f2_passes_over_it() -> None:
    async with chatting(refused_modes={MODES[-1]: "no such GPU"}) as chat:
        await chat.enter(f"/mode {MODES[-1]}")
        assert f"mode {MODES[-1]} is not offered here: no such GPU" in chat.status
        seen = []
        for _ in MODES:
            await chat.pilot.press("f2")
            seen.append(chat.engine.mode)
        assert set(seen) == set(MODES[:-1]) and seen[0] == seen[-1]


async def test_help_explains_keys_and_figures_and_leaves() -> None:
    async with chatting() as chat:
        await chat.pilot.press("f1")
        await chat.pilot.pause()
        assert isinstance(chat.app.screen, HelpScreen)
        assert [name for name, _ in help.MODES] == list(MODES)
        assert "Esc closes" in str(chat.app.screen.query_one("#help").border_subtitle)
        await chat.pilot.press("escape")
        await chat.pilot.pause()
        assert not isinstance(chat.app.screen, HelpScreen)


async def test_the_palette_offers_every_command() -> None:
    async with chatting() as chat:
        offered = {entry.title: entry.callback for entry in chat.app.get_system_commands(chat.app.screen)}
        assert {f"/{command.name}" for command in COMMANDS} <= offered.keys()
        offered["/fusion"]()
        await chat.pilot.pause()
        assert chat.engine.fusion is False


async def test_keys_that_would_do_nothing_are_grey() -> None:
    def grey(chat: Chat) -> set[str]:
        return {key for key, active in chat.app.screen.active_bindings.items() if not active.enabled}

    async with chatting(load_s=0.3, wait=False, repeat=True, token_s=0.01) as chat:
        assert grey(chat) >= {"f2", "f3", "f4", "escape"}
        await chat.loaded()
        assert grey(chat) == {"escape"}
        await chat.enter("go")
        assert grey(chat) == set()
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        assert grey(chat) == {"escape"}


async def test_dialogues_keep_their_keys() -> None:
    async with chatting() as chat:
        await chat.pilot.press("f1", "f2")
        assert chat.engine.mode == "reuse"
        await chat.pilot.press("f1")
        await chat.pilot.press("f2")
        assert chat.engine.mode != "reuse"


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


async def test_leaving_in_mid_reply_closes_the_engine() -> None:
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        engine = chat.engine
        await chat.pilot.press("ctrl+q")
    assert engine.closed
