"""Keys, slash commands, the palette and the dialogues."""

from __future__ import annotations

import pytest
from textual.widgets import Static

from engine import BARRIERS, MODES, EngineError
from tests.zincchat.app_driver import Chat, chatting
from tests.zincchat.fake_engine import ANSWER, FakeEngine
from zincchat.chat.slash import COMMANDS
from zincchat.engine_events import TokenArrived
from zincchat.options import ChatOptions
from zincchat.panel.segment import Segment, Settings
from zincchat.screens import help
from zincchat.screens.help import HelpScreen
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.reply import Reply


async def test_ctrl_c_says_how_to_stop_and_how_to_leave() -> None:
    async with chatting(repeat=True, token_s=0.02) as chat:
        await chat.enter("go")
        await chat.pilot.press("ctrl+c")
        assert "Esc stops the reply, Ctrl+Q leaves" in chat.status
        assert chat.app.replying
        await chat.pilot.press("escape")


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


async def test_unknown_commands_and_wrong_arguments_say_so_and_lose_nothing() -> None:
    async with chatting() as chat:
        for text, complaint in (
            ("/etc/passwd is what?", "there is no command /etc/passwd"),
            ("/mode warp", f"/mode takes {', '.join(MODES[:-1])} or {MODES[-1]}, not warp"),
            ("/scale wide", "/scale takes milliseconds"),
            ("/fusion maybe", "/fusion takes off or on, not maybe"),
            ("/new foo", "/new takes nothing, not foo"),
            ("/regen 3", "/regen takes nothing, not 3"),
            ("/panel big", "/panel takes panel, full, kernels, line, off"),
        ):
            await chat.enter(text)
            assert complaint in chat.status
            assert chat.prompt == text
            chat.app.query_one(Prompt).clear()
        await chat.ask(" /etc/passwd is what?")
        assert chat.engine.prompts[-1][0]["content"] == "/etc/passwd is what?"


async def test_a_message_is_edited_and_its_turn_replaced() -> None:
    async with chatting() as chat:
        await chat.enter("/edit")
        assert chat.status == "there is no message to edit yet" and chat.prompt == "/edit"
        chat.app.query_one(Prompt).clear()
        await chat.ask("first")
        await chat.ask("one\ntwo")
        await chat.enter("/edit")
        assert chat.prompt == "/edit one\ntwo"
        assert chat.status == "Enter sends this in place of your last message and its reply"
        assert await chat.ask("!") == ANSWER
        said = [turn.question for turn in chat.app.conversation.turns]
        assert said == ["first", "one\ntwo!"] and chat.prompt == ""
        sent = [message["content"] for message in chat.engine.prompts[-1] if message["role"] == "user"]
        assert sent == said and chat.engine.prompts[-1][-1]["role"] == "user"
        questions = [str(widget.content) for widget in chat.app.query(".question").results(Static)]
        assert questions == said and len(chat.app.query(Reply)) == 2


async def test_a_message_under_way_is_edited_and_a_draft_is_not_lost_to_it() -> None:
    async with chatting(repeat=True, token_s=0.01) as chat:
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        await chat.type("a draft")
        chat.app.action_do("edit")
        assert "the prompt is in use" in chat.status and chat.prompt == "a draft"
        chat.app.query_one(Prompt).clear()
        await chat.enter("/edit go on")
        await chat.until(lambda: len(chat.engine.prompts) == 2 and chat.reply)
        assert [message["content"] for message in chat.engine.prompts[-1]] == ["go on"]
        assert len(chat.app.query(Reply)) == 1
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)


async def test_a_mode_that_is_not_offered_here_says_why_and_f2_passes_over_it() -> None:
    async with chatting(refused_modes={MODES[-1]: "no such GPU"}) as chat:
        await chat.enter(f"/mode {MODES[-1]}")
        assert f"mode {MODES[-1]} is not offered here: no such GPU" in chat.status
        seen = []
        for _ in MODES:
            await chat.pilot.press("f2")
            seen.append(chat.engine.mode)
        assert set(seen) == set(MODES[:-1]) and seen[0] == seen[-1]


async def test_f4_goes_through_the_barrier_policies_that_this_device_has() -> None:
    async def f4(chat: Chat) -> list[str]:
        seen = []
        for _ in range(4):
            await chat.pilot.press("f4")
            seen.append(chat.engine.barriers)
        return seen

    async with chatting() as chat:
        assert await f4(chat) == ["flags", "every", "needed", "flags"]
        assert "barriers flags" in chat.header
        await chat.enter("/barriers FLAGS")
        assert (chat.engine.barriers, chat.status) == ("flags", "")
    async with chatting(refused_barriers={"flags": "dispatches run as they like"}) as chat:
        assert await f4(chat) == ["every", "needed", "every", "needed"]
        await chat.enter("/barriers flags")
        assert chat.status == "barriers flags are not offered here: dispatches run as they like"
        assert chat.engine.barriers == "needed"


@pytest.mark.parametrize("stopped", [False, True])
async def test_the_first_flip_to_flags_says_what_the_device_is_doing(stopped: bool) -> None:
    async with chatting(hold=lambda engine, index: index == 3, repeat=True, token_s=0.005) as chat:
        await chat.enter("go")
        await chat.until(lambda: len(chat.app.replies.tokens) == 3)
        assert chat.status == ""
        await chat.pilot.press("f4")
        assert chat.app.panel.view.settings.barriers == "flags"
        chat.app.replies.take(TokenArrived(1, chat.app.replies.tokens[-1], 5, 0.1, 0))  # was computed under needed
        assert "building kernels that wait in memory" in chat.status
        if stopped:
            await chat.pilot.press("escape")
        chat.go_on()
        await chat.until(lambda: chat.status == "")
        assert stopped or chat.app.replies.tokens[-1].timing.barriers == "flags"
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        assert chat.status == ""


async def test_a_policy_that_is_refused_when_it_is_tried_can_be_left_by_key() -> None:
    async with chatting() as chat:
        await chat.pilot.press("f4")
        chat.engine.refused_barriers["flags"] = "a dispatch waited in vain"
        await chat.pilot.press("f4")
        assert chat.engine.barriers == "every"


@pytest.mark.parametrize("compared", ["", "b", "a"])
async def test_a_wait_in_vain_fails_one_reply_and_the_chat_goes_on_with_needed(compared: str) -> None:
    def waits(engine: FakeEngine, index: int) -> bool:
        if index == 8 and engine.barriers == "flags":
            engine.refused_barriers["flags"] = "a kernel waited in vain"
            raise EngineError("barriers flags: a kernel waited in vain: ask again, with barriers needed")
        return False

    async with chatting(hold=waits) as chat:
        if compared == "a":
            await chat.enter("/barriers flags")
            chat.app.panel.view.history.current = Segment(Settings("reuse", True, "flags"))
            await chat.enter("/barriers needed")
        else:
            await chat.enter("/barriers flags")
        if compared:
            await chat.pilot.press("f7")
            assert chat.app.panel.view.history.comparing
        await chat.ask("first")
        assert "barriers flags: a kernel waited in vain: ask again, with barriers needed" in chat.transcript
        assert "barriers needed" in chat.header and not chat.app.panel.view.history.comparing
        assert await chat.ask("second") == ANSWER
        assert {timing.barriers for timing in chat.engine.timings[-20:]} == {"needed"}
        chat.app.engine_thread.set_live("barriers", "flags")  # as a key does before the app has heard of it
        await chat.pilot.press("f4")
        assert chat.engine.barriers == "every" and "barriers every" in chat.header


async def test_help_explains_keys_and_figures_and_leaves() -> None:
    async with chatting() as chat:
        await chat.pilot.press("f1")
        await chat.pilot.pause()
        assert isinstance(chat.app.screen, HelpScreen)
        assert [name for name, _ in help.MODES] == list(MODES)
        assert [name for name, _ in help.BARRIERS] == list(BARRIERS)
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

    async with chatting(hold_loading=True, wait=False, repeat=True, token_s=0.01) as chat:
        assert grey(chat) >= {"f2", "f3", "f4", "escape"}
        chat.go_on()
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


async def test_names_are_taken_in_any_case() -> None:
    async with chatting() as chat:
        await chat.enter("/panel KERNELS")
        await chat.enter("/mode Overlap")
        assert (chat.app.panel.preset, chat.app.panel.view.settings.mode) == ("kernels", "overlap")
