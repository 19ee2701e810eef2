"""Bars: parts as measured, on a scale that is never bent to fit."""

from __future__ import annotations

import dataclasses

import pytest

from engine import TokenTiming
from tests.zincchat.cli.fake_engine import timing
from zincchat.panel.bar import axis, cells, next_scale_ms, parts, scale_at_least


def token(mode: str, record_us: float, idle_us: float | None, gpu_us: float = 900.0) -> TokenTiming:
    """A token of a build of 100 us, recording, 26 us of patching and submitting, and the GPU's work."""
    made = dataclasses.replace(timing(1, mode, True, "needed"), build_us=100.0, record_us=record_us)
    return dataclasses.replace(made, patch_us=4.0, submit_us=22.0, gpu_idle_before_us=idle_us, gpu_total_us=gpu_us)


def test_recording_stands_before_the_gpus_work_where_the_gpu_waits_for_it() -> None:
    assert parts(token("rerecord", 400, 600)) == [("R", 500), ("S", 26), ("W", 74), ("G", 900)]


@pytest.mark.parametrize(
    ("record_us", "idle_us", "stack"),
    [
        (400, 90, [("S", 26), ("W", 64), ("G", 900)]),  # done before the GPU was
        (1200, 490, [("R", 400), ("S", 26), ("W", 64), ("G", 900)]),  # 400 us longer than the GPU took
        (1200, 300, [("R", 274), ("S", 26), ("G", 900)]),
        (400, 10, [("S", 10), ("G", 900)]),
        (1200, None, [("R", 400), ("S", 26), ("G", 900)]),
    ],
)
def test_recording_beside_the_gpu_takes_no_room(
    record_us: float, idle_us: float | None, stack: list[tuple[str, float]]
) -> None:
    assert parts(token("overlap", record_us, idle_us)) == stack


def test_a_submit_behind_a_queued_token_takes_no_room() -> None:
    queued = dataclasses.replace(token("pipelined", 0, 2), build_us=0.0)
    assert parts(queued) == [("S", 2), ("G", 900)]


def test_cell_borders_come_from_the_running_sum() -> None:
    assert cells([("R", 10), ("S", 5), ("G", 25)], 50, 100, 20) == "RRSGGGGG··┊         "
    thirds = cells([("R", 1.4), ("S", 1.4), ("G", 1.4), ("K", 1.4)], 5.6, 10, 10)
    assert thirds.index("┊") == 6, "four parts of 1.4 cells end at 5.6 cells, not at 4"


def test_parts_beyond_the_period_are_shown_as_they_are() -> None:
    assert cells([("G", 60)], 40, 100, 10) == "GGGGGG    "


def test_a_bar_longer_than_the_axis_is_cut_and_marked() -> None:
    assert cells([("R", 290), ("G", 20)], 320, 100, 10) == "RRRRRRRRR›"
    assert cells([("R", 50)], 300, 100, 10) == "RRRRR····›"
    assert cells([("R", 100)], 100, 100, 10) == "RRRRRRRRRR"


def test_scales_step_up_and_wrap() -> None:
    assert scale_at_least(1.3) == 2
    assert next_scale_ms(2) == 5
    assert next_scale_ms(3) == 5
    assert next_scale_ms(5000) == 0.2


def test_the_axis_ends_at_the_full_scale() -> None:
    assert axis(2, 40) == "0         0.5       1         1.5      2"
