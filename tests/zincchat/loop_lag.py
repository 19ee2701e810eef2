"""How late the app's event loop runs while a reply streams: ``python -m tests.zincchat.loop_lag``.

The fake engine speaks Markdown with tables and fences at 100 tokens a second. A probe sleeps for 5 ms
again and again and notes how much later than that it wakes up. On a machine busy with other work the
loop's own CPU time between two wake-ups is the better figure: what the lateness would be on a free core.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.zincchat.fake_engine import opener
from zincchat.app import ChatApp
from zincchat.options import ChatOptions
from zincchat.panel.statistics import Summary, summarise

PROBE_S = 0.005


async def measure(seconds: float, open_engine: Callable[..., Any], size: tuple[int, int]) -> tuple[Summary, Summary]:
    """Lateness of the loop, and its own CPU time, in milliseconds while one reply streams for ``seconds``."""
    app = ChatApp(open_engine, ChatOptions())
    late_ms: list[float] = []
    cpu_ms: list[float] = []
    async with app.run_test(size=size) as pilot:
        while app.panel.view.engine is None:
            await pilot.pause(0.02)
        app.replies.ask("Write a long story about a computer, in many chapters.")
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end and app.replying:
            cpu_started = time.thread_time()
            await asyncio.sleep(PROBE_S)
            late_ms.append((time.perf_counter() - started - PROBE_S) * 1000)
            cpu_ms.append((time.thread_time() - cpu_started) * 1000)
        app.replies.stop()
        ending = time.perf_counter()
        worst_end_ms = 0.0
        while app.replies.newest is not None and app.is_running and not app.replies.newest.complete.is_set():
            started = time.perf_counter()
            await asyncio.sleep(PROBE_S)
            worst_end_ms = max(worst_end_ms, (time.perf_counter() - started - PROBE_S) * 1000)
        print(
            f"{len(app.replies.newest.text) if app.replies.newest else 0:,} characters; the last parse took "
            f"{(time.perf_counter() - ending) * 1000:.0f} ms, at most {worst_end_ms:.0f} ms at a stretch"
        )
    late, cpu = summarise(late_ms), summarise(cpu_ms)
    assert late is not None and cpu is not None
    return late, cpu


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tok-s", type=float, default=100)
    parser.add_argument("--model", help="a GGUF file: measure with the real engine instead of the fake one")
    parser.add_argument("--size", default="140x42")
    arguments = parser.parse_args()
    width, height = (int(side) for side in arguments.size.split("x"))
    open_engine: Callable[..., Any] = opener(token_s=1 / arguments.tok_s, repeat=True)
    if arguments.model:
        from engine import Engine

        open_engine = partial(Engine.open, arguments.model, mode="rerecord")
    late, cpu = asyncio.run(measure(arguments.seconds, open_engine, (width, height)))
    print(f"loop lateness p50 {late.p50:.1f} ms, p95 {late.p95:.1f} ms, max {late.maximum:.0f} ms, n {late.n}")
    print(f"loop CPU time    p50 {cpu.p50:.1f} ms, p95 {cpu.p95:.1f} ms, max {cpu.maximum:.0f} ms")


if __name__ == "__main__":
    main()
