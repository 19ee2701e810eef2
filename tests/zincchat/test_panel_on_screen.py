"""The panel beside the chat: what it shows is what the records say, and only tokens and keys move it."""

from __future__ import annotations

import dataclasses
import re
import statistics

import numpy as np
import pytest
from textual.widgets import Footer

from engine import MODES
from tests.zincchat.app_driver import NARROW, Chat, chatting
from zincchat.options import ChatOptions
from zincchat.panel_controller import PANEL_MIN_COLUMNS, PANEL_MIN_ROWS
from zincchat.widgets.article import Article
from zincchat.widgets.figures import Figures
from zincchat.widgets.kernel_table import KernelTable
from zincchat.widgets.line_view import LineView
from zincchat.widgets.panel_line import PanelLine
from zincchat.widgets.side_panel import SidePanel


def row(chat: Chat, label: str) -> list[float]:
    """The four figures of a table row, in milliseconds."""
    line = next(line for line in chat.figures.split("\n") if line.startswith(label))
    return [float(figure.replace(",", "")) for figure in line[11:39].split()]


async def test_the_table_equals_the_records() -> None:
    async with chatting(software=False) as chat:
        await chat.ask("go")
        decoded = chat.engine.timings[1:]
        clean = [timing for timing in decoded if timing.measured_by == "clean"]
        stamped = [timing for timing in decoded if timing.measured_by == "twin"]
        assert len(stamped) >= 5
        for label, values in (
            ("token", [timing.period_us for timing in clean]),
            ("GPU busy", [timing.gpu_total_us for timing in clean]),
            ("GPU idle", [timing.gpu_idle_before_us for timing in clean]),
            ("kernels ◇", [timing.kernels_us for timing in stamped]),
            ("bubbles ◇", [timing.bubbles_us for timing in stamped]),
        ):
            expected = [values[-1], statistics.median(values), np.percentile(values, 95), max(values)]
            assert row(chat, label) == pytest.approx([value / 1000 for value in expected], abs=0.0051), label
        assert f"n {len(clean)}" in chat.figures
        average = 1e6 / statistics.mean(timing.period_us for timing in clean)
        assert f"avg {average:,.0f}" in chat.figures
        cost = statistics.median(t.gpu_total_us for t in stamped) / statistics.median(t.gpu_total_us for t in clean) - 1
        assert f"({cost:+.0%} GPU)" in chat.figures


async def test_a_flipped_mode_shows_at_once_and_the_text_goes_on() -> None:
    other = MODES[(MODES.index("reuse") + 1) % len(MODES)]
    async with chatting(repeat=True, token_s=0.05) as chat:
        await chat.enter("go")
        await chat.until(lambda: len(chat.engine.timings) > 10)
        length = len(chat.reply)
        await chat.pilot.press("f2")
        assert chat.header.startswith(f"{other} · fused")  # with the key, not with a token that ran so
        await chat.until(lambda: f"reuse → {other}" in "\n".join(chat.bars))
        await chat.until(lambda: len(chat.reply) > length + 50)
        assert chat.engine.timings[-1].mode == other
        await chat.pilot.press("f3")
        await chat.enter("/barriers every")
        await chat.until(lambda: chat.engine.timings[-1].barriers == "every")
        assert chat.header.startswith(f"{other} · unfused · barriers every")
        assert chat.engine.timings[-1].fusion is False


async def test_the_change_line_compares_medians_on_both_sides() -> None:
    async with chatting(software=False, repeat=True, token_s=0.003) as chat:
        await chat.enter("/mode rerecord")
        await chat.enter("go")
        await chat.until(lambda: len(chat.engine.timings) > 30)
        await chat.enter("/mode reuse")
        await chat.until(lambda: chat.engine.timings[-1].mode == "reuse" and len(chat.engine.timings) > 70)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        await chat.drained()
        decoded = chat.engine.timings[1:]
        before, after = (  # the first two of each pay for the switch
            [each.period_us for each in [t for t in decoded if t.mode == mode][2:] if each.measured_by == "clean"]
            for mode in ("rerecord", "reuse")
        )
        ratio = statistics.median(before) / statistics.median(after)
        assert "rerecord → reuse\n" in chat.figures
        assert f"{statistics.median(before) / 1000:.2f} → {statistics.median(after) / 1000:.2f} ms" in chat.figures
        assert f"×{ratio:.2f} faster, n {len(before)} and {len(after)}" in chat.figures


async def test_a_clean_token_shows_its_gpu_time_undivided() -> None:
    async with chatting(software=False) as chat:
        await chat.ask("go")
        bars = [line for line in chat.bars if re.match(r" *\d+[◇ ] ", line)]
        clean = [bar for bar in bars if "◇" not in bar]
        stamped = [bar for bar in bars if "◇" in bar]
        assert clean and stamped
        assert all("G" in bar and "K" not in bar and "B" not in bar for bar in clean)
        assert all("K" in bar and "B" in bar and "G" not in bar for bar in stamped)


async def test_newest_bar_is_at_the_top_and_numbers_are_positions() -> None:
    async with chatting() as chat:
        await chat.ask("go")
        numbers = [int(match[0]) for bar in chat.bars[1:] if (match := re.match(r" *\d+", bar))]
        assert numbers[0] == chat.app.panel.view.context_used_tokens
        assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("state_bytes", [0, 53_000_000])
async def test_the_context_gauge_counts_the_kv_cache_and_the_recurrent_state(state_bytes: int) -> None:
    async with chatting() as chat:
        await chat.ask("go")
        view = chat.app.panel.view
        assert view.engine is not None
        view.engine = dataclasses.replace(view.engine, state_bytes=state_bytes)
        lines = ["".join(text for text, _ in line) for line in chat.app.query_one(Figures).lines()]
        state = ", recurrent state 53 MB" if state_bytes else ""
        assert f"  KV cache {view.context_used_tokens:,} MB{state}" in lines


async def test_a_software_device_is_called_one_in_either_form() -> None:
    async with chatting(software=True) as chat:
        assert 'software device: its "GPU" is this CPU' in chat.header
        assert "software device" in chat.transcript
    async with chatting(software=True, size=NARROW) as chat:
        assert "software device" in chat.app.query_one(PanelLine).plain
        await chat.ask("go")
        assert "software GPU" in chat.app.query_one(PanelLine).plain
    async with chatting(software=False) as chat:
        assert "software" not in chat.header + chat.transcript


async def test_a_device_without_a_kernel_clock_shows_bubbles_as_a_range() -> None:
    async with chatting(has_clock=False, software=False) as chat:
        await chat.ask("go")
        ranges = [timing.bubbles_range_us for timing in chat.engine.timings if timing.bubbles_range_us]
        low, high = (statistics.median(side) / 1000 for side in zip(*ranges, strict=True))
        assert f"between {low:.2f} and {high:.2f}" in chat.figures
        assert not any("K" in bar or "B" in bar for bar in chat.bars[1:])


async def test_narrow_terminals_and_presets_choose_the_form() -> None:
    def form(chat: Chat) -> tuple[bool, bool]:
        return chat.app.query_one(SidePanel).display, chat.app.query_one(PanelLine).display

    async with chatting() as chat:
        assert form(chat) == (True, False)
        await chat.pilot.press("f5")
        assert form(chat) == (True, False)
        await chat.pilot.press("f5")
        assert form(chat) == (True, False)
        await chat.pilot.press("f5")
        assert form(chat) == (False, True)
        await chat.pilot.press("f5")
        assert form(chat) == (False, False)
        await chat.pilot.press("f5")
        await chat.pilot.resize_terminal(*NARROW)
        await chat.pilot.pause()
        assert form(chat) == (False, True)
        await chat.ask("go")
        line = chat.app.query_one(PanelLine).plain
        assert line.startswith("reuse·fused·needed") and "tok/s" in line and len(line) <= 82
        assert re.search(r"\d+/2048", line)
        await chat.enter("/panel full")
        assert form(chat) == (False, True)
        assert "takes 100 columns and 29 rows" in chat.status
    async with chatting(options=ChatOptions(panel="off")) as chat:
        assert form(chat) == (False, False)


async def test_any_size_of_terminal_while_a_reply_grows() -> None:
    async with chatting(repeat=True, token_s=0.02) as chat:
        await chat.enter("go")
        await chat.pilot.press("f6")
        for size in ((20, 5), (140, 42), (3, 2), (140, 10), (1, 1), (57, 60), (200, 60), (100, 28), (12, 3), (120, 40)):
            await chat.pilot.resize_terminal(*size)
            await chat.pilot.pause(0.1)
        side = chat.app.query_one(SidePanel)
        assert side.display
        await chat.pilot.resize_terminal(20, 5)
        side.display = True  # as a terminal may draw it between a resize and the panel's leaving
        await chat.pilot.pause(0.1)
        assert chat.app.return_code is None


async def test_frozen_figures_stand_still_while_the_chat_goes_on() -> None:
    async with chatting(repeat=True, token_s=0.005) as chat:
        await chat.enter("go")
        await chat.until(lambda: len(chat.engine.timings) > 30)
        await chat.pilot.press("f8")
        frozen, length = (chat.bars, chat.figures), len(chat.reply)
        assert "FROZEN" in chat.header
        await chat.until(lambda: len(chat.reply) > length + 100)
        assert (chat.bars, chat.figures) == frozen
        await chat.pilot.press("f3")
        assert "unfused" in chat.header
        await chat.pilot.press("f8")
        assert (chat.bars, chat.figures) != frozen


async def test_the_axis_changes_by_key_only() -> None:
    async with chatting(software=False, repeat=True, token_s=0.003) as chat:
        await chat.enter("go")
        await chat.until(lambda: len(chat.bars) > 5)
        axis = chat.bars[0]
        await chat.enter("/mode rerecord")
        await chat.until(lambda: any("›" in bar for bar in chat.bars))
        assert chat.bars[0] == axis
        await chat.pilot.press("f9")
        assert chat.bars[0] != axis
        await chat.enter("/scale 4")
        assert chat.bars[0].split() == ["token", "0", "1", "2", "3", "4", "ms"]


async def test_nothing_moves_while_no_token_arrives() -> None:
    async with chatting() as chat:
        await chat.ask("go")
        shown = (chat.header, chat.bars, chat.figures)
        await chat.pilot.pause(1.5)
        assert (chat.header, chat.bars, chat.figures) == shown


async def test_f7_has_two_settings_take_turns_and_says_what_they_differ_by() -> None:
    async with chatting(software=False, repeat=True, token_s=0.002) as chat:
        await chat.enter("go")
        await chat.until(lambda: len(chat.engine.timings) > 20)
        await chat.enter("/barriers every")
        await chat.until(lambda: chat.engine.timings[-1].barriers == "every")
        length = len(chat.reply)
        await chat.pilot.press("f7")
        assert "A/B: barriers needed → every, 12 tokens each in turn" in chat.status
        started = len(chat.engine.timings)
        await chat.until(lambda: len(chat.engine.timings) > started + 200)
        await chat.pilot.press("f7")
        assert chat.status == ""
        ended = len(chat.engine.timings)
        await chat.until(lambda: len(chat.engine.timings) > ended + 20)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.app.replying)
        await chat.drained()
        assert len(chat.reply) > length + 200
        ran = "".join(timing.barriers[0] for timing in chat.engine.timings)
        assert re.match("n+e+(n{12}e{24}n{12}){3}", ran)
        assert ran.endswith("e" * 20)  # the user's own settings go on
        found = chat.app.panel.view.history.comparison.result()
        by_barriers = {
            barriers: [t.period_us for t in chat.engine.timings if t.barriers == barriers and t.measured_by == "clean"]
            for barriers in ("needed", "every")
        }
        ratio = statistics.median(by_barriers["needed"]) / statistics.median(by_barriers["every"])
        assert found.ratio == pytest.approx(ratio, rel=0.02)
        low, high = found.interval
        assert f"×{1 / found.ratio:.2f} ({1 / high:.2f}–{1 / low:.2f}) slower, {found.pairs} pairs" in chat.figures
        assert "A/B barriers needed → every" in chat.figures


async def test_under_flags_the_panel_counts_waits() -> None:
    async with chatting(software=False) as chat:
        await chat.ask("go")
        assert f"{chat.engine.timings[-1].barrier_count} barriers" in chat.figures
        await chat.enter("/barriers flags")
        await chat.ask("go")
        assert f"{chat.engine.timings[-1].barrier_count} waits" in chat.figures
        assert "barriers needed → flags" in chat.figures
        await chat.enter("/mode persistent")  # which has grid barriers whatever the policy
        await chat.ask("go")
        assert f"{chat.engine.timings[-1].barrier_count} barriers" in chat.figures


async def test_a_changed_setting_ends_an_ab() -> None:
    async with chatting(software=False, repeat=True, token_s=0.002) as chat:
        await chat.pilot.press("f7")  # nothing has changed yet: the article's question
        await chat.enter("go")
        await chat.until(lambda: "A/B: F7 ends it" in chat.header and len(chat.engine.timings) > 40)
        assert {timing.mode for timing in chat.engine.timings} == {"rerecord", "reuse"}
        for side in "ab":
            await chat.until(lambda side=side: any(re.match(rf" *\d+[◇ ]{side}", line) for line in chat.bars))
        assert not any("→" in line for line in chat.bars)  # letters, no line at each turn
        await chat.enter("/fusion off")
        await chat.until(lambda: not chat.engine.timings[-1].fusion)
        changed = len(chat.engine.timings)
        await chat.until(lambda: len(chat.engine.timings) > changed + 30)
        assert {timing.mode for timing in chat.engine.timings[changed:]} == {"reuse"}
        assert "A/B" not in chat.header


@pytest.mark.parametrize(("preset", "widget"), [("panel", Figures), ("full", Article), ("kernels", KernelTable)])
async def test_every_line_of_a_panel_has_a_row_in_the_smallest_terminal(preset: str, widget: type[LineView]) -> None:
    async with chatting(size=(PANEL_MIN_COLUMNS, PANEL_MIN_ROWS)) as chat:
        await chat.enter(f"/panel {preset}")
        await chat.ask("go")
        shown = chat.app.query_one(widget)
        assert shown.region.bottom <= chat.app.query_one(Footer).region.y
        assert shown.content_size.height == len(shown.lines())
        assert len(chat.bars) >= 2
