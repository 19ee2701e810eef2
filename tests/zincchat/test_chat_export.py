"""/export and /trace write what the engine writes, for the tokens of this chat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import export_text
from tests.zincchat.app_driver import chatting


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
async def test_export_writes_every_token_of_the_chat(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"my tokens{suffix}"
    async with chatting(answer="one two three") as chat:
        await chat.ask("first")
        await chat.ask("second")
        await chat.enter(f"/export {path}")
        await chat.until(lambda: "wrote" in chat.status)
        assert path.read_text() == export_text(chat.engine.timings, suffix)
        assert f"{len(chat.engine.timings)} tokens" in chat.status
        await chat.enter("/new")
        await chat.enter(f"/export {path}")
        assert "no tokens" in chat.status


async def test_trace_opens_as_a_chrome_trace(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    async with chatting(software=False) as chat:
        await chat.ask("go")
        await chat.enter(f"/trace {path}")
        await chat.until(lambda: "perfetto" in chat.status)
        trace = json.loads(path.read_text())
        queue = [event for event in trace["traceEvents"] if event["ph"] == "X" and "period_us" in event["args"]]
        assert len(queue) == len(chat.engine.timings)
        assert trace["otherData"]["device"] == "NVIDIA H200"


async def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.ask("go")
        for command, complaint in (
            ("/export", "/export takes a file name"),
            (f"/export {tmp_path}/a.txt", "must end in .jsonl or .csv"),
            (f"/trace {tmp_path}/a.csv", "must end in .json"),
            (f"/trace {tmp_path}/missing/a.json", "cannot write"),
        ):
            await chat.enter(command)
            await chat.until(lambda complaint=complaint: complaint in chat.status)  # type: ignore[misc]
            await chat.pilot.press("ctrl+u")
