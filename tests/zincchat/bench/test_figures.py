"""What a run's entry says of its passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.zincchat.cli.fake_engine import FakeBubbles, timing
from zincchat.bench.cells import bubbles_between
from zincchat.bench.figures import run_figures
from zincchat.bench.instruments import Floor, Instruments
from zincchat.bench.measure import CleanPass, Samples, StampedPass, schedule
from zincchat.bench.setting import Setting
from zincchat.bench.unexplained import neighbours_us

REUSE = Setting("reuse", "needed", True)
INSTRUMENTS = Instruments(Floor(100_000_000, None))


def token(stamped: bool = False, **fields: Any) -> Any:
    return dataclasses.replace(timing(1, "reuse", True, "needed", stamped), **fields)


def passes(slowness: float) -> tuple[CleanPass, StampedPass]:
    """One repeat on a computer that is ``slowness`` times as slow: a clean token takes 10 ms, stamps cost a tenth."""
    clean = token(period_us=10_000 * slowness, gpu_total_us=9_000 * slowness, gpu_idle_before_us=1_000 * slowness)
    stamped = token(
        stamped=True, gpu_total_us=9_900 * slowness, kernels_us=6_000 * slowness, bubbles_us=2_500 * slowness
    )
    return CleanPass(100 / slowness, 0, [clean] * 4), StampedPass([clean, stamped, clean, stamped, clean])


def samples(*slowness: float) -> Samples:
    repeats = [passes(each) for each in slowness]
    return Samples([clean for clean, _ in repeats], [stamped for _, stamped in repeats])


def figures(measured: Samples, instruments: Instruments = INSTRUMENTS) -> dict[str, Any]:
    return run_figures(REUSE, measured, measured, instruments)


def test_the_schedule_is_a_palindrome_of_clean_and_stamped_passes() -> None:
    settings = [REUSE, Setting("overlap", "needed", True)]
    forward, backward = schedule(settings, 0), schedule(settings, 1)
    assert [(setting.mode, stamped) for setting, stamped in forward] == [
        ("reuse", False),
        ("reuse", True),
        ("overlap", False),
        ("overlap", True),
    ]
    assert backward == forward[::-1]
    assert schedule(settings, 2) == forward


def test_a_load_that_drifts_between_repeats_changes_no_stamp_cost() -> None:
    run = figures(samples(1.0, 2.0, 5.0))
    assert run["stamp_cost_fraction"] == pytest.approx(0.1)
    # 10 ms of period less 1.0 idle, 6.0 kernels, 2.5 bubbles and 1.4 edges; the median is of the middle repeat.
    assert run["unexplained_fraction"] == pytest.approx(-0.09)
    assert run["unexplained_us"] == pytest.approx(-1_800)


def test_a_load_that_drifts_within_a_pass_is_none_of_the_unexplained() -> None:
    """Clean passes from a quiet minute beside stamped passes from a busy one, in which each token is slower."""
    quiet = [passes(1.0)[0]] * 3
    tokens = []
    for index in range(24):
        clean, stamped = passes(2.0 + index / 8)
        tokens.append(stamped.stamped[0] if index % 4 == 3 else clean.tokens[0])
    run = figures(Samples(quiet, [StampedPass(tokens)] * 3))
    assert run["kernels_us"] > 2 * 6_000  # a difference of the medians would be off by more than the whole period
    assert run["unexplained_fraction"] == pytest.approx(-0.09 * 3.5, rel=0.2)
    assert 0 < run["unexplained_error_us"] < 1_000


def test_what_stamps_take_is_a_term_of_its_own() -> None:
    measured = dataclasses.replace(INSTRUMENTS, bubbles={("needed", True): FakeBubbles(stamps_us=900.0)})
    run = figures(samples(1.0, 1.0), measured)
    assert (run["stamps_us"], run["unexplained_us"]) == (900.0, pytest.approx(0.0))
    assert figures(samples(1.0, 1.0))["stamps_us"] is None


def test_a_stamped_token_counts_against_the_clean_ones_on_either_side() -> None:
    clean, stamped = passes(1.0)[0].tokens[0], passes(1.0)[1].stamped[0]
    slow = dataclasses.replace(clean, gpu_total_us=10_000)
    assert neighbours_us([clean, stamped, slow]) == [9_500 - 9_900]
    assert neighbours_us([slow, clean, stamped, stamped, slow, slow]) == [9_500 - 9_900] * 2
    assert neighbours_us([stamped, clean, stamped]) == []


def test_without_a_kernel_clock_there_are_bounds_and_no_remainder() -> None:
    clean = [token()] * 3
    bounded = token(stamped=True, kernels_us=None, bubbles_us=None, pieces_us=None, bubbles_range_us=(100.0, 300.0))
    run = figures(Samples([CleanPass(100.0, 0, clean)], [StampedPass([*clean, bounded, *clean])]))
    assert run["bubbles_range_us"] == [100.0, 300.0]
    for name in ("kernels_us", "bubbles_us", "pieces_us", "unexplained_us", "stamp_cost_fraction"):
        assert run[name] is None


def test_under_flags_no_upper_bound_is_made_up() -> None:
    setting, report = Setting("reuse", "flags", True), FakeBubbles(upper_us=None, within_brackets=None)
    measured = Instruments(INSTRUMENTS.floor, 13.0, bubbles={("flags", True): report})
    run = run_figures(setting, samples(1.0), samples(1.0), measured)
    assert (run["bubbles_range_us"], run["bubbles_within_range"]) == ([200.0, None], None)
    assert bubbles_between(run) == ">= 0.200"
    blind = token(stamped=True, kernels_us=None, bubbles_us=None, pieces_us=None, bubbles_range_us=(200.0, 8_800.0))
    bounded = Samples([CleanPass(100.0, 0, [token()] * 3)], [StampedPass([token(), blind, token()])])
    run = run_figures(setting, bounded, bounded, measured)
    assert run["verdict"]["kind"] == "undecided"  # they may be next to nothing, or nearly all of the token


def test_clean_tokens_between_stamped_ones_count_for_nothing_else() -> None:
    clean, stamped = passes(1.0)
    odd = token(period_us=99_000.0, record_us=9_000.0, dispatches=999)
    run = figures(Samples([clean], [StampedPass([*stamped.stamped, *[odd] * 50])]))
    assert (run["period_us"]["p95"], run["record_us"], run["dispatches"]) == (10_000.0, 0.0, 10)


def test_the_floor_is_bandwidth_over_bytes() -> None:
    run = figures(samples(1.0), Instruments(Floor(100_000_000, 20.0)))
    # 20 GB/s over 100 MB are 200 tokens a second; 100 of them move 10 GB/s.
    assert (run["floor_tok_s"], run["floor_fraction"], run["decode_gb_s"]) == (200.0, 0.5, 10.0)
    assert figures(samples(1.0))["floor_fraction"] is None


def test_starved_is_idle_beyond_the_gap_between_queued_submissions() -> None:
    assert figures(samples(1.0), dataclasses.replace(INSTRUMENTS, queued_gap_us=300.0))["starved_us"] == 700.0
    assert figures(samples(1.0), dataclasses.replace(INSTRUMENTS, queued_gap_us=3e6))["starved_us"] == 0.0
    assert figures(samples(1.0))["starved_us"] is None


def test_the_ratio_is_to_the_base_repeat_by_repeat() -> None:
    run = run_figures(REUSE, samples(1.0, 2.0), samples(2.0, 4.0), INSTRUMENTS)
    assert run["ratio_to_first"] == pytest.approx({"median": 2.0, "low": 2.0, "high": 2.0})
    assert run["decode_tok_s_repeats"] == [100.0, 50.0]
