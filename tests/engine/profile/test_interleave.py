"""The order in which variants take turns, and what is kept of their times."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.profile import interleave
from engine.profile.interleave import Rounds, interleaved, median_error

GPU, CPU = (SimpleNamespace(device=SimpleNamespace(is_cpu=is_cpu)) for is_cpu in (False, True))


@pytest.fixture
def runs(monkeypatch):
    """What ran, in order; each run takes one microsecond more than the one before."""
    ran: list[str] = []

    def run_us(commands, before):
        assert before in (GPU, CPU)
        ran.append(commands)
        return float(len(ran))

    monkeypatch.setattr(interleave, "run_us", run_us)
    monkeypatch.setattr(interleave, "_CLOCKS_SECONDS", 0.01)
    monkeypatch.setattr(interleave, "_LONG_US", float("inf"))
    return ran


def test_variants_take_turns_forwards_and_backwards(runs):
    times = interleaved({"a": "A", "b": "B"}, CPU, Rounds(2, 2, 0.0))
    assert "".join(runs) == "BA" + "ABBA" * 2  # the first of each is a warm-up
    assert times == {"a": [3.0, 6.0, 7.0, 10.0], "b": [4.0, 5.0, 8.0, 9.0]}


def test_the_first_variant_raises_the_clocks_and_counts_for_nothing(runs):
    seen = []
    times = interleaved({"a": "A", "b": "B"}, GPU, Rounds(1, 1, 0.0), lambda name, us: seen.append(name))
    turns = "BBAA" + "AABBBBAA"  # each run behind one of its own, which counts for nothing
    assert "".join(runs).lstrip("A") == turns and len(runs) > len(turns)
    assert seen == ["b", "a", "a", "b", "b", "a"]
    assert [len(values) for values in times.values()] == [2, 2]


def test_long_runs_follow_each_other_at_once(runs, monkeypatch):
    """As far as is known from the one before: to settle would take as long again."""
    monkeypatch.setattr(interleave, "_LONG_US", 5.0)
    times = interleaved({"a": "A", "b": "B"}, GPU, Rounds(1, 1, 0.0, clocks=False))
    assert "".join(runs) == "BBAA" + "AABB" + "BA"
    assert times == {"a": [6.0, 10.0], "b": [8.0, 9.0]}


def test_a_recording_that_serves_once_is_run_once(runs):
    interleaved({"a": "A", "b": "B"}, GPU, Rounds(1, 1, 0.0, clocks=False, settle=False))
    assert "".join(runs) == "BAABBA"


def test_the_error_of_a_median_shrinks_with_the_root_of_the_count():
    values = [10.0, 11.0, 9.0, 12.0, 8.0]
    assert median_error(values) == pytest.approx(1.96 * 1.253 * 1.483 * 1.0 / 5**0.5)
    assert median_error(values * 4) == pytest.approx(median_error(values) / 2)
    assert median_error([7.0] * 3) == 0
