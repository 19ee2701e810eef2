"""The full panel: the article beside this device, and /measure, which fills it without touching the conversation."""

from __future__ import annotations

import dataclasses
import re

import pytest

from engine import BubbleReport, EngineError, remedy_rows
from tests.zincchat.app_driver import NARROW, Chat, chatting
from tests.zincchat.fake_engine import STAMP_EVERY, FakeEngine
from zincchat.widgets.article import Article, bubble_lines
from zincchat.widgets.figures import Figures
from zincchat.widgets.kernel_table import KernelTable


def article(chat: Chat) -> str:
    return chat.app.query_one(Article).plain


def row(chat: Chat, name: str) -> list[str]:
    line = next(line for line in article(chat).split("\n") if line.startswith(name))
    return line.removeprefix(name).split()


def in_todays_settings(engine: FakeEngine, index: int) -> bool:
    """Of the measurements, the first under settings that are not the user's."""
    return engine.mode == "rerecord" and index == 3


async def measured(chat: Chat) -> None:
    await chat.until(lambda: not chat.app.measuring)


async def test_every_kernel_has_run_before_the_first_reply() -> None:
    """A driver that compiles on the first run would otherwise stop a reply and show in its figures."""
    async with chatting() as chat:
        assert chat.engine.warm


async def test_pieces_stand_beside_the_articles() -> None:
    async with chatting(software=False) as chat:
        await chat.ask("go")
        assert not chat.app.query_one(Article).display
        await chat.pilot.press("f5")
        assert chat.app.query_one(Article).display and not chat.app.query_one(Figures).display
        stamped = [timing for timing in chat.engine.timings if timing.pieces_us is not None]
        clean = [timing for timing in chat.engine.timings[1:] if timing.measured_by == "clean"]
        weights_ms = sorted(timing.pieces_us["weights"] for timing in stamped)[len(stamped) // 2] / 1000
        assert row(chat, "weight streaming")[:2] == ["10.7", "42%"]
        assert abs(float(row(chat, "weight streaming")[2]) - weights_ms) < 0.02
        lost_ms = (clean[-1].gpu_idle_before_us + stamped[-1].bubbles_us) / 1000
        assert row(chat, "dispatch + barriers")[0] == "7.0"
        assert abs(float(row(chat, "dispatch + barriers")[2]) - lost_ms) < 0.02
        assert row(chat, "token")[0] == "25.2"
        assert article(chat).startswith("▶ GPU stalled on barriers")
        assert row(chat, "today") == ["39.6", "–"]
        assert float(row(chat, "+ needed barriers")[0].replace(",", "")) > 1000


async def test_both_pages_show_where_there_is_room() -> None:
    async with chatting(size=(140, 60)) as chat:
        await chat.enter("/panel full")
        assert chat.app.query_one(Article).display and chat.app.query_one(Figures).display


async def test_measure_runs_every_remedy_and_leaves_chat_and_settings_alone() -> None:
    async with chatting(software=False, answer="short", hold=in_todays_settings) as chat:
        await chat.ask("one")
        held = list(chat.session.ids)
        await chat.enter("/measure")
        await chat.until(lambda: "measuring today" in chat.status)
        assert chat.app.query_one(Article).display
        chat.go_on()
        await measured(chat)
        assert chat.status == ""
        for remedy in remedy_rows({}):
            assert re.fullmatch(r"[\d,]+", row(chat, remedy.name)[1 if remedy.article_tok_s else 0])
        assert "holds" in article(chat)
        assert f"bubbles ◇ at token {len(held):,}, fused, needed" in article(chat)
        settings = [(timing.mode, timing.barriers, timing.fusion) for timing in chat.engine.timings[-1:]]
        assert settings == [("pipelined", "flags", True)]
        assert (chat.engine.mode, chat.engine.barriers, chat.engine.fusion) == ("reuse", "needed", True)
        assert chat.engine.stamp_every == STAMP_EVERY
        assert chat.session.ids[: len(held)] == held
        await chat.ask("two")
        assert chat.app.panel.view.prefill_kept_tokens == 4  # the question: the fake reads other ids than it speaks


async def test_measure_fills_the_whole_panel_before_the_first_message() -> None:
    async with chatting(software=False, repeat=True) as chat:
        await chat.enter("/measure")
        await measured(chat)
        assert article(chat).startswith("▶ GPU stalled on barriers")
        assert "–" not in article(chat)
        stamped = [timing for timing in chat.engine.timings if timing.pieces_us is not None]
        assert len(stamped) == 6
        assert re.search(r"this device +◇ 6\n", article(chat))
        assert {(timing.mode, timing.barriers, timing.fusion) for timing in stamped} == {("reuse", "needed", True)}
        await chat.enter("/panel kernels")
        assert "medians of 6 stamped tokens" in chat.app.query_one(KernelTable).plain
        await chat.pilot.press("f2")  # what was measured is of other settings
        await chat.enter("/panel full")
        assert article(chat).startswith("▶ what a token waits for shows here")
        assert not chat.app.panel.view.history.tokens


async def test_a_remedys_gain_is_shown_over_a_row_of_like_context() -> None:
    async with chatting(software=False, answer="word " * 40) as chat:
        await chat.ask("one")
        await chat.enter("/mode pipelined")
        await chat.ask("two")
        await chat.enter("/panel full")
        assert re.fullmatch(r"×\d\.\d\d", row(chat, "pipelined")[1])
        await chat.ask("far " * 500)
        await chat.enter("/mode reuse")
        await chat.enter("/new")
        await chat.ask("near")
        assert row(chat, "pipelined")[1:] == ["–"]
        await chat.enter("/measure")
        await measured(chat)
        assert re.fullmatch(r"×\d\.\d\d", row(chat, "pipelined")[1])


async def test_measure_under_settings_that_are_no_remedys() -> None:
    async with chatting(software=False, repeat=True) as chat:
        await chat.enter("/mode overlap")
        await chat.enter("/measure")
        await measured(chat)
        assert "–" not in article(chat)
        assert chat.engine.mode == "overlap"


async def test_measure_where_kernels_have_no_clock() -> None:
    async with chatting(software=False, repeat=True, has_clock=False) as chat:
        await chat.enter("/measure")
        await measured(chat)
        assert re.search(r"▶ GPU stalled on barriers: 0\.\d+ to 0\.\d+", article(chat))
        assert row(chat, "weight streaming")[2] == "–"
        assert row(chat, "pipelined")[0] != "–"


async def test_measure_says_where_to_look() -> None:
    async with chatting(answer="word " * 40, size=NARROW) as chat:
        await chat.enter("/measure")
        await measured(chat)
        assert chat.status == "measured: the results take a terminal of 100 columns and 29 rows"
    async with chatting(answer="word " * 40, hold=in_todays_settings) as chat:
        await chat.enter("/measure")
        await chat.enter("/panel off")
        chat.go_on()
        await measured(chat)
        assert chat.status == "measured: /panel full shows the results"


@pytest.mark.parametrize("refused", [{"flags": "no memory model"}, {}])
async def test_measure_leaves_out_the_row_of_a_policy_that_is_refused_here(refused: dict[str, str]) -> None:
    def refuses(engine: FakeEngine, index: int) -> bool:
        if engine.barriers == "flags":
            engine.refused_barriers["flags"] = "a dispatch waited in vain"
            raise EngineError("barriers flags are not offered here: a dispatch waited in vain")
        return False

    async with chatting(software=False, answer="short", refused_barriers=refused, hold=refuses) as chat:
        await chat.enter("/measure")
        await measured(chat)
        assert chat.status == ""
        assert row(chat, "pipelined")[0] != "–" and row(chat, "waits in memory") == ["–"]
        assert (chat.engine.mode, chat.engine.barriers, chat.engine.fusion) == ("reuse", "needed", True)


async def test_measure_near_the_end_of_the_context() -> None:
    async with chatting(answer="word " * 40, context=64) as chat:
        await chat.ask("go " * 20)
        await chat.enter("/measure")
        await measured(chat)
        assert chat.status == ""
        assert row(chat, "pipelined")[0] != "–"


async def test_settings_flipped_during_a_measurement_hold_after_it() -> None:
    async with chatting(repeat=True, hold=in_todays_settings) as chat:
        await chat.enter("/measure")
        await chat.until(lambda: "measuring today" in chat.status)
        await chat.pilot.press("f3")
        await chat.enter("/mode overlap")
        chat.go_on()
        await measured(chat)
        assert (chat.engine.mode, chat.engine.barriers, chat.engine.fusion) == ("overlap", "needed", False)
        assert chat.header.startswith("overlap · unfused")


async def test_escape_stops_a_measurement_and_a_message_does_too() -> None:
    async with chatting(repeat=True, token_s=0.02, hold=in_todays_settings) as chat:
        await chat.enter("/measure")
        await chat.until(lambda: "measuring today" in chat.status)
        await chat.pilot.press("escape")
        await measured(chat)
        assert "stopped" in chat.status
        await chat.enter("/measure")
        await chat.until(lambda: "measuring today" in chat.status)
        await chat.enter("go")
        await chat.until(lambda: chat.reply)
        assert not chat.app.measuring
        assert chat.engine.mode == "reuse"
        await chat.enter("/measure")
        assert "a reply is under way" in chat.status


async def test_an_engine_error_in_a_measurement_is_one_line() -> None:
    async with chatting(fail_at=3, repeat=True) as chat:
        await chat.enter("/measure")
        await measured(chat)
        assert "the device was lost" in chat.status
        assert chat.engine.mode == "reuse"


@pytest.mark.parametrize(
    ("bubbles_us", "error_us", "order", "words"),
    [
        (300.0, 1.0, "≤≤", "holds"),
        (199.0, 1.0, ">≤", "holds within ±"),
        (405.0, 2.0, "≤>", "holds within ±"),
        (150.0, 1.0, ">≤", "does not hold"),
    ],
)
def test_what_is_said_of_bubbles_and_their_bounds(bubbles_us: float, error_us: float, order: str, words: str) -> None:
    times = dict.fromkeys(
        (f.name for f in dataclasses.fields(BubbleReport) if f.type in ("float", "float | None")), 1.0
    )
    bounds = {"lower_us": 200.0, "lower_error_us": 2.0, "upper_us": 400.0, "upper_error_us": 3.0}
    report = BubbleReport(
        position=8,
        passes=(),
        barriers="needed",
        dispatches=9,
        barrier_count=8,
        **{**times, **bounds, "bubbles_us": bubbles_us, "bubbles_error_us": error_us},  # type: ignore[arg-type]
    )
    figures, verdict = bubble_lines(report)[1]
    assert "".join(re.findall("[≤>]", figures[0])) == order
    assert verdict[0].strip() == words
    # under flags there is no upper bound
    report = dataclasses.replace(report, upper_us=None, upper_error_us=None, barriers="flags")
    figures, verdict = bubble_lines(report)[1]
    assert figures[0].startswith(f"  0.20±0.00 {order[0]} {bubbles_us / 1000:.2f}±0.00 ms")
    assert verdict[0].strip() == ("holds" if order == "≤>" else words)
    blind = dataclasses.replace(report, bubbles_us=None)
    assert bubble_lines(blind)[1][0][0] == "  at least 0.20±0.00 ms"


async def test_measure_takes_no_word() -> None:
    async with chatting() as chat:
        await chat.enter("/measure now")
        assert chat.status == "/measure takes nothing, not now"
        assert not chat.app.measuring and chat.prompt == "/measure now"
