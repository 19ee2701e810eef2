"""Bars: parts as measured, on a scale that is never bent to fit."""

from __future__ import annotations

from zincchat.panel.bar import axis, cells, next_scale_ms, scale_at_least


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
