"""The panel's verdict, floor and record lines say what the engine's own functions make of the tokens."""

from __future__ import annotations

import re
import statistics

from engine import TokenTiming, floor_fraction, native_record_us, verdict
from tests.zincchat.app_driver import Chat, chatting


def decoded(chat: Chat) -> tuple[list[TokenTiming], list[TokenTiming]]:
    """Clean and stamped tokens, without those sampled from a prefill."""
    timings = [timing for timing in chat.engine.timings if timing.index > 0]
    return (
        [timing for timing in timings if timing.measured_by == "clean"],
        [timing for timing in timings if timing.measured_by == "twin"],
    )


def median(timings: list[TokenTiming], name: str) -> float:
    return statistics.median(getattr(timing, name) for timing in timings)


def read_bytes(chat: Chat) -> int:
    """Of the middle one of the clean tokens, each fed one place before its own."""
    clean, _ = decoded(chat)
    return chat.engine.token_bytes_at(round(statistics.median(timing.position - 1 for timing in clean)))


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


async def test_the_verdict_is_the_engines_own() -> None:
    async with chatting(software=False) as chat:
        assert "after three ◇" in chat.figures
        await chat.ask("go")
        clean, stamped = decoded(chat)
        idle_us = median(clean, "gpu_idle_before_us") - chat.engine.queued_gap_us
        found = verdict(
            period_us=median(clean, "period_us"),
            starved_us=idle_us,
            gpu_total_us=median(clean, "gpu_total_us"),
            kernels_us=median(stamped, "kernels_us"),
            bubbles_us=median(stamped, "bubbles_us"),
            token_bytes=read_bytes(chat),
            probe_gb_s=chat.engine.probe_gb_s,
        )
        assert found.kind == "stalled"
        assert f"▶ {found.line}" in one_line(chat.figures)
        assert f"starved {idle_us / 1000:.2f}" in chat.figures


async def test_recording_every_token_makes_the_verdict_starved() -> None:
    async with chatting(software=False) as chat:
        await chat.enter("/mode rerecord")
        await chat.ask("go")
        assert "▶ GPU starved by the CPU" in chat.figures


async def test_a_range_of_bubbles_is_judged_at_both_ends() -> None:
    async with chatting(software=False, has_clock=False) as chat:
        await chat.ask("go")
        assert re.search(r"▶ GPU stalled on barriers: 0\.\d+ to 0\.\d+ of", one_line(chat.figures))


async def test_floor_and_bandwidth_count_all_bytes_of_a_token() -> None:
    async with chatting(software=False) as chat:
        await chat.ask("go")
        clean, _ = decoded(chat)
        period_us = median(clean, "period_us")
        token_bytes = read_bytes(chat)
        fraction = floor_fraction(chat.engine.probe_gb_s, token_bytes, period_us)
        assert f"{token_bytes / period_us / 1e3:,.1f} GB/s" in chat.figures
        assert f"{fraction:.1%} of streaming floor" in chat.figures
        assert f"({chat.engine.probe_gb_s * 1e9 / token_bytes:,.0f} tok/s at 4,620 GB/s)" in chat.figures


async def test_the_native_cost_stands_beside_the_recorded_one() -> None:
    async with chatting(software=False) as chat:
        await chat.enter("/mode rerecord")
        await chat.ask("go")
        recorded = [timing for timing in chat.engine.timings[1:] if timing.rerecorded]
        native = f"at native cost {native_record_us(151) / 1000:.2f} (151 x 0.2 us)"
        assert f"record {median(recorded, 'record_us') / 1000:.2f} ms, {native}" in chat.figures


async def test_a_device_that_cannot_be_measured_leaves_dashes() -> None:
    async with chatting(software=False, measurable=False) as chat:
        await chat.ask("go")
        assert "– of streaming floor" in chat.figures
        assert "starved –" in chat.figures


async def test_a_new_chat_keeps_the_figures_of_the_old_one_until_tokens_come() -> None:
    """Bytes and period are of the same tokens: none of the new chat's has been read yet."""
    async with chatting(software=False) as chat:
        await chat.ask("go " * 100)

        def shown() -> list[str]:
            return re.findall(r"[\d,.]+ GB/s|[\d.]+% of streaming floor \([\d,]+ tok/s", chat.figures)

        before = shown()
        assert len(before) == 3
        await chat.enter("/new")
        assert chat.app.panel.view.context_used_tokens == 0
        assert shown() == before
