"""Lanes of made-up tokens whose cells can be counted by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from engine import TokenTrace
from engine.decode.program import Settings
from engine.decode.step import Lap
from engine.vulkan.calibration import HostAxis
from tests.made_traces import made_trace
from tests.zincchat.cli.fake_engine import timing
from zincchat.panel.timeline import TracedToken, lanes

MS = 1_000_000
BASE = 7_000_000_000_000


def token(start_ms: float, deviation_ns: int | None = 200) -> TokenTrace:
    """2 ms of recording, 1 of submitting, 6 of waiting and 1 of reading back; the GPU works from 3.5 to 8.5."""
    laps, at = [], BASE + round(start_ms * MS)
    for step, length_ms in (
        ("build", 1.5),
        ("record", 0.5),
        ("patch", 0.1),
        ("submit", 0.9),
        ("wait", 6),
        ("readback", 1),
    ):
        laps.append(Lap(step, at, at + round(length_ms * MS), 0))
        at = laps[-1].end_ns
    device_ns = (start_ms * MS + 3.5 * MS, start_ms * MS + 8.5 * MS)
    return TokenTrace(
        0, 9, Settings("rerecord", (), "every"), laps, HostAxis(0.0, BASE, 1.0, deviation_ns), device_ns, None
    )


def traced(*starts_ms: float) -> list[TracedToken]:
    return [TracedToken(100 + index, token(start_ms)) for index, start_ms in enumerate(starts_ms)]


def runs(row: str) -> list[tuple[str, int]]:
    return [(letter, len(list(same))) for letter, same in groupby(row)]


def test_a_token_fills_its_lanes() -> None:
    drawn = lanes(traced(0), 10, 20)
    assert drawn.cpu == "RRRRSS············II"
    assert drawn.gpu == "       ┃GGGGGGGGG   "
    assert drawn.tokens == "       100          "
    assert lanes(traced(0), 10, 40).axis.split() == ["0", "2.5", "5", "7.5", "10"]
    assert {len(row) for row in (drawn.axis, drawn.cpu, drawn.gpu, drawn.tokens)} == {20}


def test_the_newest_tokens_that_fit_are_shown_from_where_the_first_begins() -> None:
    drawn = lanes(traced(0, 10, 20, 30), 25, 50)
    assert drawn.tokens.split() == ["102", "103"]
    assert drawn.cpu.rstrip() == "RRRRSS············II" * 2
    assert lanes(traced(0, 10, 20, 30), 40, 80).tokens.split() == ["100", "101", "102", "103"]


def test_time_in_which_the_host_did_nothing_is_blank() -> None:
    assert lanes(traced(0, 15), 25, 50).cpu == "RRRRSS············II" + " " * 10 + "RRRRSS············II"


def test_a_token_longer_than_the_window_is_cut_off() -> None:
    drawn = lanes(traced(0, 10), 5, 20)
    assert drawn.cpu == "RRRRRRRRSSSS········"
    assert runs(drawn.gpu) == [(" ", 14), ("┃", 1), ("G", 5)]
    assert drawn.tokens.split() == ["101"]


def test_a_submit_never_vanishes_and_a_short_step_may() -> None:
    drawn = lanes(traced(0), 1000, 20)
    assert drawn.cpu.count("S") == 1
    assert "R" not in drawn.cpu
    assert drawn.gpu.count("┃") == 1


def test_bubbles_of_a_stamped_token_take_cells_as_they_take_time() -> None:
    record = replace(timing(0, "reuse", True, "needed", stamped=True), kernels_us=6000.0, bubbles_us=3000.0)
    record = replace(record, gpu_total_us=9000.0, wait_wall_us=9500.0)
    drawn = lanes([TracedToken(7, made_trace(record, BASE))], 10, 100)
    assert 29 <= drawn.gpu.count("B") <= 31
    assert 58 <= drawn.gpu.count("K") <= 61
    assert runs(drawn.gpu.strip())[1:3] == [
        ("K", drawn.gpu.index("B") - drawn.gpu.index("K")),
        ("B", drawn.gpu.count("B")),
    ]
    assert drawn.tokens.split() == ["7◇"]


def test_many_short_bubbles_add_up() -> None:
    record = replace(timing(0, "reuse", True, "needed", stamped=True), gpu_total_us=9000.0)
    trace = made_trace(record, BASE)
    starts = np.arange(300) * 30_000.0
    assert trace.stamped is not None
    spans = np.stack((starts, starts + 24_000), axis=1)
    trace = replace(trace, stamped=trace.stamped._replace(spans_ns=spans))
    drawn = lanes([TracedToken(7, trace)], 10, 100)
    assert drawn.gpu.count("B") == pytest.approx(18, abs=1)
    assert max(length for letter, length in runs(drawn.gpu) if letter == "B") == 1


def test_steps_of_tokens_submitted_ahead_stand_between_those_of_the_newest() -> None:
    first, second = token(0), token(10)
    early = [Lap("submit", BASE + 4 * MS, BASE + 5 * MS, 0), *second.laps[-2:]]
    waiting = [lap._replace(end_ns=BASE + 4 * MS) if lap.step == "wait" else lap for lap in first.laps]
    drawn = lanes([TracedToken(1, replace(first, laps=waiting)), TracedToken(2, replace(second, laps=early))], 20, 40)
    assert drawn.cpu[:12] == "RRRRSS··SS  "


def test_a_gpu_that_runs_ahead_of_the_host_is_drawn_from_its_start() -> None:
    """In a pipeline the GPU begins a token before the host has read the one before it."""
    first, second = token(0), token(10)
    ahead = replace(second, device_ns=(8.5 * MS, 13.5 * MS))
    drawn = lanes([TracedToken(1, first), TracedToken(2, ahead)], 12, 24)
    assert drawn.tokens.split() == ["2"]
    assert drawn.gpu == "┃GGGGGGGGG" + " " * 14
    assert drawn.cpu == "·" + "II" + "RRRRSS············II"[:20] + " "


def test_the_deviation_is_the_largest_of_those_shown() -> None:
    assert lanes(traced(0), 10, 20).deviation_us == 0.2
    mixed = [TracedToken(1, token(0, 200)), TracedToken(2, token(10, 900))]
    assert lanes(mixed, 20, 40).deviation_us == 0.9
    assert lanes([TracedToken(1, token(0, None))], 10, 20).deviation_us is None
