"""What a model thinks stands apart from its answer: folded, switched, kept for the template, never in the answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

from textual.widgets import Markdown, Static

from tests.zincchat.app_driver import NARROW, Chat, chatting
from tests.zincchat.fake_engine import ANSWER
from zincchat.options import ChatOptions
from zincchat.widgets.panel_line import PanelLine
from zincchat.widgets.thoughts import Thoughts

THOUGHTS = """
The user asks about *barriers*.

1. Kernels write, others read.
2. So the second must wait <b>for the first</b>.
"""


def thoughts(chat: Chat) -> Thoughts:
    return chat.app.query(Thoughts).last()


def title(chat: Chat) -> str:
    return str(thoughts(chat).query_one(".title", Static).content)


def shown(chat: Chat) -> str:
    """The unfolded text; empty while it is folded."""
    text = thoughts(chat).query_one(".text")
    return "\n\n".join(str(part.content) for part in text.query(Static) if part.content) if text.display else ""


async def test_thoughts_are_folded_and_the_answer_is_clean() -> None:
    async with chatting(thoughts=THOUGHTS, answer=f"\n\n{ANSWER}") as chat:
        assert await chat.ask("go") == f"\n\n{ANSWER}"
        count = sum(bool(thought) for _, thought in chat.engine.pieces())
        assert re.match(rf"▸ thought for {count} tokens / \d+\.\d s", title(chat))
        assert shown(chat) == ""
        reply = chat.app.replies.newest
        assert reply is not None and reply.thoughts == THOUGHTS
        assert "barriers" not in str([child.content for child in reply.query_one(Markdown).query(Static)])


async def test_progress_shows_while_the_model_thinks() -> None:
    held = 20
    async with chatting(thoughts=THOUGHTS * 20, hold=lambda engine, index: index == held) as chat:
        await chat.enter("go")
        await chat.until(lambda: re.match(r"▸ thinking: 20 tokens / \d+\.\d s", title(chat)))
        held = 300
        await chat.until(lambda: title(chat).startswith("▸ thinking: 300 tokens / "))
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        assert "stopped while it was thinking" in chat.transcript
        await chat.until(lambda: title(chat).startswith("▸ thought for "))


async def test_a_key_unfolds_all_of_them_and_those_to_come() -> None:
    async with chatting(thoughts=THOUGHTS, answer="Yes.") as chat:
        await chat.pilot.press("ctrl+f")
        assert "no thoughts in this chat" in chat.status
        await chat.ask("one")
        await chat.ask("two")
        await chat.pilot.press("ctrl+f")
        await chat.pilot.pause()
        assert title(chat).startswith("▾")
        assert shown(chat) == THOUGHTS.strip("\n")
        assert all(widget.is_open for widget in chat.app.query(Thoughts))
        await chat.ask("three")
        assert shown(chat).replace("\n\n", "\n") == THOUGHTS.strip("\n").replace("\n\n", "\n")
        await chat.enter("/thoughts")
        await chat.pilot.pause()
        assert shown(chat) == "" and title(chat).startswith("▸")
        assert not any(widget.is_open for widget in chat.app.query(Thoughts))


async def test_a_click_unfolds_one() -> None:
    async with chatting(thoughts=THOUGHTS, answer="Yes.") as chat:
        await chat.ask("one")
        await chat.ask("two")
        await chat.pilot.click(thoughts(chat))
        await chat.pilot.pause()
        assert [widget.is_open for widget in chat.app.query(Thoughts)] == [False, True]
        assert shown(chat) == THOUGHTS.strip("\n")
        await chat.pilot.click(thoughts(chat).query_one(".title"))
        await chat.pilot.pause()
        assert shown(chat) == ""


async def test_a_reply_without_thoughts_has_no_such_line() -> None:
    async with chatting() as chat:
        await chat.ask("go")
        assert not thoughts(chat).display
        assert "thought" not in chat.transcript


async def test_the_template_gets_the_thoughts_of_earlier_turns() -> None:
    async with chatting(thoughts=THOUGHTS, answer="\n\nYes.") as chat:
        await chat.ask("one")
        await chat.ask("two")
        assert chat.engine.prompts[-1] == [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "\n\nYes.", "reasoning_content": THOUGHTS},
            {"role": "user", "content": "two"},
        ]


async def test_copy_takes_the_answer_alone() -> None:
    async with chatting(thoughts=THOUGHTS, answer="\n\nYes.") as chat:
        await chat.ask("one")
        await chat.enter("/copy")
        assert chat.app.clipboard == "Yes."


async def test_regenerate_thinks_anew() -> None:
    async with chatting(thoughts=THOUGHTS, answer="Yes.") as chat:
        await chat.ask("one")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: len(chat.engine.prompts) == 2 and not chat.app.replying)
        assert chat.engine.prompts[1] == [{"role": "user", "content": "one"}]
        assert len(chat.app.query(Thoughts)) == 1
        assert chat.app.conversation.turns[0].thoughts == THOUGHTS


async def test_thoughts_stopped_midway_stay_in_the_history() -> None:
    async with chatting(thoughts=THOUGHTS, token_s=0.02) as chat:
        await chat.enter("one")
        await chat.until(lambda: thoughts(chat).tokens > 2)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        turn = chat.app.conversation.turns[0]
        assert turn.reply == "" and turn.thoughts and THOUGHTS.startswith(turn.thoughts)


async def test_the_trace_keeps_them_apart(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    async with chatting(thoughts=THOUGHTS, answer="Yes, it does.") as chat:
        await chat.ask("go")
        await chat.enter(f"/trace {path}")
        await chat.until(lambda: "perfetto" in chat.status)
    tokens = [event["args"] for event in json.loads(path.read_text())["traceEvents"] if "text" in event.get("args", {})]
    assert "".join(token["text"] for token in tokens) == "Yes, it does."
    assert "".join(token.get("thought", "") for token in tokens) == THOUGHTS


async def test_the_switch_holds_from_the_next_message_on() -> None:
    async with chatting(thoughts=THOUGHTS, answer="Yes.", thinking=True) as chat:
        assert "thinking on" in chat.header
        await chat.ask("one")
        await chat.pilot.press("f10")
        assert "thinking is off" in chat.status
        assert "thinking off" in chat.header
        await chat.ask("two")
        assert not thoughts(chat).tokens
        await chat.enter("/think on")
        await chat.ask("three")
        assert thoughts(chat).tokens
        await chat.enter("/think off")
        await chat.enter("/think")
        assert "thinking on" in chat.header
        await chat.enter("/think maybe")
        assert "/think takes on or off, not maybe" in chat.status
        assert chat.engine.switched == [None, False, True]


async def test_a_model_that_does_not_think_by_itself_can_be_told_to() -> None:
    async with chatting(thoughts=THOUGHTS, answer="Yes.", thinking=False, options=ChatOptions(thinking=True)) as chat:
        assert "thinking on" in chat.header
        await chat.ask("one")
        assert thoughts(chat).tokens
    async with chatting(thoughts=THOUGHTS, answer="Yes.", thinking=False, size=NARROW) as chat:
        assert "·no thinking" in chat.app.query_one(PanelLine).plain
        await chat.ask("one")
        assert not thoughts(chat).tokens


async def test_without_a_switch_there_is_nothing_to_switch() -> None:
    async with chatting(options=ChatOptions(thinking=False)) as chat:
        assert "has no switch for thinking" in chat.status
        assert "thinking" not in chat.header
        assert "f10" not in chat.app.screen.active_bindings
        await chat.ask("one")
        await chat.enter("/think off")
        assert "this model's chat template has no switch for thinking" in chat.status
        assert chat.engine.switched == [None]


async def test_switching_during_a_reply_says_when_it_holds() -> None:
    async with chatting(thinking=True, repeat=True, token_s=0.01) as chat:
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        await chat.pilot.press("f10")
        assert "thinking is off from the next message on" in chat.status
