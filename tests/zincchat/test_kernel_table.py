"""The kernels' panel: the same figures as the bench's table, of the newest stamped tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine import KernelRate, kernel_rates
from tests.made_traces import made_trace
from tests.zincchat.app_driver import Chat, chatting
from tests.zincchat.cli.fake_engine import timing
from zincchat.widgets.figures import Figures
from zincchat.widgets.kernel_table import KINDS, KernelTable


def lines(chat: Chat) -> list[str]:
    return chat.app.query_one(KernelTable).plain.split("\n")


async def test_each_kind_of_kernel_beside_the_probe() -> None:
    async with chatting(software=False) as chat:
        await chat.enter("/panel kernels")
        assert chat.app.query_one(KernelTable).display and not chat.app.query_one(Figures).display
        assert lines(chat)[0] == "kernels ◇: with the next stamped token, or by /measure"
        await chat.ask("go")
        stamped = [each for each in chat.engine.timings if each.kernels_us is not None][-8:]
        rates = kernel_rates([made_trace(each).kernels for each in stamped], chat.engine.probe_gb_s)
        rows = lines(chat)
        assert rows[0] == "kernels ◇ reuse · fused · barriers needed"
        assert rates[0].gb_s < 0.1
        figures = [f"{rates[0].time_us:,.1f}", f"{rates[0].gb_s:.2g}", "0%"]
        assert rows[2].split() == ["embed", "Q8_0", "1", *figures]
        assert rows[3].split()[:4] == ["attn_qkv", "Q4_1", "1", f"{rates[1].time_us:,.1f}"]
        assert f"medians of {len(stamped)} stamped tokens" in rows[-2]
        assert rows[-1].endswith("4,620 GB/s")


async def test_only_tokens_of_the_newest_settings_count() -> None:
    async with chatting(software=False) as chat:
        await chat.ask("go")
        await chat.enter("/mode rerecord")
        await chat.ask("go")
        await chat.enter("/panel kernels")
        assert lines(chat)[0] == "kernels ◇ rerecord · fused · barriers needed"
        rerecorded = [each for each in chat.engine.timings if each.kernels_us and each.mode == "rerecord"]
        assert f"medians of {len(rerecorded)} stamped tokens" in lines(chat)[-2]


async def test_where_weights_come_ahead_it_says_what_that_makes_of_the_rates() -> None:
    async with chatting(software=False) as chat:
        await chat.enter("/barriers flags")
        await chat.ask("go")
        await chat.enter("/panel kernels")
        assert lines(chat)[0] == "kernels ◇ reuse · fused · barriers flags"
        assert lines(chat)[-1] == "weights are on their way before: GB/s reads too high"


async def test_without_a_clock_in_kernels_it_says_so() -> None:
    async with chatting(has_clock=False) as chat:
        await chat.ask("go")
        await chat.enter("/panel kernels")
        assert lines(chat)[0] == "kernels ◇: they have no clock here"


async def test_both_pages_show_where_there_is_room() -> None:
    async with chatting(size=(140, 60)) as chat:
        await chat.enter("/panel kernels")
        assert chat.app.query_one(KernelTable).display and chat.app.query_one(Figures).display


def test_the_kinds_that_take_most_in_the_programs_order(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [KernelRate(f"k{n}", "", "small", 2, float(n), 1000, 1.0, None) for n in range(KINDS + 3)]
    kinds.append(KernelRate("post_attention_norm+residual+more", "IQ4_NL", "weights", 1, 1e5, 1, None, None))

    def rates(_history: object, _probe: float | None) -> Sequence[KernelRate]:
        return kinds

    monkeypatch.setattr("zincchat.panel.kernel_history.kernel_rates", rates)
    table = KernelTable()
    table.view.kernels.add(made_trace(timing(15, "reuse", True, "needed", stamped=True)))
    found = ["".join(text for text, _style in line) for line in table.lines()]
    assert [line.split()[0] for line in found[2 : 2 + KINDS]] == [f"k{n}" for n in range(4, KINDS + 3)] + [
        "post_attention_no…"
    ]
    assert found[1 + KINDS].split()[1:] == ["IQ4_NL", "1", "100,000.0", "–", "–"]
    assert found[2 + KINDS] == f"4 more kinds: {2 * (0 + 1 + 2 + 3)} us a token"
    assert len(found) == len(KernelTable().lines())


async def test_a_frozen_table_stays() -> None:
    async with chatting(software=False) as chat:
        await chat.enter("/panel kernels")
        await chat.ask("go")
        await chat.pilot.press("f8")
        held = lines(chat)
        await chat.ask("go on")
        assert lines(chat) == held
        await chat.pilot.press("f8")
        assert lines(chat) != held
