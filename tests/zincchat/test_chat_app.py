"""The chat as a user sees it: sending, streaming, stopping, and everything that can go wrong on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Markdown, Static

from tests.zincchat.app_driver import chatting
from tests.zincchat.fake_engine import ANSWER
from zincchat.options import ChatOptions
from zincchat.widgets.load_line import LoadLine


async def test_a_message_streams_its_reply() -> None:
    async with chatting(hold=lambda engine, index: index == 40) as chat:
        await chat.enter("What is a barrier?")
        assert chat.prompt == ""
        await chat.until(lambda: len(chat.engine.timings) == 40 and len(chat.reply) > 100)
        assert len(chat.reply) < len(ANSWER) - 50
        chat.go_on()
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
        await chat.until(lambda: blocks(streamed) == blocks(whole))


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
    async with chatting(hold=lambda engine, index: index == -1) as chat:
        await chat.enter("word " * 1500)
        await chat.until(lambda: "reading the prompt" in chat.transcript)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        assert chat.session.position < 1500
        assert "stopped before the first token" in chat.transcript


async def test_typing_and_sending_while_the_model_loads() -> None:
    async with chatting(hold_loading=True, wait=False) as chat:
        await chat.until(lambda: "weights" in chat.app.query_one(LoadLine).render().plain)
        assert "MB" in chat.app.query_one(LoadLine).render().plain
        await chat.enter("early question")
        assert "early question" in chat.transcript
        chat.go_on()
        await chat.until(lambda: chat.reply == ANSWER)
        assert not chat.app.query_one(LoadLine).display
        assert [str(name.content) for name in chat.app.query("Reply .speaker").results(Static)] == [
            chat.engine.model.name
        ]


async def test_stopping_a_message_that_waits_for_the_model_returns_it() -> None:
    async with chatting(hold_loading=True, wait=False) as chat:
        await chat.enter("early question")
        await chat.pilot.press("escape")
        assert chat.prompt == "early question"
        chat.go_on()
        await chat.loaded()
        await chat.drained()
        assert not chat.engine.prompts


async def test_a_model_that_cannot_be_loaded_ends_the_app_with_its_line(tmp_path: Path) -> None:
    options = ChatOptions(history_path=tmp_path / "history")
    failing: dict[str, Any] = {"fail": "model.gguf: the file is cut off", "hold_loading": True}
    async with chatting(wait=False, options=options, **failing) as chat:
        await chat.type("a draft")
        chat.go_on()
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


async def test_leaving_in_mid_reply_closes_the_engine() -> None:
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        engine = chat.engine
        await chat.pilot.press("ctrl+q")
    assert engine.closed


async def test_what_waits_for_the_model_is_no_longer_said_once_it_is_there() -> None:
    async with chatting(hold_loading=True, wait=False) as chat:
        await chat.enter("/mode overlap")
        assert chat.status.startswith("the model is still loading")
        chat.go_on()
        await chat.loaded()
        assert chat.status == ""
