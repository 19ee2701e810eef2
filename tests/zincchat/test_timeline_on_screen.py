"""The timeline in the app: on a key and a command, moved by tokens only."""

from __future__ import annotations

import asyncio

from textual.strip import Strip

from tests.zincchat.app_driver import NARROW, WIDE, Chat, chatting
from zincchat.panel_controller import PANEL_MIN_ROWS
from zincchat.widgets.side_panel import SidePanel
from zincchat.widgets.timeline import Timeline


def shown(chat: Chat) -> list[str]:
    timeline = chat.app.query_one(Timeline)
    return timeline.plain.split("\n") if timeline.display else []


async def test_the_key_and_the_command_show_and_hide_it() -> None:
    async with chatting(software=False) as chat:
        assert shown(chat) == []
        await chat.pilot.press("f6")
        assert "appears here" in shown(chat)[0]
        await chat.ask("go")
        axis, cpu, gpu, tokens, legend = shown(chat)
        assert axis.endswith("ms")
        assert cpu.startswith("CPU")
        assert "S" in cpu
        assert gpu.startswith("GPU")
        assert "┃" in gpu
        assert str(chat.app.panel.view.context_used_tokens) in tokens.replace("◇", "")
        assert "± 0.005 us" in legend
        await chat.enter("/timeline")
        assert shown(chat) == []


async def test_the_footer_names_the_key_in_its_place() -> None:
    async with chatting() as chat:
        bindings = [entry.binding for entry in chat.app.screen.active_bindings.values()]
        named = list(dict.fromkeys(binding.description for binding in bindings if binding.show))
        assert named.index("Panel") + 1 == named.index("Timeline")


async def test_it_stands_still_between_tokens_and_while_frozen() -> None:
    async with chatting(software=False, repeat=True, token_s=0.02) as chat:
        await chat.pilot.press("f6")
        await chat.enter("go")
        await chat.until(lambda: len(shown(chat)) == 5)
        moving = shown(chat)
        await chat.until(lambda: shown(chat) != moving)
        await chat.pilot.press("f8")
        frozen = shown(chat)
        count = len(chat.engine.timings)
        await chat.until(lambda: len(chat.engine.timings) > count + 20)
        assert shown(chat) == frozen
        await chat.pilot.press("f8")
        await chat.until(lambda: shown(chat) != frozen)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        await chat.drained()
        still = shown(chat)
        await asyncio.sleep(0.3)  # a few of its periods
        assert shown(chat) == still


async def test_the_scale_key_rescales_it() -> None:
    async with chatting(software=False) as chat:
        await chat.pilot.press("f6")
        await chat.ask("go")
        before = shown(chat)[0]
        await chat.pilot.press("f9")
        assert shown(chat)[0] != before


async def test_it_fills_the_width_again_after_a_resize(monkeypatch) -> None:
    """What reached the screen last counts: a widget is drawn in its new size before it hears of the resize."""
    drawn: dict[int, str] = {}
    render = Timeline.render_line

    def render_line(self: Timeline, y: int) -> Strip:
        strip = render(self, y)
        drawn[y] = strip.text.rstrip()
        return strip

    monkeypatch.setattr(Timeline, "render_line", render_line)
    async with chatting(software=False) as chat:
        await chat.pilot.press("f6")
        await chat.ask("go")
        await chat.pilot.resize_terminal(30, 20)
        await chat.pilot.resize_terminal(*WIDE)
        assert drawn[1].startswith("CPU")
        assert [drawn[row] for row in range(5)] == shown(chat)


async def test_it_fits_a_small_terminal_and_leaves_room_to_the_panel() -> None:
    async with chatting(size=NARROW) as chat:
        await chat.pilot.press("f6")
        await chat.ask("go")
        assert max(len(line) for line in shown(chat)) <= NARROW[0]
        assert chat.app.query_one(Timeline).region.bottom < NARROW[1]
    async with chatting(size=(140, PANEL_MIN_ROWS)) as chat:
        panel = chat.app.query_one(SidePanel)
        assert panel.display
        await chat.pilot.press("f6")
        assert not panel.display  # its figures would be cut off
        await chat.pilot.press("f6")
        assert panel.display
